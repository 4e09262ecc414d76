//! Which script a path runs, and which part of the path is PATH_INFO.
//!
//! Only an existing regular file whose name ends with `.php` is ever run: `/upload/evil.jpg/x.php` has no such prefix.
//! No script below a folder that begins with a dot is run, except below `.well-known`, and no script whose name begins with
//! one. Paths are bytes, as file names are.
//!
//! An application may have another root directory. All paths are those inside of it; only the check whether a file exists
//! starts there. They come from [`GenerationPaths`](howdah_protocol::messages::generation_paths::GenerationPaths), where links are
//! resolved.

use crate::backends::script::files::{ScriptFileError, ScriptFiles};
use crate::file_access::WouldWait;
use howdah_protocol::messages::generation_paths::{FixedScript, TargetPaths};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A script to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    /// SCRIPT_NAME: the script's path below the document root, with a slash before it.
    pub name: Vec<u8>,
    /// SCRIPT_FILENAME.
    pub filename: Vec<u8>,
    /// PATH_INFO: the part of the path after the script; may be empty.
    pub path_info: Vec<u8>,
}

// === impl Script ===

impl Script {
    /// A script that the configuration names.
    pub fn fixed(script: &FixedScript) -> Script {
        Script {
            name: [b"/", script.name.as_bytes()].concat(),
            filename: script.filename.as_os_str().as_bytes().to_vec(),
            path_info: Vec::new(),
        }
    }
}

/// The result of looking for a path's script.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolved {
    /// A script.
    Script(Script),
    /// A folder with an index script, and a path without a slash at its end.
    Folder,
    /// No script.
    Nothing,
    /// The router's user may not look for this script.
    Forbidden(PathBuf),
}

/// Finds the script for a normalised path, among the files of the application.
///
/// # Errors
/// When the file system may have to wait.
pub fn resolve(target: &TargetPaths, files: &ScriptFiles, path: &[u8]) -> Result<Resolved, WouldWait> {
    let root = target.root.as_os_str().as_bytes();
    let root = &root[..root.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1)];
    let fixed = |script: &FixedScript| Resolved::Script(Script::fixed(script));
    if let Some(script) = &target.script {
        return Ok(fixed(script));
    }
    match existing(target, files, root, path) {
        Ok(Some((name, path_info))) => {
            let filename = [root, &name].concat();
            return Ok(Resolved::Script(Script { name, filename, path_info: path_info.to_vec() }));
        }
        Ok(None) => {}
        Err(ScriptFileError::Denied(path)) => return Ok(Resolved::Forbidden(path)),
        Err(ScriptFileError::WouldWait) => return Err(WouldWait),
    }
    let index = [root, path, b"/", target.index.as_bytes()].concat();
    if !path.ends_with(b"/") && !has_hidden_segment(path) {
        match files.is_file(&index) {
            Ok(true) => return Ok(Resolved::Folder),
            Ok(false) | Err(ScriptFileError::Denied(_)) => {}
            Err(ScriptFileError::WouldWait) => return Err(WouldWait),
        }
    }
    Ok(match &target.front_controller {
        Some(front) => fixed(front),
        None => Resolved::Nothing,
    })
}

/// Linux's `PATH_MAX`: no file has a longer path. A path with thousands of names like `/a.php` takes no longer than others.
const PATH_MAX: usize = 4096;

/// A script's name, and the part of the path after it.
type Found<'p> = (Vec<u8>, &'p [u8]);

/// How many names in a path are looked up: each but the last is a folder of such a name, which is rare, and a look-up may
/// pass through long links.
const MOST_CANDIDATES: usize = 16;

/// The script that the path names, if it exists.
fn existing<'p>(
    target: &TargetPaths,
    files: &ScriptFiles,
    root: &[u8],
    path: &'p [u8],
) -> Result<Option<Found<'p>>, ScriptFileError> {
    const PHP: &[u8] = b".php";
    if has_hidden_segment(path) {
        return Ok(None);
    }
    if path.ends_with(b"/") {
        let name = [path, target.index.as_bytes()].concat();
        if name.ends_with(PHP) && files.is_file(&[root, &name].concat())? {
            return Ok(Some((name, b"")));
        }
    }
    let (mut end, mut candidates) = (0, 0);
    while let Some(next) = path[end..].windows(PHP.len()).position(|window| window == PHP) {
        end += next + PHP.len();
        if root.len() + end >= PATH_MAX {
            break;
        }
        let (name, path_info) = path.split_at(end);
        if !matches!(path_info.first(), None | Some(b'/')) {
            continue;
        }
        candidates += 1;
        if candidates > MOST_CANDIDATES {
            break;
        }
        if files.is_file(&[root, name].concat())? {
            return Ok(Some((name.to_vec(), path_info)));
        }
    }
    Ok(None)
}

fn has_hidden_segment(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/')
        .skip(1)
        .enumerate()
        .any(|(n, segment)| segment.starts_with(b".") && !(n == 0 && segment == b".well-known"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn only_existing_php_files_are_run() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let files: [&[u8]; _] = [
            b"index.php",
            b"a.php",
            b"upload/evil.jpg",
            b"sub/index.php",
            b".git/x.php",
            b"b.php/index.html",
            b"\xff/\n.php",
        ];
        for file in files {
            let file = root.join(OsStr::from_bytes(file));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let target = |front: Option<&str>| TargetPaths {
            name: None,
            root: root.into(),
            script: None,
            index: "index.php".into(),
            front_controller: front
                .map(|front| FixedScript { name: front.into(), filename: "/elsewhere/front.php".into() }),
        };
        let files = ScriptFiles::below(None);
        type Expected = Option<(&'static [u8], &'static [u8])>;
        let table: [(&[u8], Expected); _] = [
            (b"/", Some((b"/index.php", b""))),
            (b"/a.php", Some((b"/a.php", b""))),
            (b"/a.php/", Some((b"/a.php", b"/"))),
            (b"/a.php/x/y.php", Some((b"/a.php", b"/x/y.php"))),
            (b"/a.php/\xff", Some((b"/a.php", b"/\xff"))),
            (b"/\xff/\n.php", Some((b"/\xff/\n.php", b""))),
            (b"/sub/", Some((b"/sub/index.php", b""))),
            (b"/upload/evil.jpg/x.php", None),
            (b"/.git/x.php", None),
            (b"/missing.php", None),
            (b"/a.phpx", None),
            (b"/b.php", None),
        ];
        for (path, expected) in table {
            let found = match resolve(&target(None), &files, path) {
                Ok(Resolved::Script(script)) => Some((script.name, script.path_info)),
                _ => None,
            };
            assert_eq!(found, expected.map(|(name, info)| (name.to_vec(), info.to_vec())), "{}", path.escape_ascii());
        }
        assert_eq!(resolve(&target(None), &files, b"/sub"), Ok(Resolved::Folder));
        let Ok(Resolved::Script(front)) = resolve(&target(Some("index.php")), &files, b"/some/\xff") else {
            panic!("no script")
        };
        assert_eq!((&*front.name, &*front.path_info), (&b"/index.php"[..], &b""[..]));
        assert_eq!(front.filename, b"/elsewhere/front.php");
    }

    #[test]
    fn folders_with_names_of_scripts_are_few() {
        let folder = tempfile::tempdir().unwrap();
        let target = TargetPaths {
            name: None,
            root: folder.path().into(),
            script: None,
            index: "index.php".into(),
            front_controller: None,
        };
        for (folders, is_found) in [(MOST_CANDIDATES - 1, true), (MOST_CANDIDATES, false)] {
            let parent = folder.path().join("a.php/".repeat(folders));
            std::fs::create_dir_all(&parent).unwrap();
            std::fs::write(parent.join("b.php"), "").unwrap();
            let path = format!("/{}b.php", "a.php/".repeat(folders));
            let found = resolve(&target, &ScriptFiles::below(None), path.as_bytes());
            assert_eq!(matches!(found, Ok(Resolved::Script(_))), is_found, "{path}");
        }
    }

    #[test]
    fn below_a_rootfs_paths_are_what_the_application_sees() {
        let folder = tempfile::tempdir().unwrap();
        let rootfs = folder.path();
        std::fs::create_dir_all(rootfs.join("srv/releases/1")).unwrap();
        std::fs::write(rootfs.join("srv/releases/1/a.php"), "").unwrap();
        std::os::unix::fs::symlink("/srv/releases/1", rootfs.join("srv/current")).unwrap();
        let target = TargetPaths {
            name: None,
            root: "/srv/current".into(),
            script: None,
            index: "index.php".into(),
            front_controller: None,
        };
        let Ok(Resolved::Script(script)) = resolve(&target, &ScriptFiles::below(Some(rootfs)), b"/a.php/x") else {
            panic!("no script")
        };
        assert_eq!((&*script.filename, &*script.path_info), (&b"/srv/current/a.php"[..], &b"/x"[..]));
        assert_eq!(resolve(&target, &ScriptFiles::below(Some(rootfs)), b"/b.php"), Ok(Resolved::Nothing));
        assert_eq!(resolve(&target, &ScriptFiles::below(None), b"/a.php"), Ok(Resolved::Nothing));
    }
}
