//! `worker`: worker mode, in which one script boots once in each worker and then handles all requests.

use crate::error::Error;
use crate::read::node::{Object, Options};

pub(crate) const OPTIONS: Options = Options { known: &["script", "preboot", "concurrency"], unsupported: &[] };

/// The options that choose a script for a request. In worker mode the worker script handles every request.
const SCRIPT_OPTIONS: [&str; 4] = ["targets", "script", "index", "front_controller"];

/// Worker mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerMode {
    /// The script that each worker runs: relative to the root, without `..`.
    pub script: String,
    /// The script boots once in each generation, before its workers are forked.
    pub preboot: bool,
    /// Async mode: the most requests that each worker runs at a time, from 2 to [`MAX_CONCURRENCY`]. `None`: one.
    pub concurrency: Option<u16>,
}

/// The largest [`WorkerMode::concurrency`].
pub const MAX_CONCURRENCY: u16 = 4096;

// === impl WorkerMode ===

impl WorkerMode {
    /// Reads the option of an application, if it is there.
    pub(crate) fn read(application: &Object<'_>) -> Result<Option<Self>, Error> {
        let Some(node) = application.get("worker") else { return Ok(None) };
        if let Some(other) = SCRIPT_OPTIONS.iter().find_map(|name| application.get(name)) {
            return Err(other.error("the script of \"worker\" handles every request; remove one of them"));
        }
        let worker = node.object(&OPTIONS)?;
        let script = worker.require("script", "the worker script, relative to the root")?;
        let preboot = worker.read("preboot", |node| node.boolean())?.unwrap_or(false);
        let concurrency = worker.read("concurrency", |node| node.integer(2..=MAX_CONCURRENCY, "requests"))?;
        Ok(Some(Self { script: script.path_below("the root")?, preboot, concurrency }))
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
    fn the_worker_script_handles_every_request() {
        let application = parse(r#""worker": {"script": "/bin/worker.php"}"#).expect("application");
        let worker = |script: &str| WorkerMode { script: script.to_owned(), preboot: false, concurrency: None };
        assert_eq!(application.worker, Some(worker("bin/worker.php")));
        let target = application.target(None).expect("target");
        assert_eq!((target.script.as_deref(), target.front_controller.as_deref()), (Some("bin/worker.php"), None));
        let application = parse(r#""worker": {"script": "worker.php", "preboot": true}"#).expect("application");
        assert_eq!(application.worker, Some(WorkerMode { preboot: true, ..worker("worker.php") }));
        let application = parse(r#""worker": {"script": "server.php", "concurrency": 100}"#).expect("application");
        assert_eq!(application.worker, Some(WorkerMode { concurrency: Some(100), ..worker("server.php") }));
        assert_eq!(parse(r#""script": "index.php""#).expect("application").worker, None);
    }

    #[test]
    fn an_invalid_worker_mode_is_rejected() {
        let cases = [
            (r#""worker": {}"#, "worker: \"script\" is missing; add the worker script, relative to the root"),
            (
                r#""worker": true"#,
                "worker: expected an object, found true; its options are \"script\", \"preboot\", \"concurrency\"",
            ),
            (
                r#""worker": {"script": "w.php", "preboot": 1}"#,
                "worker/preboot: expected true or false, found the number 1",
            ),
            (
                r#""worker": {"script": "../a.php"}"#,
                "worker/script: \"../a.php\" must be a file below the root, without \"..\"",
            ),
            (
                r#""worker": {"script": "w.php", "concurrency": 1}"#,
                "worker/concurrency: 1 is out of range; write 2 to 4096 requests",
            ),
            (r#""worker": {"script": "w.php", "num": 2}"#, "worker/num: there is no such option; remove it"),
            (
                r#""worker": {"script": "w.php"}, "front_controller": "index.php""#,
                "front_controller: the script of \"worker\" handles every request; remove one of them",
            ),
        ];
        for (options, expected) in cases {
            assert_eq!(parse(options), Err(format!("applications/x/{expected}")), "{options}");
        }
    }
}
