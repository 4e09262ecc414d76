//! How a folder wants to be served: which folder of it is public, and which script answers for what is not a file.

use std::path::{Path, PathBuf};

/// Public folders of applications that keep the rest of their code outside, in the order in which they are tried.
const PUBLIC_FOLDERS: [&str; 2] = ["public", "web"];
const FRONT_CONTROLLER: &str = "index.php";

/// What makes an application known: a path below the folder, and a name.
const KNOWN: [(&str, &str); 13] = [
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

/// How a folder is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// The folder whose files are public.
    pub root: PathBuf,
    /// The script below it that answers for what is neither a file nor a script.
    pub front_controller: Option<String>,
    /// What it is, in words.
    pub description: String,
}

/// Looks at a folder. `front_controller` is what the user chose instead of `index.php`.
///
/// # Errors
/// When the chosen front controller does not exist.
pub fn recognise(folder: &Path, front_controller: Option<&str>) -> Result<Recognised, String> {
    let public = PUBLIC_FOLDERS.iter().map(|name| folder.join(name)).find(|path| path.join(FRONT_CONTROLLER).is_file());
    let root = public.unwrap_or_else(|| folder.to_owned());
    let front_controller = match front_controller {
        Some(chosen) => {
            let chosen = chosen.trim_start_matches('/');
            if !root.join(chosen).is_file() {
                return Err(format!(
                    "--front-controller {chosen}: there is no such file in {}; write its path from there",
                    root.display()
                ));
            }
            Some(chosen.to_owned())
        }
        None => root.join(FRONT_CONTROLLER).is_file().then(|| FRONT_CONTROLLER.to_owned()),
    };
    let name = KNOWN.iter().find(|(sign, _)| folder.join(sign).exists()).map(|(_, name)| *name);
    let description = match (&front_controller, name) {
        (Some(script), name) => {
            let name = name.unwrap_or("a PHP application");
            format!("{name} in {}; {script} answers for what is not a file", root.display())
        }
        (None, name) => format!("{} in {}", name.unwrap_or("a folder of scripts and files"), root.display()),
    };
    Ok(Recognised { root, front_controller, description })
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
    fn a_folder_is_served_as_it_wants_to_be() {
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
            let recognised = recognise(folder.path(), None).unwrap();
            assert_eq!(recognised.root, folder.path().join(root), "{files:?}");
            assert_eq!(recognised.front_controller.as_deref(), front_controller, "{files:?}");
            assert!(recognised.description.starts_with(name), "{}", recognised.description);
        }
    }

    #[test]
    fn a_chosen_front_controller_must_be_there() {
        let folder = folder(&["public/index.php", "public/app.php"]);
        let recognised = recognise(folder.path(), Some("/app.php")).unwrap();
        assert_eq!(recognised.front_controller.as_deref(), Some("app.php"));
        let error = recognise(folder.path(), Some("none.php")).unwrap_err();
        assert!(error.starts_with("--front-controller none.php: there is no such file in "), "{error}");
    }
}
