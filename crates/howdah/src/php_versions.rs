//! The installed PHP versions, for `--help` and `--version`.

use howdah_supervisor::php_executables;

/// One line for the end of the help. Reads the names of the executables and does not start them.
pub fn summary() -> String {
    let versions: Vec<_> = php_executables::installed().iter().map(|php| php.version.to_string()).collect();
    if versions.is_empty() {
        return "PHP versions: none installed; see docs/install.md".to_owned();
    }
    format!("PHP versions: {}", versions.join(", "))
}

/// One line for each version, with its full number and its path.
pub fn details() -> String {
    let installed = php_executables::installed();
    if installed.is_empty() {
        return summary() + "\n";
    }
    let line = |php: &php_executables::Php| {
        let banner = php
            .banner()
            .unwrap_or_else(|| format!("PHP {}: does not start; try `apt install {}`", php.version, php.package()));
        format!("{banner} ({})\n", php.executable.display())
    };
    installed.iter().map(line).collect()
}
