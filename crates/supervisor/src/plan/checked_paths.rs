//! The paths outside of applications that must exist before a configuration is active. The router opens them later.

use crate::plan::defaults::missing;
use howdah_config::Configuration;
use std::path::PathBuf;

/// A path of the configuration.
#[derive(Debug)]
pub struct CheckedPath {
    option: String,
    path: PathBuf,
    kind: PathKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum PathKind {
    File,
    Folder,
}

/// The paths of a configuration that the active one does not name: a user who owns one must not prevent the changes of others.
pub fn of_change(next: &Configuration, active: &Configuration) -> Vec<CheckedPath> {
    let known = of_configuration(active);
    let mut paths = of_configuration(next);
    paths.retain(|path| !known.iter().any(|known| known.path == path.path && known.kind == path.kind));
    paths
}

/// The files of `basic_auth` and `error_pages`, and the folder for bodies.
fn of_configuration(configuration: &Configuration) -> Vec<CheckedPath> {
    let file = |option: String, path: &PathBuf| CheckedPath { option, path: path.clone(), kind: PathKind::File };
    let http = &configuration.settings.http;
    let pages = http.error_pages.iter();
    let pages = pages.map(|(_, page)| file(format!("settings/http/error_pages/{}", page.option), &page.file));
    let folder = http.body_temp_path.iter().map(|folder| CheckedPath {
        option: "settings/http/body_temp_path".to_owned(),
        path: folder.clone(),
        kind: PathKind::Folder,
    });
    let users = configuration.routes.actions().filter_map(|action| action.basic_auth.as_ref());
    let users = users.filter_map(|basic_auth| {
        Some(file(format!("{}/user_file", basic_auth.option), basic_auth.user_file.as_ref()?))
    });
    pages.chain(folder).chain(users).collect()
}

/// Looks at all of them. Their file systems may hang.
///
/// # Errors
/// With the first option whose path leads to no such file or folder, and what to do.
pub fn check(paths: &[CheckedPath]) -> Result<(), String> {
    paths.iter().try_for_each(|CheckedPath { option, path, kind }| {
        let (exists, kind) = match kind {
            PathKind::File => (path.is_file(), "file"),
            PathKind::Folder => (path.is_dir(), "folder"),
        };
        if exists { Ok(()) } else { Err(format!("{option}: {}", missing(path, kind))) }
    })
}
