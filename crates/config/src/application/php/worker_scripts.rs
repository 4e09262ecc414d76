//! `worker` as a list: several worker scripts in one application, each with workers of its own. A request goes to the first
//! script whose `match` has its path. Otherwise its script is found as in classic mode: if that is one of the list, it
//! runs there, and else in classic mode. These are the rules of FrankenPHP's `worker` directive.

use crate::application::php::processes::Processes;
use crate::error::Error;
use crate::matching::pattern::{PatternSubject, Patterns};
use crate::read::node::{Node, Object, Options};
use crate::read::scope::Scope;

pub(crate) const OPTIONS: Options = Options { known: &["script", "match", "processes"], unsupported: &[] };

/// Each script has processes and a channel of its own.
pub const MAX_WORKER_SCRIPTS: usize = 16;

/// One of several worker scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedScript {
    /// The script, relative to the root, without `..`.
    pub script: String,
    /// `match`: the patterns of its requests' paths, as they are written. `None`: the requests that would run this script in
    /// classic mode.
    pub patterns: Option<Vec<String>>,
    /// The number of its workers; `None`: as for the application's other requests.
    pub processes: Option<Processes>,
}

/// Reads the list of an application; empty if `worker` is no list.
pub(crate) fn read(application: &Object<'_>, scope: &Scope<'_>) -> Result<Vec<MatchedScript>, Error> {
    let Some(node) = application.get("worker").filter(Node::is_array) else { return Ok(Vec::new()) };
    for name in ["targets", "script"] {
        if let Some(other) = application.get(name) {
            let advice = "\"worker\" is a list of scripts by path, which cannot be combined with this option; remove one of them";
            return Err(other.error(advice));
        }
    }
    let mut scripts: Vec<MatchedScript> = Vec::new();
    for element in node.elements()? {
        let script = MatchedScript::read(&element, scope)?;
        if scripts.iter().any(|other| other.script == script.script) {
            let advice = "this script is in the list already; write all of its paths in one \"match\", as an array";
            return Err(element.error(advice));
        }
        scripts.push(script);
    }
    match scripts.len() {
        0 => Err(node.error("the list is empty; add a worker script, or remove the option")),
        1..=MAX_WORKER_SCRIPTS => Ok(scripts),
        count => {
            let advice = format!("{count} worker scripts are too many; write at most {MAX_WORKER_SCRIPTS}");
            Err(node.error(advice))
        }
    }
}

// === impl MatchedScript ===

impl MatchedScript {
    fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let single = [
            ("preboot", "boots a script in the process from which the workers of all are forked"),
            ("concurrency", "chooses async mode for the whole application"),
        ];
        for (name, reason) in single {
            if let Some(option) = node.member(name) {
                let advice = format!("this option {reason}; write an application for this script");
                return Err(option.error(advice));
            }
        }
        let object = node.object(&OPTIONS)?;
        let script = object.require("script", "the worker script, relative to the root")?.path_below("the root")?;
        // The router compiles them again.
        object.read("match", |node| Patterns::read(node, PatternSubject::Uri, scope))?;
        let patterns = object.read("match", |node| node.one_or_many(Node::string))?;
        Ok(Self { script, patterns, processes: object.read("processes", Processes::read)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PhpApplication;
    use crate::application::php::parsed;

    fn parse(options: &str) -> Result<PhpApplication, String> {
        parsed(&format!(r#"{{"type": "php", "root": "/srv/shop", {options}}}"#))
    }

    #[test]
    fn each_script_has_its_paths_and_its_number_of_workers() {
        let options = r#""front_controller": "index.php", "worker": [
            {"script": "/api.php", "match": ["/api/*", "!/api/old/*"], "processes": 3}, {"script": "index.php"}]"#;
        let application = parse(options).expect("application");
        assert_eq!(application.worker, None);
        let target = application.target(None).expect("target");
        assert_eq!((target.script.as_deref(), target.front_controller.as_deref()), (None, Some("index.php")));
        let [api, index] = &application.worker_scripts[..] else { panic!("two scripts") };
        assert_eq!((api.script.as_str(), api.processes), ("api.php", Some(Processes::Fixed(3))));
        assert_eq!((index.script.as_str(), index.processes, &index.patterns), ("index.php", None, &None));
        let written = Patterns::of_paths(api.patterns.as_deref().unwrap_or_default()).expect("patterns");
        for (path, expected) in [("/api/x", true), ("/api/old/x", false), ("/apis", false), ("/", false)] {
            assert_eq!(written.matches(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn an_invalid_list_is_rejected() {
        let many: Vec<_> = (0..17).map(|number| format!(r#"{{"script": "{number}.php"}}"#)).collect();
        let cases = [
            (r#""worker": []"#.to_owned(), "worker: the list is empty; add a worker script, or remove the option"),
            (
                r#""worker": [{}]"#.to_owned(),
                "worker/0: \"script\" is missing; add the worker script, relative to the root",
            ),
            (
                r#""worker": [{"script": "a.php"}, {"script": "/a.php", "match": "/x"}]"#.to_owned(),
                "worker/1: this script is in the list already; write all of its paths in one \"match\", as an array",
            ),
            (
                r#""worker": [{"script": "a.php", "match": "x"}]"#.to_owned(),
                "worker/0/match: \"x\" matches no request, because every path begins with \"/\"; begin it with \"/\" or \"*\"",
            ),
            (
                r#""worker": [{"script": "a.php", "preboot": true}]"#.to_owned(),
                "worker/0/preboot: this option boots a script in the process from which the workers of all are forked; \
                 write an application for this script",
            ),
            (
                r#""worker": [{"script": "a.php", "concurrency": 9}]"#.to_owned(),
                "worker/0/concurrency: this option chooses async mode for the whole application; write an application \
                 for this script",
            ),
            (
                r#""worker": [{"script": "a.php"}], "script": "b.php""#.to_owned(),
                "script: \"worker\" is a list of scripts by path, which cannot be combined with this option; remove one \
                 of them",
            ),
            (format!(r#""worker": [{}]"#, many.join(",")), "worker: 17 worker scripts are too many; write at most 16"),
        ];
        for (options, expected) in cases {
            assert_eq!(parse(&options), Err(format!("applications/x/{expected}")), "{options}");
        }
    }
}
