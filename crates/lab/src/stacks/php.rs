//! The one php.ini of all stacks, and the facts that PHP reports about itself.
//!
//! The php.ini is the one that lab.json names, or that of the distribution for FPM, with the lab's lines at its end. The
//! extensions are those of FPM, for all stacks: their folder is in PHP_INI_SCAN_DIR.

use super::user_files::read_file;
use crate::results::PhpFacts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A php.ini that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpIni {
    /// Its path.
    pub path: PathBuf,
    /// Its lines, without comments.
    pub content: String,
}

/// The sources of a php.ini.
#[derive(Clone, Debug, Default)]
pub struct IniSources {
    /// The php.ini that lab.json names; `None`: the distribution's.
    pub base: Option<PathBuf>,
    /// The folder of further files, one for each extension; `None`: PHP's own.
    pub scan_dir: Option<PathBuf>,
    /// Lines of the lab and of the stack.
    pub settings: BTreeMap<String, String>,
}

/// The facts that PHP reports about itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Facts {
    version: String,
    sapi: String,
    opcache: bool,
    extensions: Vec<String>,
    ini: BTreeMap<String, String>,
}

/// Files that php.ini is looked for in, in this order.
const BASES: [&str; 4] =
    ["/etc/php/{}/fpm/php.ini", "/etc/php/{}/cli/php.ini", "/usr/local/etc/php/php.ini", "/etc/php.ini"];
const SCAN_DIRS: [&str; 3] = ["/etc/php/{}/fpm/conf.d", "/etc/php/{}/cli/conf.d", "/usr/local/etc/php/conf.d"];
/// Settings of the lab. lab.json can override them.
const LAB: [(&str, &str); 5] = [
    ("opcache.enable", "1"),
    ("opcache.enable_cli", "1"),
    ("opcache.memory_consumption", "128"),
    ("display_errors", "0"),
    ("log_errors", "1"),
];
/// Settings that belong to a SAPI, or to the lab's own files: no page is faster or slower by them.
const IGNORED: [&str; 12] = [
    "auto_prepend_file",
    "cli_server.",
    "error_log",
    "cgi.",
    "fastcgi.",
    "fpm.",
    "howdah",
    "swoole.",
    "engine",
    "last_modified",
    "xbithack",
    "child_terminate",
];
/// Settings that PHP's command line sets, whatever php.ini states.
pub const SET_BY_CLI: [&str; 7] = [
    "display_errors",
    "html_errors",
    "implicit_flush",
    "max_execution_time",
    "max_input_time",
    "output_buffering",
    "register_argc_argv",
];

// === impl IniSources ===

impl IniSources {
    /// The distribution's files for this version of PHP, and these settings.
    pub fn of_distribution(php: &str, settings: BTreeMap<String, String>) -> IniSources {
        let existing = |patterns: &[&str]| {
            patterns.iter().map(|pattern| PathBuf::from(pattern.replace("{}", php))).find(|path| path.exists())
        };
        IniSources { base: existing(&BASES), scan_dir: existing(&SCAN_DIRS), settings }
    }

    /// Writes a php.ini. With `facts`, a folder, PHP reports there about itself, by a script beside the php.ini.
    ///
    /// # Errors
    /// The base cannot be read, or the file cannot be written.
    pub fn write(&self, path: &Path, error_log: &Path, facts: Option<&Path>) -> Result<PhpIni, String> {
        let describe = |path: &Path, error: std::io::Error| crate::reason::at(path, &error);
        let base = match &self.base {
            Some(base) => fs::read_to_string(base).map_err(|error| describe(base, error))?,
            None => String::new(),
        };
        let is_setting = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with(';');
        let mut content: String = base.lines().filter(is_setting).flat_map(|line| [line, "\n"]).collect();
        // After a section such as [PHP] or [Session], for the whole PHP.
        content.push_str("[PHP]\n");
        for (name, value) in LAB.iter().filter(|(name, _)| !self.settings.contains_key(*name)) {
            let _ = writeln!(content, "{name} = {value}");
        }
        for (name, value) in &self.settings {
            let _ = writeln!(content, "{name} = {}", quoted(value));
        }
        let _ = writeln!(content, "error_log = {}", quoted(&error_log.display().to_string()));
        if let Some(folder) = facts {
            // Not in that folder, where the user could put a link in its place.
            let probe = path.with_extension("probe.php");
            fs::write(&probe, include_str!("probe.php")).map_err(|error| describe(&probe, error))?;
            let _ = writeln!(content, "auto_prepend_file = {}", quoted(&probe.display().to_string()));
            let _ = writeln!(content, "howdah_lab.facts = {}", quoted(&folder.display().to_string()));
        }
        fs::write(path, &content).map_err(|error| describe(path, error))?;
        Ok(PhpIni { path: path.to_owned(), content })
    }
}

/// A value as php.ini takes it: a number or a word as it is, all else in quotes.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        value.to_owned()
    } else {
        format!("\"{}\"", value.replace('"', "\\\""))
    }
}

// === impl Facts ===

impl Facts {
    /// The facts of a process that reported to this folder; `None` if none has.
    pub fn read(folder: &Path) -> Option<Facts> {
        let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        let mut reports: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "json")).collect();
        reports.sort();
        let facts = reports.iter().filter_map(|path| serde_json::from_slice::<Facts>(&read_file(path).ok()?).ok());
        // A manager process on PHP's command line reports, too; its workers are others.
        let mut facts: Vec<_> = facts.collect();
        let server = facts.iter().position(|facts| facts.sapi != "cli").unwrap_or(0);
        (!facts.is_empty()).then(|| facts.swap_remove(server))
    }

    /// As results.json has them.
    pub fn summary(&self) -> PhpFacts {
        let text: String = self.relevant().map(|(name, value)| format!("{name}={value}\n")).collect();
        PhpFacts {
            version: self.version.clone(),
            sapi: self.sapi.clone(),
            opcache: self.opcache,
            ini_digest: hex(&<sha2::Sha256 as sha2::Digest>::digest(text.as_bytes())),
            extensions: self.extensions.clone(),
        }
    }

    /// The settings whose values differ: the name, this value and the other one.
    pub fn differences<'a>(&'a self, other: &'a Facts) -> Vec<(&'a str, &'a str, &'a str)> {
        let theirs: BTreeMap<_, _> = other.relevant().collect();
        let ours: BTreeMap<_, _> = self.relevant().collect();
        let names: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).copied().collect();
        let value = |of: &BTreeMap<&str, &'a str>, name: &str| of.get(name).copied().unwrap_or("(not set)");
        let of_name = |name| (name, value(&ours, name), value(&theirs, name));
        names.into_iter().map(of_name).filter(|(_, a, b)| a != b).collect()
    }

    fn relevant(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_relevant = |name: &str| !IGNORED.iter().any(|ignored| name.starts_with(ignored));
        self.ini.iter().map(|(name, value)| (name.as_str(), value.as_str())).filter(move |(name, _)| is_relevant(name))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_php_ini_ends_with_the_labs_settings() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("base.ini");
        fs::write(&base, "; a comment\n[PHP]\nmemory_limit = 128M\n\n[Session]\nsession.name = A\n").unwrap();
        let settings = BTreeMap::from([("opcache.enable".into(), "0".into()), ("a".into(), "x; \"y\"".into())]);
        let sources = IniSources { base: Some(base), scan_dir: None, settings };
        let ini = sources.write(&folder.path().join("php.ini"), Path::new("/tmp/e"), Some(folder.path())).unwrap();
        assert!(
            ini.content.starts_with("[PHP]\nmemory_limit = 128M\n[Session]\nsession.name = A\n[PHP]\n"),
            "{}",
            ini.content
        );
        assert!(ini.content.contains("\nopcache.enable = 0\n") && !ini.content.contains("opcache.enable = 1"));
        assert!(ini.content.contains("a = \"x; \\\"y\\\"\"\n") && ini.content.contains("auto_prepend_file = \"/"));
        assert!(folder.path().join("php.probe.php").is_file());
    }

    #[test]
    fn facts_are_those_of_a_server_and_differences_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let report = |pid: u32, sapi: &str, limit: &str| {
            let text = format!(
                r#"{{"version": "8.2.1", "sapi": "{sapi}", "opcache": true, "extensions": ["core"],
                    "ini": {{"memory_limit": "{limit}", "error_log": "{pid}"}}}}"#
            );
            fs::write(folder.path().join(format!("{pid}.json")), text).unwrap();
            Facts::read(folder.path()).unwrap()
        };
        let manager = report(1, "cli", "1G");
        let worker = report(2, "fpm-fcgi", "128M");
        assert_eq!((manager.sapi.as_str(), worker.sapi.as_str()), ("cli", "fpm-fcgi"));
        assert_eq!(worker.differences(&manager), [("memory_limit", "128M", "1G")]);
        assert_ne!(worker.summary().ini_digest, manager.summary().ini_digest);
        assert!(worker.differences(&worker.clone()).is_empty());
    }
}
