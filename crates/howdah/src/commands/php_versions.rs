//! The PHP versions that are there, for `--help` and `--version`.

use howdah_supervisor::php;

/// For the end of the help: from the names of the executables, without running them.
pub fn summary() -> String {
    let versions: Vec<_> = php::installed().iter().map(|php| php.version.to_string()).collect();
    if versions.is_empty() {
        return "PHP versions found: none; see docs/install.md".to_owned();
    }
    format!("PHP versions found: {}", versions.join(", "))
}

/// A line for each, with its full version and path.
pub fn details() -> String {
    let installed = php::installed();
    if installed.is_empty() {
        return summary() + "\n";
    }
    let line = |php: &php::Php| {
        let banner = php
            .banner()
            .unwrap_or_else(|| format!("PHP {}: does not run; try `apt install {}`", php.version, php.package()));
        format!("{banner} ({})\n", php.executable.display())
    };
    installed.iter().map(line).collect()
}
