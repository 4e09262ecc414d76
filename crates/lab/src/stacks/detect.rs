//! Is a stack installed, and in which version?

use super::library::Definition;
use super::manifest::Program;
use super::template::of_php;
use crate::results::Version;
use regex::Regex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A stack that this machine can run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detection {
    /// The paths of its programs, by the names that its templates use.
    pub programs: BTreeMap<String, String>,
    /// The versions of its programs.
    pub versions: Vec<Version>,
    /// The values of [`super::manifest::Manifest::variables`]; empty if they are not set.
    pub variables: BTreeMap<String, String>,
}

/// Why this machine cannot run a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// `nginx is not installed`
    pub reason: String,
    /// `apt-get install nginx-light`
    pub remedy: String,
}

/// Folders of programs that are not on every user's PATH.
const SYSTEM_FOLDERS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Looks for a stack's programs and asks for their versions. `php` is the version of PHP, such as `8.2`.
///
/// # Errors
/// Something is missing.
pub fn detect(definition: &Definition, php: &str) -> Result<Detection, Missing> {
    let wrong = |reason: String| Missing { reason, remedy: format!("correct the manifest of {}", definition.name) };
    let manifest = &definition.manifest;
    let value = |name: &String| (name.clone(), std::env::var(name).unwrap_or_default());
    let mut found = Detection { variables: manifest.variables.iter().map(value).collect(), ..Detection::default() };
    for (name, program) in &manifest.programs {
        let renderer = of_php(php, &found.programs, &found.variables);
        let names: Result<Vec<_>, _> = program.names.iter().map(|name| renderer.render(name)).collect();
        let path = names.map_err(wrong)?.iter().find_map(|name| find(name));
        let path = match path {
            Some(path) => path,
            None => {
                let reason = format!("{} is not installed", program.label);
                return Err(Missing { reason, remedy: renderer.render(&program.install).map_err(wrong)? });
            }
        };
        found.versions.push(Version { program: program.label.clone(), version: version(&path, program) });
        found.programs.insert(name.clone(), path.display().to_string());
    }
    for check in &manifest.checks {
        let renderer = of_php(php, &found.programs, &found.variables);
        let render = |text: &str| renderer.render(text).map_err(wrong);
        let missing = Missing { reason: render(&check.reason)?, remedy: render(&check.install)? };
        if let Some(file) = &check.file
            && !Path::new(&render(file)?).is_file()
        {
            return Err(missing);
        }
        if let [program, arguments @ ..] = renderer.words(&check.command).map_err(wrong)?.as_slice() {
            let Some(output) = output(Path::new(program), arguments).filter(|(is_success, _)| *is_success) else {
                return Err(missing);
            };
            if let Some(label) = &check.label {
                let version = check.pattern.as_deref().and_then(|pattern| first_group(pattern, &output.1));
                let version = version.unwrap_or_else(|| "unknown".to_owned());
                found.versions.push(Version { program: label.clone(), version });
            }
        }
    }
    Ok(found)
}

/// The path of a program: `@self`, a path with `$NAME` at its beginning, or a name in PATH or in a system folder.
pub fn find(name: &str) -> Option<PathBuf> {
    if name == "@self" {
        return std::env::current_exe().ok();
    }
    let name = match name.strip_prefix('$') {
        Some(rest) => {
            let (variable, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let value = std::env::var(variable).ok().filter(|value| !value.is_empty())?;
            format!("{value}{rest}")
        }
        None => name.to_owned(),
    };
    if name.contains('/') {
        return is_executable(Path::new(&name)).then(|| PathBuf::from(name));
    }
    let folders = format!("{}:{SYSTEM_FOLDERS}", std::env::var("PATH").unwrap_or_default());
    let candidates =
        folders.split(':').filter(|folder| folder.starts_with('/')).map(|folder| Path::new(folder).join(&name));
    candidates.into_iter().find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn version(path: &Path, program: &Program) -> String {
    let found = output(path, &program.version).and_then(|(_, text)| first_group(&program.pattern, &text));
    found.unwrap_or_else(|| "unknown".to_owned())
}

fn first_group(pattern: &str, text: &str) -> Option<String> {
    Regex::new(pattern).ok()?.captures(text)?.get(1).map(|group| group.as_str().to_owned())
}

/// Whether the command succeeded, and all that it printed.
fn output(program: &Path, arguments: &[String]) -> Option<(bool, String)> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some((output.status.success(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn definition(manifest: &str) -> Definition {
        let files = BTreeMap::from([("manifest.json".to_owned(), manifest.to_owned())]);
        Definition::new("test", files, "test").unwrap()
    }

    #[test]
    fn a_program_is_found_with_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("server8.2");
        fs::write(&program, "#!/bin/sh\necho \"Server/1.2.3 $1\" >&2\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = serde_json::json!({"label": "x", "processes": [], "programs": {"server": {
            "label": "Server", "names": ["no-such-program", folder.path().join("server{{ php }}")],
            "version": ["-v"], "pattern": "Server/([0-9.]+) -v", "install": "x"}}});
        let found = detect(&definition(&manifest.to_string()), "8.2").unwrap();
        assert_eq!(found.programs["server"], program.display().to_string());
        assert_eq!(found.versions, [Version { program: "Server".into(), version: "1.2.3".into() }]);
    }

    #[test]
    fn a_missing_part_is_named_with_its_remedy() {
        let program = r#"{"label": "x", "processes": [], "programs": {"server": {"label": "Server", "names": ["no-such-program"],
            "version": [], "pattern": "x", "install": "apt-get install server{{ php }}"}}}"#;
        let missing = detect(&definition(program), "8.2").unwrap_err();
        assert_eq!(
            (missing.reason.as_str(), missing.remedy.as_str()),
            ("Server is not installed", "apt-get install server8.2")
        );
        for check in [r#"{"file": "/no/such/file"}"#, r#"{"command": ["/bin/false"]}"#] {
            let check = check.replace('}', r#", "reason": "no module", "install": "build it"}"#);
            let manifest = format!(r#"{{"label": "x", "processes": [], "checks": [{check}]}}"#);
            assert_eq!(detect(&definition(&manifest), "8.2").unwrap_err().reason, "no module");
        }
    }
}
