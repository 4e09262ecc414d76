//! `send_file`: folders whose files a script may have howdah send, by a header of its response.

use std::path::{Component, Path, PathBuf};

use crate::error::{Error, quoted};
use crate::read::node::Node;

/// The folders. Without one, the headers mean nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendFile {
    /// The longest prefix comes first.
    folders: Vec<SendFolder>,
}

/// A folder, and the beginning of the paths that `X-Accel-Redirect` has for its files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SendFolder {
    /// Begins and ends with a slash, and has no `.`, `..` and no doubled slash.
    prefix: String,
    /// An absolute path, and not `/`.
    folder: PathBuf,
}

/// A file below one of the folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFile<'a> {
    /// The folder, outside of which nothing is sent.
    pub folder: &'a Path,
    /// The absolute path, which begins with the folder.
    pub path: String,
}

// === impl SendFile ===

impl SendFile {
    /// Reads an object of folders by prefix.
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let mut folders = Vec::new();
        for (prefix, node) in node.named()? {
            if !is_prefix(prefix) {
                return Err(node.error(format_args!(
                    "{} is not the beginning of a path; write one such as \"/protected/\", with a slash at both ends",
                    quoted(prefix)
                )));
            }
            let folder = node.absolute_path()?;
            if folder == Path::new("/") {
                return Err(node.error("a script could send every file of the machine; name a folder"));
            }
            if folder.components().any(|part| part == Component::ParentDir) {
                return Err(node.error("the path of the folder has \"..\"; write it without"));
            }
            folders.push(SendFolder { prefix: prefix.to_owned(), folder });
        }
        folders.sort_by_key(|folder| std::cmp::Reverse(folder.prefix.len()));
        Ok(Self { folders })
    }

    /// Whether there is no folder.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// The prefixes and folders.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.folders.iter().map(|folder| (folder.prefix.as_str(), folder.folder.as_path()))
    }

    /// `X-Accel-Redirect`: the file with this path, which is decoded and has no dot segments.
    pub fn by_path(&self, path: &str) -> Option<SentFile<'_>> {
        let below = |folder: &SendFolder| path.strip_prefix(&*folder.prefix).map(|rest| rest.to_owned());
        self.folders.iter().find_map(|folder| folder.file(&below(folder)?))
    }

    /// `X-Sendfile`: the file with this path in the file system.
    pub fn by_file(&self, path: &str) -> Option<SentFile<'_>> {
        let is_below = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.starts_with('/') || !Path::new(path).components().all(is_below) {
            return None;
        }
        let below =
            |folder: &SendFolder| Path::new(path).strip_prefix(&folder.folder).ok()?.to_str().map(str::to_owned);
        self.folders.iter().find_map(|folder| folder.file(&below(folder)?))
    }
}

// === impl SendFolder ===

impl SendFolder {
    fn file(&self, below: &str) -> Option<SentFile<'_>> {
        let folder = self.folder.to_str()?;
        Some(SentFile { folder: &self.folder, path: format!("{folder}/{below}") })
    }
}

fn is_prefix(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('/') else { return false };
    inner.is_empty()
        || inner.strip_suffix('/').is_some_and(|names| names.split('/').all(|name| !matches!(name, "" | "." | "..")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn read(json: &str) -> Result<SendFile, String> {
        let text = format!(r#"{{"applications": {{"x": {{"type": "php", "root": "/srv", "send_file": {json}}}}}}}"#);
        let mut configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        let application = configuration.applications.remove("x").expect("application");
        Ok(application.as_php().expect("a PHP application").send_file.clone())
    }

    #[test]
    fn the_longest_prefix_names_the_folder() {
        let folders = read(r#"{"/": "/srv/all", "/a/": "/srv/a//", "/a/b/": "/data/b"}"#).expect("folders");
        let file = |path| folders.by_path(path).map(|file| file.path);
        for (path, expected) in [
            ("/x/y", Some("/srv/all/x/y")),
            ("/a/x", Some("/srv/a/x")),
            ("/a/b/x", Some("/data/b/x")),
            ("/a", Some("/srv/all/a")),
            ("/ab/x", Some("/srv/all/ab/x")),
        ] {
            assert_eq!(file(path).as_deref(), expected, "{path}");
        }
        assert_eq!(folders.by_path("/a/x").expect("file").folder, Path::new("/srv/a"));
    }

    #[test]
    fn a_file_is_below_a_folder() {
        let folders = read(r#"{"/a/": "/srv/a", "/b/": "/data"}"#).expect("folders");
        for (path, expected) in [
            ("/srv/a/x y", Some("/srv/a/x y")),
            ("/data/b/x", Some("/data/b/x")),
            ("/data//x", Some("/data/x")),
            ("/srv/ab/x", None),
            ("/srv/a/../x", None),
            ("/data/../srv/x", None),
            ("data/x", None),
            ("/etc/passwd", None),
            ("", None),
        ] {
            assert_eq!(folders.by_file(path).map(|file| file.path).as_deref(), expected, "{path}");
        }
        assert_eq!(SendFile::default().by_path("/a"), None);
    }

    #[test]
    fn a_wrong_folder_is_named() {
        for (json, expected) in [
            (r#"{"protected": "/x"}"#, "/protected: \"protected\" is not the beginning of a path"),
            (r#"{"/a": "/x"}"#, "/%2Fa: \"/a\" is not the beginning of a path; write one such as \"/protected/\""),
            (r#"{"/a/../": "/x"}"#, "/%2Fa%2F..%2F: \"/a/../\" is not the beginning of a path"),
            (r#"{"/a//": "/x"}"#, "/%2Fa%2F%2F: \"/a//\" is not the beginning of a path"),
            (r#"{"/a/": "x"}"#, "/%2Fa%2F: \"x\" is not an absolute path"),
            (r#"{"/a/": "//"}"#, "/%2Fa%2F: a script could send every file of the machine; name a folder"),
            (r#"{"/a/": "/x/../y"}"#, "/%2Fa%2F: the path of the folder has \"..\"; write it without"),
            (r#""/x""#, ": expected an object, found the string \"/x\""),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.starts_with(&format!("applications/x/send_file{expected}")), "{error}");
        }
    }
}
