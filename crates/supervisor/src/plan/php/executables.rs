//! The PHP executables: `howdah-php8.2` and the like, one for each version of PHP.

use howdah_config::PhpVersion;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

const PREFIX: &str = "howdah-php";
const FOLDER_VARIABLE: &str = "HOWDAH_PHP_DIR";

/// An executable that runs PHP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Php {
    /// Its version, from its name, with a minor number.
    pub version: PhpVersion,
    /// Its absolute path.
    pub executable: PathBuf,
}

/// The search for executables on a thread of its own.
#[derive(Default)]
struct Search {
    state: Mutex<SearchState>,
}

#[derive(Default)]
struct SearchState {
    /// The result of the last search.
    found: Vec<Php>,
    is_in_progress: bool,
}

/// The end of a search, also by a panic: then, the result of the last one stays.
struct SearchEnd {
    search: Arc<Search>,
    found: Option<Vec<Php>>,
}

/// The search of this process.
static SEARCH: LazyLock<Arc<Search>> = LazyLock::new(Arc::default);

// === impl Php ===

impl Php {
    /// Its version line: `howdah-php 0.1.0, PHP 8.2.35`. `None` if it does not run, for example without its libphp.
    pub fn banner(&self) -> Option<String> {
        let output = Command::new(&self.executable).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let line = text.lines().next().filter(|_| output.status.success())?;
        Some(line.to_owned())
    }

    /// The Debian package that it needs to run.
    pub fn package(&self) -> String {
        package(self.version)
    }
}

/// All executables that can be found, the newest first. The file system may hang.
pub fn installed() -> Vec<Php> {
    found_in(&folders())
}

/// The executables that the last search has found, for a thread that must not wait for a file system. Begins the next
/// search, on a thread of its own, unless one hangs: the first call is at the start.
pub fn known() -> Vec<Php> {
    SEARCH.known(installed)
}

// === impl Search ===

impl Search {
    fn known(self: &Arc<Self>, look: impl FnOnce() -> Vec<Php> + Send + 'static) -> Vec<Php> {
        let mut state = self.lock();
        let found = state.found.clone();
        if !state.is_in_progress {
            let end = SearchEnd { search: Arc::clone(self), found: None };
            let look = move || {
                // The whole of it, and not its field alone, belongs to the thread.
                let mut end = end;
                end.found = Some(look());
            };
            state.is_in_progress = true;
            drop(state);
            // Without a thread, the search ends at once.
            let _ = std::thread::Builder::new().name("find PHP".to_owned()).spawn(look);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, SearchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl SearchEnd ===

impl Drop for SearchEnd {
    fn drop(&mut self) {
        let mut state = self.search.lock();
        state.is_in_progress = false;
        if let Some(found) = self.found.take() {
            state.found = found;
        }
    }
}

/// The newest executable that the application accepts.
///
/// # Errors
/// If no version is accepted: the versions that exist, and the package to install.
pub fn choose(wanted: Option<PhpVersion>) -> Result<Php, String> {
    choose_from(&installed(), wanted, &folders())
}

fn choose_from(installed: &[Php], wanted: Option<PhpVersion>, folders: &[PathBuf]) -> Result<Php, String> {
    let accepted = installed.iter().find(|php| wanted.is_none_or(|wanted| wanted.accepts(php.version)));
    if let Some(php) = accepted {
        return Ok(php.clone());
    }
    let looked: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let looked = looked.join(", ");
    let Some(wanted) = wanted else {
        return Err(format!(
            "no PHP was found: there is no {PREFIX}8.x in {looked}; install PHP with `apt install libphp-embed`, \
             then build its executable with `make`"
        ));
    };
    let versions: Vec<_> = installed.iter().map(|php| php.version.to_string()).collect();
    let found = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
    Err(format!(
        "PHP {wanted} was not found (found: {found}): there is no {PREFIX}{wanted} in {looked}; install PHP with \
         `apt install {}`, then build its executable with `make`",
        package(wanted)
    ))
}

fn package(version: PhpVersion) -> String {
    match version.minor {
        Some(_) => format!("libphp{version}-embed"),
        None => "libphp-embed".to_owned(),
    }
}

/// The folders that may hold PHP's executables, the most specific one first.
fn folders() -> Vec<PathBuf> {
    let chosen = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let own = std::fs::read_link("/proc/self/exe").ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let library = own.as_deref().and_then(Path::parent).map(|prefix| prefix.join("lib/howdah"));
    chosen.into_iter().chain(own).chain(library).collect()
}

fn found_in(folders: &[PathBuf]) -> Vec<Php> {
    let mut found: Vec<Php> = Vec::new();
    for entry in folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten() {
        let name = entry.file_name();
        let version = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<PhpVersion>().ok());
        if let Some(version) = version.filter(|version| version.minor.is_some())
            && entry.path().is_file()
            && !found.iter().any(|php| php.version == version)
        {
            found.push(Php { version, executable: std::path::absolute(entry.path()).unwrap_or(entry.path()) });
        }
    }
    found.sort_by_key(|php| std::cmp::Reverse(php.version));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_newest_accepted_version_is_chosen_from_the_first_folder() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["howdah-php8.2", "howdah-php8.10", "howdah-php8", "howdah-php8.2.d", "howdah"] {
            std::fs::write(first.path().join(name), "").unwrap();
        }
        for name in ["howdah-php8.2", "howdah-php9.0"] {
            std::fs::write(second.path().join(name), "").unwrap();
        }
        let folders = [first.path().to_owned(), second.path().to_owned()];
        let installed = found_in(&folders);
        let versions: Vec<_> = installed.iter().map(|php| php.version.to_string()).collect();
        assert_eq!(versions, ["9.0", "8.10", "8.2"]);

        let choose = |wanted: &str| choose_from(&installed, Some(wanted.parse().unwrap()), &folders);
        assert_eq!(choose("8").unwrap().version.to_string(), "8.10");
        assert_eq!(choose("8.2").unwrap().executable, first.path().join("howdah-php8.2"));
        let error = choose("8.3").unwrap_err();
        assert!(error.starts_with("PHP 8.3 was not found (found: 9.0, 8.10, 8.2): "), "{error}");
        assert!(error.contains("apt install libphp8.3-embed"), "{error}");
    }

    #[test]
    fn a_search_that_hangs_is_not_awaited() {
        let search = Arc::new(Search::default());
        let php = |minor| Php { version: format!("8.{minor}").parse().unwrap(), executable: PathBuf::new() };
        let until_found = |expected: &[Php]| while search.lock().found != expected {};
        assert_eq!(search.known(move || vec![php(1)]), []);
        until_found(&[php(1)]);
        let (answer, answered) = mpsc::channel::<()>();
        let hang = move || {
            let _ = answered.recv();
            vec![php(2)]
        };
        assert_eq!(search.known(hang), [php(1)]);
        assert_eq!(search.known(|| unreachable!("one search at a time")), [php(1)]);
        drop(answer);
        until_found(&[php(2)]);
        assert_eq!(search.known(Vec::new), [php(2)]);
    }

    #[test]
    fn without_any_php_the_error_names_a_package() {
        assert!(choose_from(&[], None, &[]).unwrap_err().contains("apt install libphp-embed"));
    }
}
