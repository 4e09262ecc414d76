//! The script that a web server in front names: a path below the application's root, which is then resolved like the path
//! of any request. No file outside of the root is ever run, nor one that is not a script.
//!
//! The web server may see the same files elsewhere, as in a container: then its own DOCUMENT_ROOT is the beginning of
//! SCRIPT_FILENAME, and stands for the application's root.
//!
//! Apache sends `proxy:fcgi://HOST/PATH`, and leaves the split of PATH into a script and its PATH_INFO to the server, as
//! PHP-FPM's `cgi.fix_pathinfo` does.

use crate::backends::script::Script;
use crate::net::front::Front;
use crate::report::OncePerMinute;
use crate::request::path::resolve_segments;
use crate::response::failure::Failure;
use howdah_protocol::messages::generation_paths::TargetPaths;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;

/// The foreign scripts that were logged.
static FOREIGN_SCRIPTS: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);
/// The applications whose web servers want to change settings.
static SETTINGS: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

/// How Apache begins a SCRIPT_FILENAME; a host and a path follow.
const APACHES: [&[u8]; 2] = [b"proxy:fcgi://", b"proxy:balancer://"];
/// The longest path in a log line, in bytes.
const LOGGED_BYTES: usize = 512;

/// The path below the root of the script that the web server names, without dot segments; `None` if it names none.
///
/// # Errors
/// 403 for a script that is not below the root.
pub fn path_of(front: &Front, application: &str, target: &TargetPaths) -> Result<Option<Vec<u8>>, Failure> {
    if front.changes_settings() && SETTINGS.is_due(application) {
        tracing::warn!(
            root = %target.root.display(),
            "the web server sends PHP_VALUE or PHP_ADMIN_VALUE, which are ignored; write the settings into \"options\" of the \
             application"
        );
    }
    let Some(named) = front.get("SCRIPT_FILENAME") else { return Ok(None) };
    let roots = [Some(target.root.as_os_str().as_bytes()), front.get("DOCUMENT_ROOT").map(|root| &**root)];
    let path = below(named, roots.into_iter().flatten());
    if path.is_none() {
        if FOREIGN_SCRIPTS.is_due((application, named)) {
            let script = String::from_utf8_lossy(&named[..named.len().min(LOGGED_BYTES)]);
            tracing::warn!(
                script = &*script, root = %target.root.display(),
                "the web server names a script that is neither below the application's root nor below its own DOCUMENT_ROOT: \
                 answered 403; check its SCRIPT_FILENAME, and \"pass\" of the listener"
            );
        }
        return Err(Failure::Forbidden);
    }
    Ok(path)
}

/// Takes over how the web server names the script to clients, and the path after it, if this is the script of `path`, and not
/// the front controller in its place.
pub fn adopt_names(front: &Front, path: &[u8], script: &mut Script) {
    let is_index = path.ends_with(b"/") && script.name.starts_with(path);
    if !is_index && !path.starts_with(&script.name) {
        return;
    }
    if let Some(name) = front.get("SCRIPT_NAME") {
        let name = name.strip_suffix(&*script.path_info).unwrap_or(name);
        let file = Path::new(OsStr::from_bytes(&script.filename)).file_name().map(OsStr::as_bytes);
        // Of an application below a path, such as `/blog`.
        if name.starts_with(b"/") && name.rsplit(|byte| *byte == b'/').next() == file {
            script.name = name.to_vec();
        }
    }
    if script.path_info.is_empty()
        && let Some(path_info) = front.get("PATH_INFO").filter(|path_info| path_info.starts_with(b"/"))
    {
        script.path_info = path_info.to_vec();
    }
}

/// The part of a file's path after one of these folders, with a slash at its beginning.
fn below<'r>(file: &[u8], roots: impl Iterator<Item = &'r [u8]>) -> Option<Vec<u8>> {
    let file = without_apaches_prefix(file);
    // The name of a stream, such as `phar:///…`, is no path.
    let file = resolve_segments(file).ok().filter(|_| file.starts_with(b"/"))?;
    for root in roots.filter(|root| root.starts_with(b"/")) {
        let mut root = resolve_segments(root).ok()?;
        while root.last() == Some(&b'/') {
            root.pop();
        }
        if let Some(path) = file.strip_prefix(&*root)
            && path.starts_with(b"/")
        {
            return Some(path.to_vec());
        }
    }
    None
}

fn without_apaches_prefix(file: &[u8]) -> &[u8] {
    let Some(rest) = APACHES.iter().find_map(|prefix| file.strip_prefix(*prefix)) else { return file };
    let path = &rest[rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len())..];
    // A RewriteRule adds the query.
    &path[..path.iter().position(|byte| *byte == b'?').unwrap_or(path.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn front(variables: &[(&'static str, &'static str)]) -> Front {
        let mut front = Front::default();
        for (name, value) in variables {
            front.set(Bytes::from_static(name.as_bytes()), Bytes::from_static(value.as_bytes()));
        }
        front
    }

    fn target() -> TargetPaths {
        TargetPaths {
            name: None,
            root: "/srv/shop".into(),
            script: None,
            index: "index.php".into(),
            front_controller: None,
        }
    }

    #[test]
    fn a_script_is_below_the_root_or_below_the_web_servers_own() {
        let table = [
            ("/srv/shop/a.php", "", Some("/a.php")),
            ("/srv/shop/a.php/x/y", "", Some("/a.php/x/y")),
            ("/srv/shop//./b/../a.php", "", Some("/a.php")),
            ("/srv/shop/", "", Some("/")),
            ("/var/www/html/a.php", "/var/www/html/", Some("/a.php")),
            ("/var/www/html/a.php", "/var/www/other/../html", Some("/a.php")),
            ("proxy:fcgi://127.0.0.1:9000/srv/shop/a.php/x?q=1", "", Some("/a.php/x")),
            ("proxy:balancer://pool/srv/shop/a.php", "", Some("/a.php")),
            ("/srv/shop", "", None),
            ("/srv/shopping/a.php", "", None),
            ("/srv/shop/../other/a.php", "", None),
            ("/srv/shop/../../../etc/passwd", "", None),
            ("/etc/passwd", "", None),
            ("/etc/a.php", "etc", None),
            ("a.php", "", None),
            ("phar:///srv/shop/a.phar/x.php", "", None),
            ("http://localhost/srv/shop/a.php", "", None),
            ("proxy:fcgi://127.0.0.1:9000", "", None),
            ("proxy:fcgi://127.0.0.1:9000/etc/passwd", "", None),
            ("/a.php", "/..", None),
        ];
        for (filename, root, expected) in table {
            let front = front(&[("SCRIPT_FILENAME", filename), ("DOCUMENT_ROOT", root)]);
            let path = path_of(&front, "shop", &target()).ok().flatten();
            assert_eq!(path.as_deref(), expected.map(str::as_bytes), "{filename} {root}");
        }
        assert!(matches!(path_of(&front(&[]), "shop", &target()), Ok(None)));
    }

    #[test]
    fn the_names_of_another_script_are_not_taken_over() {
        let table = [
            ("/blog/index.php", "/x", "", "/blog/index.php", "/x"),
            ("/blog/index.php/y", "/x", "/y", "/blog/index.php", "/y"),
            ("/other.php", "", "", "/index.php", ""),
            ("index.php", "x", "", "/index.php", ""),
            ("/xindex.php", "", "", "/index.php", ""),
        ];
        for (script_name, path_info, own, name, expected) in table {
            let (filename, own_name) = (b"/srv/shop/index.php".to_vec(), b"/index.php".to_vec());
            let mut script = Script { name: own_name, filename, path_info: own.as_bytes().to_vec() };
            let front = front(&[("SCRIPT_NAME", script_name), ("PATH_INFO", path_info)]);
            adopt_names(&front, b"/missing/index.php", &mut script);
            assert_eq!((&*script.name, &*script.path_info), (&b"/index.php"[..], own.as_bytes()), "a front controller");
            adopt_names(&front, [b"/index.php", own.as_bytes()].concat().as_slice(), &mut script);
            let got = (&*script.name, &*script.path_info);
            assert_eq!(got, (name.as_bytes(), expected.as_bytes()), "{script_name}");
        }
    }
}
