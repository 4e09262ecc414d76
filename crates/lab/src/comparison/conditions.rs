//! Other differences between two results, which may be the reason for a difference of figures.

use crate::report::words;
use crate::results::{Results, Stack};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A condition that is not the same in both results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its name: `processor`, `nginx: settings`.
    pub name: String,
    /// Its value in the first result.
    pub before: String,
    /// Its value in the second result.
    pub after: String,
}

/// All conditions that differ.
pub(super) fn conditions(before: &Results, after: &Results) -> Vec<Condition> {
    let mut found = Vec::new();
    for ((name, first), (_, second)) in of_lab(before).into_iter().zip(of_lab(after)) {
        found.extend(condition(name.to_owned(), first, second));
    }
    for second in &after.stacks {
        let Some(first) = before.stack(&second.name) else { continue };
        for ((name, a), (_, b)) in of_stack(first).into_iter().zip(of_stack(second)) {
            found.extend(condition(format!("{}: {name}", second.label), a, b));
        }
        found.extend(files(first, second));
    }
    found
}

fn condition(name: String, before: String, after: String) -> Option<Condition> {
    (before != after).then_some(Condition { name, before, after })
}

fn of_lab(results: &Results) -> Vec<(&'static str, String)> {
    let (machine, method) = (&results.machine, &results.method);
    vec![
        ("howdah", results.lab_version.clone()),
        ("processor", machine.cpu.clone()),
        ("cores", machine.cores.to_string()),
        ("governor", machine.governor.clone().unwrap_or_else(|| "unknown".to_owned())),
        ("memory", format!("{} MiB", words::mebibytes(machine.memory_bytes as f64))),
        ("system", machine.system.clone()),
        ("kernel", machine.kernel.clone()),
        ("virtual machine", if machine.is_virtual { "yes" } else { "no" }.to_owned()),
        ("net.core.somaxconn", machine.somaxconn.to_string()),
        ("open files", machine.open_files.to_string()),
        ("rounds", method.rounds.to_string()),
        ("load generator", method.generator.clone()),
        ("cores of the load generator", cores(&method.generator_cores)),
        ("cores of the servers", cores(&method.server_cores)),
    ]
}

fn cores(cores: &[u32]) -> String {
    match cores {
        [] => "all".to_owned(),
        cores => cores.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn of_stack(stack: &Stack) -> Vec<(&'static str, String)> {
    let versions = stack.versions.iter().map(|known| format!("{} {}", known.program, known.version));
    let settings = stack.settings.iter().map(|(name, value)| format!("{name}={value}"));
    let commands = stack.commands.iter().map(|used| without_places(&words::command_line(&used.command)));
    let php = stack.php.as_ref();
    let opcache = |on: bool| if on { "on" } else { "off" };
    vec![
        ("versions", versions.collect::<Vec<_>>().join(", ")),
        ("settings", settings.collect::<Vec<_>>().join(", ")),
        ("PHP processes", stack.workers.policy.clone()),
        ("PHP", php.map_or_else(String::new, |php| format!("{} ({})", php.version, php.sapi))),
        ("opcache", php.map_or_else(String::new, |php| opcache(php.opcache).to_owned())),
        ("php.ini digest", php.map_or_else(String::new, |php| php.ini_digest.clone())),
        ("commands", commands.collect::<Vec<_>>().join("; ")),
    ]
}

/// A text without the ports and the temporary folders of its lab: each start has others.
fn without_places(text: &str) -> String {
    static PLACES: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"/[^\s"']*/howdah-lab-\w+(/[a-z0-9-]+-\d+)?|127\.0\.0\.1:\d+"#).ok());
    match &*PLACES {
        Some(places) => places.replace_all(text, "PLACE").into_owned(),
        None => text.to_owned(),
    }
}

/// Configuration files that were added, removed or changed, but for ports and temporary folders: their names.
fn files(before: &Stack, after: &Stack) -> Option<Condition> {
    let content = |stack: &'_ Stack, path: &str| {
        stack.files.iter().find(|file| file.path == path).map(|file| without_places(&file.content))
    };
    let paths: BTreeSet<_> = before.files.iter().chain(&after.files).map(|file| file.path.as_str()).collect();
    let changed = paths.into_iter().filter(|path| content(before, path) != content(after, path));
    let changed: Vec<_> = changed.collect();
    let is_there = |stack: &Stack| {
        let there = changed.iter().filter(|path| content(stack, path).is_some());
        there.copied().collect::<Vec<_>>().join(", ")
    };
    (!changed.is_empty()).then(|| Condition {
        name: format!("{}: files with another content", after.label),
        before: is_there(before),
        after: is_there(after),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_temporary_folders_are_no_difference() {
        let command = |folder: &str, port: u16| {
            format!("howdah --config {folder}/howdah-3/howdah.json --listen 127.0.0.1:{port} '{folder}/php.ini' -n 3")
        };
        let first = without_places(&command("/tmp/howdah-lab-TaCOYw", 4001));
        assert_eq!(first, without_places(&command("/var/tmp/howdah-lab-ogoZTv", 39_007)));
        assert_eq!(first, "howdah --config PLACE/howdah.json --listen PLACE 'PLACE/php.ini' -n 3");
    }
}
