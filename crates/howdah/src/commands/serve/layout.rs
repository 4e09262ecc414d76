//! The layout of an application's folder: its public folder, and its front controller.
//!
//! Reads file names only, and no file's content. Fails only on a front controller of the user that does not exist.

use std::path::{Path, PathBuf};

/// Public folders of applications that keep the rest of their code outside, in the order of the search.
const PUBLIC_FOLDERS: [&str; 2] = ["public", "web"];
const FRONT_CONTROLLER: &str = "index.php";

/// A path below the folder that only one framework or application has, and its name.
const SIGNS: [(&str, &str); 13] = [
    ("artisan", "Laravel"),
    ("bin/console", "Symfony"),
    ("symfony.lock", "Symfony"),
    ("web/core/lib/Drupal.php", "Drupal"),
    ("core/lib/Drupal.php", "Drupal"),
    ("yii", "Yii"),
    ("wp-includes/version.php", "WordPress"),
    ("doku.php", "DokuWiki"),
    ("includes/MediaWiki.php", "MediaWiki"),
    ("includes/MediaWikiServices.php", "MediaWiki"),
    ("libraries/classes/Common.php", "phpMyAdmin"),
    ("joomla.xml", "Joomla"),
    ("occ", "Nextcloud"),
];

/// A worker script and its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerScript {
    /// The public folder if the script is below it, else the served folder.
    pub root: PathBuf,
    /// Its path below that folder.
    pub script: String,
}

/// The worker scripts of `--worker`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Classic mode.
    None,
    /// One script for all requests.
    One(WorkerScript),
    /// Scripts by path, below the public folder. Without paths: the requests that would run the script in classic mode.
    Several(Vec<(String, Vec<String>)>),
}

/// The layout of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The public folder.
    pub root: PathBuf,
    /// The script below it that answers all URLs that are neither a file nor a script.
    pub front_controller: Option<String>,
    /// For the banner: the application's name, its public folder and its front controller.
    pub description: String,
}

/// Detects the layout of a folder. `front_controller` replaces `index.php`.
///
/// # Errors
/// A front controller of the user that does not exist.
pub fn detect(folder: &Path, front_controller: Option<&str>) -> Result<Layout, String> {
    let public = PUBLIC_FOLDERS.iter().map(|name| folder.join(name)).find(|path| path.join(FRONT_CONTROLLER).is_file());
    let root = public.unwrap_or_else(|| folder.to_owned());
    let front_controller = match front_controller {
        Some(chosen) => {
            let chosen = chosen.trim_start_matches('/');
            if !root.join(chosen).is_file() {
                return Err(format!(
                    "--front-controller {chosen}: {} has no such file; write its path relative to that folder",
                    root.display()
                ));
            }
            Some(chosen.to_owned())
        }
        None => root.join(FRONT_CONTROLLER).is_file().then(|| FRONT_CONTROLLER.to_owned()),
    };
    let name = SIGNS.iter().find(|(sign, _)| folder.join(sign).exists()).map(|(_, name)| *name);
    let description = match (&front_controller, name) {
        (Some(script), name) => {
            let name = name.unwrap_or("a PHP application");
            format!("{name} in {}, front controller {script}", root.display())
        }
        (None, name) => format!("{} in {}", name.unwrap_or("a folder of scripts and files"), root.display()),
    };
    Ok(Layout { root, front_controller, description })
}

/// Reads the values of `--worker`: `FILE`, or `FILE=PATH`.
///
/// # Errors
/// A file that does not exist, or a path that does not begin with a slash.
pub fn find_workers(folder: &Path, layout: &Layout, values: &[String]) -> Result<Workers, String> {
    match values {
        [] => return Ok(Workers::None),
        [script] if !script.contains('=') => return find_worker_script(folder, layout, script).map(Workers::One),
        _ => {}
    }
    let mut scripts: Vec<(String, Vec<String>)> = Vec::new();
    for value in values {
        let (script, path) =
            value.split_once('=').map_or((value.as_str(), None), |(script, path)| (script, Some(path)));
        let script = script.trim_start_matches('/');
        if !layout.root.join(script).is_file() {
            return Err(format!(
                "--worker {value}: {} has no file {script:?}; write its path relative to that folder",
                layout.root.display()
            ));
        }
        if let Some(path) = path.filter(|path| !path.starts_with('/')) {
            return Err(format!(
                "--worker {value}: {path:?} is not a path; begin it with \"/\", as in {script}=/api/*"
            ));
        }
        let index = scripts.iter().position(|(known, _)| known == script).unwrap_or_else(|| {
            scripts.push((script.to_owned(), Vec::new()));
            scripts.len() - 1
        });
        scripts[index].1.extend(path.map(str::to_owned));
    }
    Ok(Workers::Several(scripts))
}

/// Finds a worker script below the public folder, or below the served one.
///
/// # Errors
/// When there is no such file.
fn find_worker_script(folder: &Path, layout: &Layout, script: &str) -> Result<WorkerScript, String> {
    let script = script.trim_start_matches('/');
    let root = [layout.root.as_path(), folder].into_iter().find(|root| root.join(script).is_file());
    let root = root.ok_or_else(|| {
        format!("--worker {script}: {} has no such file; write its path relative to that folder", folder.display())
    })?;
    Ok(WorkerScript { root: root.to_owned(), script: script.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        folder
    }

    #[test]
    fn the_layout_of_known_applications_is_detected() {
        let cases: [(&[&str], &str, Option<&str>, &str); 8] = [
            (&["public/index.php", "bin/console", "index.php"], "public", Some("index.php"), "Symfony"),
            (&["public/index.php", "artisan"], "public", Some("index.php"), "Laravel"),
            (&["web/index.php", "web/core/lib/Drupal.php"], "web", Some("index.php"), "Drupal"),
            (&["web/index.php", "yii"], "web", Some("index.php"), "Yii"),
            (&["index.php", "wp-includes/version.php"], "", Some("index.php"), "WordPress"),
            (&["index.php", "public/logo.png"], "", Some("index.php"), "a PHP application"),
            (&["a.php"], "", None, "a folder of scripts and files"),
            (&[], "", None, "a folder of scripts and files"),
        ];
        for (files, root, front_controller, name) in cases {
            let folder = folder(files);
            let layout = detect(folder.path(), None).unwrap();
            assert_eq!(layout.root, folder.path().join(root), "{files:?}");
            assert_eq!(layout.front_controller.as_deref(), front_controller, "{files:?}");
            assert!(layout.description.starts_with(name), "{}", layout.description);
        }
    }

    #[test]
    fn a_worker_script_is_below_the_public_folder_or_beside_it() {
        let folder = folder(&["public/index.php", "worker.php"]);
        let layout = detect(folder.path(), None).unwrap();
        let root_of = |script: &str| find_worker_script(folder.path(), &layout, script).map(|found| found.root);
        assert_eq!(root_of("index.php"), Ok(folder.path().join("public")));
        assert_eq!(root_of("/worker.php"), Ok(folder.path().to_owned()));
        assert!(root_of("none.php").unwrap_err().starts_with("--worker none.php: "));
    }

    #[test]
    fn several_worker_scripts_have_their_paths() {
        let folder = folder(&["public/index.php", "public/api.php"]);
        let layout = detect(folder.path(), None).unwrap();
        let find = |values: &[&str]| {
            let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
            find_workers(folder.path(), &layout, &values)
        };
        assert_eq!(find(&[]), Ok(Workers::None));
        let paths = |script: &str, paths: &[&str]| {
            (script.to_owned(), paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
        };
        let both = Workers::Several(vec![paths("api.php", &["/api/*", "/v2/*"]), paths("index.php", &[])]);
        assert_eq!(find(&["/api.php=/api/*", "index.php", "api.php=/v2/*"]), Ok(both));
        assert!(find(&["api.php=api/*"]).unwrap_err().contains("begin it with \"/\", as in api.php=/api/*"));
        assert!(find(&["index.php", "none.php"]).unwrap_err().starts_with("--worker none.php: "));
    }

    #[test]
    fn a_chosen_front_controller_must_exist() {
        let folder = folder(&["public/index.php", "public/app.php"]);
        let layout = detect(folder.path(), Some("/app.php")).unwrap();
        assert_eq!(layout.front_controller.as_deref(), Some("app.php"));
        let error = detect(folder.path(), Some("none.php")).unwrap_err();
        assert!(error.starts_with("--front-controller none.php: ") && error.contains("has no such file"), "{error}");
    }
}
