//! The application: its folder, its PHP, its user.

use super::file::ApplicationFile;
use crate::stacks::account::account;
use crate::stacks::detect::find;
use crate::stacks::php::IniSources;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The application.
#[derive(Clone, Debug)]
pub struct Application {
    /// The document root, absolute.
    pub root: PathBuf,
    /// The script below it for all other URLs.
    pub front_controller: Option<String>,
    /// Scripts of stacks that keep the application in memory, by the names of their manifests.
    pub scripts: BTreeMap<String, String>,
    /// The environment. Its values may be templates with `services`.
    pub environment: BTreeMap<String, String>,
    /// PHP's version: `8.2`.
    pub php: String,
    /// The sources of php.ini. Its settings may be templates with `services`.
    pub ini: IniSources,
    /// PHP's user; `None`: the lab's.
    pub user: Option<String>,
}

/// Versions of PHP, the newest first.
const VERSIONS: [&str; 9] = ["8.5", "8.4", "8.3", "8.2", "8.1", "8.0", "7.4", "7.3", "7.2"];
/// Users of web servers, in the order of the search.
const USERS: [&str; 3] = ["www-data", "nginx", "apache"];

/// Reads the application. `folder` is that of lab.json.
///
/// # Errors
/// The message begins with the path of the wrong value.
pub fn read(file: &ApplicationFile, folder: &Path) -> Result<Application, String> {
    let root = folder.join(&file.root);
    let root =
        root.canonicalize().map_err(|error| format!("application/root: {}", crate::reason::at(&root, &error)))?;
    if !root.is_dir() {
        return Err(format!("application/root: {} is not a folder", root.display()));
    }
    let front_controller = file.front_controller.as_deref().map(|script| script.trim_start_matches('/').to_owned());
    if let Some(script) = front_controller.as_ref().filter(|script| !root.join(script).is_file()) {
        return Err(format!("application/front_controller: {} has no file {script}", root.display()));
    }
    let php = match &file.php {
        Some(version) => version.clone(),
        None => newest_php().ok_or("application/php: no PHP is installed: apt-get install php-cli php-fpm")?,
    };
    let is_version =
        |text: &str| text.split('.').count() == 2 && text.split('.').all(|part| part.parse::<u8>().is_ok());
    if !is_version(&php) {
        return Err(format!("application/php: {php:?} is not a version such as \"8.2\""));
    }
    let mut ini = IniSources::of_distribution(&php, file.ini.clone());
    if let Some(path) = &file.php_ini {
        let path = folder.join(path);
        if !path.is_file() {
            return Err(format!("application/php_ini: {} is not a file", path.display()));
        }
        ini.base = Some(path);
    }
    let user = php_user(file.user.as_deref(), rustix::process::geteuid().is_root())?;
    let (scripts, environment) = (file.scripts.clone(), file.environment.clone());
    Ok(Application { root, front_controller, scripts, environment, php, ini, user })
}

/// The newest version of PHP with PHP-FPM or the command line.
pub fn newest_php() -> Option<String> {
    let is_there =
        |version: &&&str| find(&format!("php-fpm{version}")).or_else(|| find(&format!("php{version}"))).is_some();
    VERSIONS.iter().find(is_there).map(|version| (*version).to_owned())
}

/// PHP never runs as root: application code is not to be trusted with that.
fn php_user(chosen: Option<&str>, is_root: bool) -> Result<Option<String>, String> {
    if !is_root {
        return Ok(None);
    }
    let exists = |user: &str| matches!(account(user), Ok(Some(_)));
    match chosen {
        Some(user) if exists(user) => Ok(Some(user.to_owned())),
        Some(user) => Err(format!("application/user: there is no user {user:?}")),
        None => match USERS.iter().find(|user| exists(user)) {
            Some(user) => Ok(Some((*user).to_owned())),
            None => Err("application/user: write the user as which PHP runs; there is no www-data".to_owned()),
        },
    }
}
