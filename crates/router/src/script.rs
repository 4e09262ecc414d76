//! Which script a path runs, and what of the path is PATH_INFO.
//!
//! Only an existing regular file whose name ends with `.php` is ever run: `/upload/evil.jpg/x.php` has no such prefix.
//! Nothing below a folder or file that begins with a dot is, except `.well-known`.

use howdah_config::Target;
use std::path::PathBuf;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    /// SCRIPT_NAME: the script's path below the document root, with a slash before it.
    pub name: String,
    /// SCRIPT_FILENAME.
    pub filename: String,
    /// PATH_INFO: what follows the script in the path; empty for nothing.
    pub path_info: String,
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolved {
    /// A script.
    Script(Script),
    /// A folder with an index script, asked for without a slash behind it.
    Folder,
    /// No script.
    Nothing,
    /// A script that may be there, but the router's user can't look.
    Forbidden(PathBuf),
}

/// Finds the script for a normalised path.
pub fn resolve(target: &Target, path: &str) -> Resolved {
    let root = target.root.to_string_lossy();
    let root = root.trim_end_matches('/');
    let script = |name: &str, path_info: &str| {
        Resolved::Script(Script { name: name.into(), filename: format!("{root}{name}"), path_info: path_info.into() })
    };
    if let Some(fixed) = &target.script {
        return script(&format!("/{fixed}"), "");
    }
    match existing(target, root, path) {
        Ok(Some((name, path_info))) => return script(&name, &path_info),
        Ok(None) => {}
        Err(denied) => return Resolved::Forbidden(denied),
    }
    let index = format!("{root}{path}/{}", target.index);
    if !path.ends_with('/') && !has_hidden_segment(path) && is_file(&index) == Ok(true) {
        return Resolved::Folder;
    }
    match &target.front_controller {
        Some(front) => script(&format!("/{front}"), ""),
        None => Resolved::Nothing,
    }
}

fn existing(target: &Target, root: &str, path: &str) -> Result<Option<(String, String)>, PathBuf> {
    if has_hidden_segment(path) {
        return Ok(None);
    }
    if path.ends_with('/') {
        let name = format!("{path}{}", target.index);
        if ends_with_php(&name) && is_file(&format!("{root}{name}"))? {
            return Ok(Some((name, String::new())));
        }
    }
    let mut end = 0;
    while let Some(next) = path[end..].find(".php") {
        end += next + ".php".len();
        if matches!(path.as_bytes().get(end), None | Some(b'/')) && is_file(&format!("{root}{}", &path[..end]))? {
            return Ok(Some((path[..end].into(), path[end..].into())));
        }
    }
    Ok(None)
}

fn ends_with_php(name: &str) -> bool {
    name.ends_with(".php")
}

fn has_hidden_segment(path: &str) -> bool {
    path.split('/')
        .skip(1)
        .enumerate()
        .any(|(n, segment)| segment.starts_with('.') && !(n == 0 && segment == ".well-known"))
}

fn is_file(path: &str) -> Result<bool, PathBuf> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(path.into()),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_php_files_are_run() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for file in ["index.php", "a.php", "upload/evil.jpg", "sub/index.php", ".git/x.php", "b.php/index.html"] {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let target = |front: Option<&str>| Target {
            root: root.into(),
            script: None,
            index: "index.php".into(),
            front_controller: front.map(Into::into),
        };
        let table = [
            ("/", Some(("/index.php", ""))),
            ("/a.php", Some(("/a.php", ""))),
            ("/a.php/", Some(("/a.php", "/"))),
            ("/a.php/x/y.php", Some(("/a.php", "/x/y.php"))),
            ("/sub/", Some(("/sub/index.php", ""))),
            ("/upload/evil.jpg/x.php", None),
            ("/.git/x.php", None),
            ("/missing.php", None),
            ("/a.phpx", None),
            ("/b.php", None),
        ];
        for (path, expected) in table {
            let found = match resolve(&target(None), path) {
                Resolved::Script(script) => Some((script.name, script.path_info)),
                _ => None,
            };
            assert_eq!(found, expected.map(|(name, info)| (name.to_owned(), info.to_owned())), "{path}");
        }
        assert_eq!(resolve(&target(None), "/sub"), Resolved::Folder);
        let Resolved::Script(front) = resolve(&target(Some("index.php")), "/some/article") else { panic!("no script") };
        assert_eq!((front.name.as_str(), front.path_info.as_str()), ("/index.php", ""));
    }
}
