//! All manifests: those inside of the executable, and those of a folder of the user, which replace the former by name.
//!
//! Fails with the path of the file that is wrong.

use super::manifest::Manifest;
use include_dir::{Dir, include_dir};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A stack's manifest and templates.
#[derive(Debug)]
pub struct Definition {
    /// The name of its folder.
    pub name: String,
    /// Its manifest.
    pub manifest: Manifest,
    /// The texts of its other files, by their names.
    pub templates: BTreeMap<String, String>,
}

/// All stacks by their names.
#[derive(Clone, Debug)]
pub struct Library {
    definitions: BTreeMap<String, Arc<Definition>>,
}

const MANIFEST: &str = "manifest.json";
static EMBEDDED: Dir = include_dir!("$CARGO_MANIFEST_DIR/stacks");

// === impl Library ===

impl Library {
    /// Reads the stacks of the executable, and those of `folder`.
    ///
    /// # Errors
    /// A manifest or a folder cannot be read. The message names it.
    pub fn load(folder: Option<&Path>) -> Result<Library, String> {
        let mut definitions = BTreeMap::new();
        for stack in EMBEDDED.dirs() {
            let name = stack.path().to_string_lossy().into_owned();
            let files = stack.files().filter_map(|file| {
                Some((file.path().file_name()?.to_str()?.to_owned(), file.contents_utf8()?.to_owned()))
            });
            let definition = Definition::new(&name, files.collect(), &format!("the stack {name}"))?;
            definitions.insert(name, Arc::new(definition));
        }
        for entry in folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten() {
            if entry.path().join(MANIFEST).is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let files = read_files(&entry.path())?;
                let definition = Definition::new(&name, files, &entry.path().display().to_string())?;
                definitions.insert(name, Arc::new(definition));
            }
        }
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("--stacks-dir {}: no such folder", folder.display()));
        }
        Ok(Library { definitions })
    }

    /// The stack of this name.
    ///
    /// # Errors
    /// There is no such stack; the message names all.
    pub fn get(&self, name: &str) -> Result<Arc<Definition>, String> {
        let names = || self.definitions.keys().cloned().collect::<Vec<_>>().join(", ");
        self.definitions.get(name).cloned().ok_or_else(|| format!("no stack {name:?}; there are {}", names()))
    }

    /// All stacks.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.definitions.values()
    }
}

fn read_files(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let describe = |path: &Path, error: std::io::Error| crate::reason::at(path, &error);
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|error| describe(folder, error))?.flatten() {
        if entry.path().is_file() {
            let text = fs::read_to_string(entry.path()).map_err(|error| describe(&entry.path(), error))?;
            files.insert(entry.file_name().to_string_lossy().into_owned(), text);
        }
    }
    Ok(files)
}

// === impl Definition ===

impl Definition {
    /// Reads a manifest, and checks that its templates exist.
    ///
    /// # Errors
    /// The message begins with `place`.
    pub fn new(name: &str, mut files: BTreeMap<String, String>, place: &str) -> Result<Definition, String> {
        let text = files.remove(MANIFEST).ok_or_else(|| format!("{place}: {MANIFEST} is missing"))?;
        let mut json = serde_json::Deserializer::from_str(&text);
        let manifest: Manifest = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| format!("{place}/{MANIFEST}: {}: {}", error.path(), error.inner()))?;
        manifest.read_roles().map_err(|error| format!("{place}/{MANIFEST}: {error}"))?;
        for file in &manifest.files {
            if !files.contains_key(&file.template) {
                return Err(format!("{place}/{MANIFEST}: files: the template {} is missing", file.template));
            }
        }
        Ok(Definition { name: name.to_owned(), manifest, templates: files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_stacks_are_complete() {
        let library = Library::load(None).unwrap();
        let names: Vec<_> = library.all().map(|definition| definition.name.as_str()).collect();
        for name in ["howdah", "howdah-worker", "nginx-fpm", "php-s", "unit", "swoole", "frankenphp"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(library.get("ngnix-fpm").unwrap_err().contains("nginx-fpm"));
    }

    #[test]
    fn a_folder_of_the_user_adds_and_replaces_stacks() {
        let folder = tempfile::tempdir().unwrap();
        for (name, manifest) in
            [("mine", r#"{"label": "mine", "processes": []}"#), ("php-s", r#"{"label": "another", "processes": []}"#)]
        {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join(MANIFEST), manifest).unwrap();
        }
        let library = Library::load(Some(folder.path())).unwrap();
        assert_eq!(library.get("mine").unwrap().manifest.label, "mine");
        assert_eq!(library.get("php-s").unwrap().manifest.label, "another");
    }

    #[test]
    fn a_wrong_manifest_is_rejected_with_its_path() {
        for (manifest, reason) in [
            (r#"{"label": "x"}"#, "processes"),
            (r#"{"label": "x", "processes": [{"name": "x", "comand": []}]}"#, "processes[0]"),
            (
                r#"{"label": "x", "processes": [], "files": [{"path": "a", "template": "b"}]}"#,
                "the template b is missing",
            ),
        ] {
            let files = BTreeMap::from([(MANIFEST.to_owned(), manifest.to_owned())]);
            let error = Definition::new("x", files, "here").unwrap_err();
            assert!(error.starts_with("here/manifest.json") && error.contains(reason), "{error}");
        }
        assert!(Library::load(Some(Path::new("/does-not-exist"))).unwrap_err().contains("/does-not-exist"));
    }
}
