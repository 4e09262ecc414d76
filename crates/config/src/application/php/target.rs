//! `targets`: the scripts that an application runs. An application has one set of `root`, `script`, `index` and
//! `front_controller`, or several sets with names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::Error;
use crate::read::node::{Node, Object, Options};

pub(crate) const OPTIONS: Options =
    Options { known: &["root", "script", "index", "front_controller"], unsupported: &[] };

const DEFAULT_INDEX: &str = "index.php";

/// The targets of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// The options are in the application itself.
    Single(ScriptTarget),
    /// `targets`: by name. There is at least one.
    Named(BTreeMap<String, ScriptTarget>),
}

/// The scripts that run for requests.
///
/// `script`, `index` and `front_controller` are relative to the root, without `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptTarget {
    /// The folder of the scripts, an absolute path.
    pub root: PathBuf,
    /// The script that runs for every request.
    pub script: Option<String>,
    /// The script that runs for a folder. Default: `index.php`.
    pub index: String,
    /// The script that runs for paths that are not scripts. Always `None` if there is a `script`.
    pub front_controller: Option<String>,
}

// === impl Targets ===

impl Targets {
    /// Reads the options of an application.
    pub(crate) fn read(application: &Object<'_>) -> Result<Self, Error> {
        let Some(targets) = application.get("targets") else {
            return ScriptTarget::read(application).map(Self::Single);
        };
        reject_beside_targets(application, &OPTIONS)?;
        let named: BTreeMap<_, _> = targets
            .named()?
            .map(|(name, node)| Ok((name.to_owned(), ScriptTarget::read(&node.object(&OPTIONS)?)?)))
            .collect::<Result<_, _>>()?;
        if named.is_empty() {
            return Err(no_target(&targets));
        }
        Ok(Self::Named(named))
    }
}

// === impl ScriptTarget ===

impl ScriptTarget {
    /// Reads the options of an object that may have further ones.
    pub(crate) fn read(object: &Object<'_>) -> Result<Self, Error> {
        let root = object.require("root", "the absolute path of the folder of the scripts")?.absolute_path()?;
        let script = object.read("script", read_script)?;
        if script.is_some()
            && let Some(front_controller) = object.get("front_controller")
        {
            return Err(front_controller.error("\"script\" runs for every request already; remove one of them"));
        }
        Ok(Self {
            root,
            script,
            index: object.read("index", read_script)?.unwrap_or_else(|| DEFAULT_INDEX.to_owned()),
            front_controller: object.read("front_controller", read_script)?,
        })
    }
}

/// Rejects the options of a target beside `targets`.
pub(crate) fn reject_beside_targets(application: &Object<'_>, options: &Options) -> Result<(), Error> {
    match options.known.iter().find_map(|key| application.get(key)) {
        Some(other) => Err(other.error("this option cannot be combined with \"targets\"; move it into each target")),
        None => Ok(()),
    }
}

/// The error of `targets` without a target.
pub(crate) fn no_target(targets: &Node<'_>) -> Error {
    targets.error("the object is empty; add a target, or write \"root\" instead of \"targets\"")
}

fn read_script(node: &Node<'_>) -> Result<String, Error> {
    node.path_below("the root")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PhpApplication;
    use crate::application::php::parsed;

    fn parse(options: &str) -> Result<PhpApplication, String> {
        parsed(&format!(r#"{{"type": "php", {options}}}"#))
    }

    fn target(script: Option<&str>, index: &str, front_controller: Option<&str>) -> ScriptTarget {
        ScriptTarget {
            root: "/srv/shop".into(),
            script: script.map(str::to_owned),
            index: index.to_owned(),
            front_controller: front_controller.map(str::to_owned),
        }
    }

    #[test]
    fn an_application_has_one_target_or_named_ones() {
        let cases = [
            (r#""root": "/srv/shop/""#, target(None, "index.php", None)),
            (r#""root": "/srv/shop", "script": "/app.php""#, target(Some("app.php"), "index.php", None)),
            (r#""root": "/srv/shop", "index": "x.php""#, target(None, "x.php", None)),
            (r#""root": "/srv/shop", "front_controller": "a/b.php""#, target(None, "index.php", Some("a/b.php"))),
        ];
        for (options, expected) in cases {
            let single = parse(options).expect(options);
            assert_eq!(single.target(None), Some(&expected));
            assert_eq!(single.target(Some("a")), None);
            assert_eq!(single.targets().collect::<Vec<_>>(), [(None, &expected)]);

            let named = parse(&format!(r#""targets": {{"b": {{{options}}}, "a": {{{options}}}}}"#)).expect(options);
            assert_eq!(named.target(None), None);
            assert_eq!(named.target(Some("a")), Some(&expected));
            assert_eq!(named.target(Some("c")), None);
            assert_eq!(named.targets().collect::<Vec<_>>(), [(Some("a"), &expected), (Some("b"), &expected)]);
        }
    }

    #[test]
    fn an_invalid_target_is_rejected() {
        let cases = [
            (r#""index": "x.php""#, ": \"root\" is missing; add the absolute path of the folder of the scripts"),
            (r#""root": "srv/shp""#, "/root: \"srv/shp\" is not an absolute path; begin it with \"/\""),
            (
                r#""root": "/srv", "targets": {}"#,
                "/root: this option cannot be combined with \"targets\"; move it into each target",
            ),
            (
                r#""targets": {}"#,
                "/targets: the object is empty; add a target, or write \"root\" instead of \"targets\"",
            ),
            (
                r#""targets": {"a": {}}"#,
                "/targets/a: \"root\" is missing; add the absolute path of the folder of the scripts",
            ),
            (
                r#""targets": {"a": {"root": "/srv", "processes": 1}}"#,
                "/targets/a/processes: there is no such option; remove it",
            ),
            (
                r#""root": "/srv", "script": "a.php", "front_controller": "a.php""#,
                "/front_controller: \"script\" runs for every request already; remove one of them",
            ),
            (
                r#""root": "/srv", "script": "../a.php""#,
                "/script: \"../a.php\" must be a file below the root, without \"..\"",
            ),
            (r#""root": "/srv", "index": """#, "/index: the string is empty; write a value or remove the option"),
            (r#""root": "/srv", "script": "/""#, "/script: \"/\" must be a file below the root, without \"..\""),
        ];
        for (options, expected) in cases {
            assert_eq!(parse(options), Err(format!("applications/x{expected}")), "{options}");
        }
    }
}
