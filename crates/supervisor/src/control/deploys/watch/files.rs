//! Which files and folders of an application in development count as its code and its settings. Files that the
//! application writes itself do not. Pure.

use std::path::Path;

/// Files that PHP or a framework reads once and caches.
const EXTENSIONS: [&str; 10] = ["php", "phtml", "inc", "module", "theme", "ini", "yaml", "yml", "neon", "twig"];
/// The extensions among them of files that PHP compiles.
const COMPILED_EXTENSIONS: [&str; 5] = ["php", "phtml", "inc", "module", "theme"];
const NAMES: [&str; 2] = ["composer.lock", ".user.ini"];

/// Folders that the application writes while it runs, or that other tools write; at any depth.
const EXCLUDED: [&str; 3] = ["node_modules", "bower_components", "templates_c"];
/// The same, at the top level of an application only: deeper, these are names like any other.
const EXCLUDED_AT_THE_TOP: [&str; 8] = ["var", "cache", "storage", "tmp", "temp", "log", "logs", "build"];
/// The same, as the end of a path.
const EXCLUDED_BELOW: [&str; 4] = ["bootstrap/cache", "wp-content/cache", "wp-content/uploads", "sites/default/files"];

/// The folder into which Composer installs. Its thousands of subfolders are not watched, except for the one that
/// Composer writes last.
const VENDOR: &str = "vendor";
const WRITTEN_LAST: &str = "vendor/composer";

/// Whether the application reloads when the file with this name changes.
pub fn counts_as_code(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    name == ".env"
        || name.starts_with(".env.")
        || NAMES.contains(&name)
        || !name.starts_with('.') && extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
}

/// Whether PHP compiles this file.
pub fn is_compiled(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| COMPILED_EXTENSIONS.contains(&extension))
}

/// Whether a folder is watched, and its subfolders are considered. The path is relative to the folder of the
/// application.
pub fn is_watched(relative: &Path) -> bool {
    let Some(name) = relative.file_name().and_then(|name| name.to_str()) else { return true };
    if name.starts_with('.') || EXCLUDED.contains(&name) || EXCLUDED_BELOW.iter().any(|end| relative.ends_with(end)) {
        return false;
    }
    match relative.parent() {
        Some(parent) if parent.ends_with(VENDOR) => relative.ends_with(WRITTEN_LAST),
        Some(parent) if parent.as_os_str().is_empty() => !EXCLUDED_AT_THE_TOP.contains(&name),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_settings_count() {
        let matter =
            ["a.php", "x.inc", "index.phtml", ".env", ".env.local", "composer.lock", ".user.ini", "services.yaml"];
        let others =
            ["a.css", "app.js", "a.php~", ".a.php.swp", ".php", "php", "4913", ".environment", "composer.json"];
        matter.iter().for_each(|name| assert!(counts_as_code(name), "{name}"));
        others.iter().for_each(|name| assert!(!counts_as_code(name), "{name}"));
    }

    #[test]
    fn folders_that_the_application_writes_are_not_watched() {
        let watched =
            ["", "src", "src/Cache", "src/storage", "src/var", "public", "vendor", "vendor/composer", "wp-content"];
        let others = [
            ".git",
            "src/.hidden",
            "node_modules",
            "public/node_modules",
            "var",
            "cache",
            "storage",
            "bootstrap/cache",
            "public/wp-content/cache",
            "vendor/symfony",
            "templates_c",
        ];
        watched.iter().for_each(|path| assert!(is_watched(Path::new(path)), "{path}"));
        others.iter().for_each(|path| assert!(!is_watched(Path::new(path)), "{path}"));
    }
}
