//! A PHP application: `"type": "php"`.

pub(crate) mod options;
pub(crate) mod processes;
pub(crate) mod reload;
pub(crate) mod retry;
pub(crate) mod send_file;
pub(crate) mod slow_log;
pub(crate) mod target;
pub(crate) mod warm_up;
pub(crate) mod worker_mode;
pub(crate) mod worker_scripts;

use std::path::PathBuf;

use crate::application::isolation::Isolation;
use crate::application::limits::Limits;
use crate::application::php::options::{PhpOptions, PhpVersion};
use crate::application::php::processes::Processes;
use crate::application::php::reload::Reload;
use crate::application::php::retry::Retry;
use crate::application::php::send_file::SendFile;
use crate::application::php::slow_log::SlowLog;
use crate::application::php::target::{ScriptTarget, Targets};
use crate::application::php::warm_up::WarmUp;
use crate::application::php::worker_mode::WorkerMode;
use crate::application::php::worker_scripts::MatchedScript;
use crate::application::process_settings::ProcessSettings;
use crate::error::Error;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "type",
        "drain",
        "root",
        "script",
        "index",
        "front_controller",
        "targets",
        "worker",
        "options",
        "processes",
        "environment",
        "inherit_environment",
        "working_directory",
        "user",
        "group",
        "limits",
        "retry",
        "isolation",
        "stdout",
        "stderr",
        "warm_up",
        "reload",
        "resolve_links",
        "slow_log",
        "send_file",
    ],
    unsupported: &[],
};

/// A PHP application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpApplication {
    /// `type`: the PHP version that it requires; `None`: the newest installed version.
    pub php_version: Option<PhpVersion>,
    /// The scripts that it runs.
    pub targets: Targets,
    /// `worker`: worker mode; `None` is classic mode.
    pub worker: Option<WorkerMode>,
    /// `worker` as a list: worker scripts for some of the requests.
    pub worker_scripts: Vec<MatchedScript>,
    /// `options`: its PHP settings.
    pub options: PhpOptions,
    /// The number of its workers.
    pub processes: Processes,
    /// The limits of its requests and workers.
    pub limits: Limits,
    /// Whether a request whose worker died is run again.
    pub retry: Retry,
    /// Which parts of the system its processes share.
    pub isolation: Isolation,
    /// The environment, user and outputs of its workers.
    pub process_settings: ProcessSettings,
    /// The working directory of its workers, an absolute path; `None`: the folder of the script.
    pub working_directory: Option<PathBuf>,
    /// The requests that a new generation answers before it receives client requests.
    pub warm_up: Vec<WarmUp>,
    /// When howdah starts a new generation on its own.
    pub reload: Reload,
    /// Whether symbolic links in the paths of scripts and in the working directory are resolved, once for each
    /// generation. Default: true.
    pub resolve_links: bool,
    /// `slow_log`: the log of its slow requests; `None`: no log.
    pub slow_log: Option<SlowLog>,
    /// `send_file`: folders whose files its scripts may have howdah send.
    pub send_file: SendFile,
}

// === impl PhpApplication ===

impl PhpApplication {
    /// The target with this name, or without a name for an application without named targets. It exists for every
    /// target that a [`Pass`](crate::Pass) names.
    pub fn target(&self, name: Option<&str>) -> Option<&ScriptTarget> {
        match (&self.targets, name) {
            (Targets::Single(target), None) => Some(target),
            (Targets::Named(targets), Some(name)) => targets.get(name),
            _ => None,
        }
    }

    /// All targets with their names. There is at least one.
    pub fn targets(&self) -> impl Iterator<Item = (Option<&str>, &ScriptTarget)> {
        let (single, named) = match &self.targets {
            Targets::Single(target) => (Some((None, target)), None),
            Targets::Named(targets) => (None, Some(targets.iter().map(|(name, target)| (Some(name.as_str()), target)))),
        };
        single.into_iter().chain(named.into_iter().flatten())
    }

    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        // An application in another language has other options, so an error about its type comes first.
        if let Some(language) = node.member("type") {
            options::read_type(&language)?;
        }
        let object = node.object(&OPTIONS)?;
        let php_version = options::read_type(&object.require("type", "\"type\": \"php\"")?)?;
        let worker_scripts = worker_scripts::read(&object, scope)?;
        let worker = if worker_scripts.is_empty() { WorkerMode::read(&object)? } else { None };
        let mut targets = Targets::read(&object)?;
        if let (Some(worker), Targets::Single(target)) = (&worker, &mut targets) {
            target.script = Some(worker.script.clone());
        }
        Ok(Self {
            php_version,
            warm_up: object.read("warm_up", |node| warm_up::read(node, &targets))?.unwrap_or_default(),
            reload: object.read("reload", Reload::read)?.unwrap_or_default(),
            resolve_links: object.read("resolve_links", Node::boolean)?.unwrap_or(true),
            targets,
            worker,
            worker_scripts,
            options: object.read("options", PhpOptions::read)?.unwrap_or_default(),
            processes: object.read("processes", Processes::read)?.unwrap_or_default(),
            limits: object.read("limits", Limits::read)?.unwrap_or_default(),
            retry: object.read("retry", Retry::read)?.unwrap_or_default(),
            isolation: object.read("isolation", Isolation::read)?.unwrap_or_default(),
            process_settings: ProcessSettings::read(&object)?,
            working_directory: object.read("working_directory", Node::absolute_path)?,
            slow_log: object.read("slow_log", SlowLog::read)?,
            send_file: object.read("send_file", SendFile::read)?.unwrap_or_default(),
        })
    }
}

/// The PHP application of this JSON object, in a configuration of its own.
#[cfg(test)]
fn parsed(application: &str) -> Result<PhpApplication, String> {
    let text = format!(r#"{{"applications": {{"x": {application}}}}}"#);
    let mut configuration = crate::Configuration::parse(&text).map_err(|error| error.to_string())?;
    match configuration.applications.remove("x") {
        Some(crate::Application::Php(application)) => Ok(*application),
        other => panic!("no PHP application: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;
    use std::collections::BTreeMap;

    fn with(option: &str) -> Result<PhpApplication, String> {
        parsed(&format!(r#"{{"type": "php", "root": "/srv", {option}}}"#))
    }

    #[test]
    fn an_application_needs_only_a_type_and_a_root() {
        let application = parsed(r#"{"type": "php", "root": "/srv"}"#).expect("application");
        assert_eq!(application.php_version, None);
        assert_eq!(application.processes, Processes::default());
        assert_eq!((application.limits, application.isolation), (Limits::default(), Isolation::default()));
        assert_eq!(
            (application.process_settings.stdout, application.process_settings.stderr, application.slow_log),
            (None, None, None)
        );
        assert_eq!(application.options, PhpOptions::default());
        assert_eq!(
            (application.process_settings.user, application.process_settings.group, application.working_directory),
            (None, None, None)
        );
        assert_eq!(
            (application.warm_up, application.reload, application.resolve_links),
            (vec![], Reload::OnSwap, true)
        );
    }

    #[test]
    fn every_option_is_read() {
        let application = with(
            r#""processes": 3, "environment": {"A": "", "B": "b=c\nd"}, "working_directory": "/srv/", "user": "u", "group": "g",
               "limits": {"requests": 5}, "retry": "idempotent", "isolation": {"namespaces": {"pid": true}}, "stdout": "/o", "stderr": "/e",
               "warm_up": ["/"], "reload": "never", "resolve_links": false,
               "slow_log": {"threshold": 1}"#,
        )
        .expect("application");
        assert_eq!(application.processes, Processes::Fixed(3));
        assert_eq!((application.limits.requests, application.retry), (Some(5), Retry::Idempotent));
        assert!(application.isolation.namespaces.pid);
        assert_eq!(
            (application.process_settings.stdout, application.process_settings.stderr),
            (Some("/o".into()), Some("/e".into()))
        );
        assert_eq!(application.slow_log.map(|slow| slow.samples), Some(3));
        let environment = [("A", ""), ("B", "b=c\nd")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(application.process_settings.environment, BTreeMap::from(environment));
        assert_eq!(application.working_directory, Some("/srv".into()));
        assert_eq!(
            (application.warm_up.len(), application.reload, application.resolve_links),
            (1, Reload::Never, false)
        );
        assert_eq!(
            (application.process_settings.user.as_deref(), application.process_settings.group.as_deref()),
            (Some("u"), Some("g"))
        );
    }

    #[test]
    fn an_error_names_the_option() {
        let cases = [
            (r#""processes": 0"#, "processes: 0 is out of range; write 1 to 1024 processes, or \"auto\""),
            (r#""processes": 1025"#, "processes: 1025 is out of range; write 1 to 1024 processes, or \"auto\""),
            (r#""processes": {"spare": 5}"#, "processes: \"spare\" is 5, but \"max\" is only 1; raise \"max\""),
            (r#""environment": {"A": 5}"#, "environment/A: expected a string; write \"5\", with quotes"),
            (r#""environment": {"": "x"}"#, "environment: a name must not be empty"),
            (
                r#""environment": {"A=B": "x"}"#,
                "environment: the name \"A=B\" has a \"=\"; write {\"NAME\": \"VALUE\"}",
            ),
            (r#""environment": {"A\u0000": "x"}"#, "environment: the name \"A\\0\" has a control character; remove it"),
            (
                r#""working_directory": "srv""#,
                "working_directory: \"srv\" is not an absolute path; begin it with \"/\"",
            ),
            (r#""user": """#, "user: the string is empty; write a value or remove the option"),
            (
                r#""isolation": true"#,
                "isolation: expected an object, found true; its options are \"namespaces\", \"uidmap\", \"gidmap\", \"rootfs\", \"automount\", \"cgroup\" and others",
            ),
            (
                r#""limits": 5"#,
                "limits: expected an object, found the number 5; its options are \"timeout\", \"requests\", \"memory\", \"queue_timeout\"",
            ),
            (r#""retry": "always""#, "retry: \"always\" is not possible here; write \"never\" or \"idempotent\""),
            (r#""stdout": "out.log""#, "stdout: \"out.log\" is not an absolute path; begin it with \"/\""),
            (r#""slow_log": {}"#, "slow_log: \"threshold\" is missing; add \"threshold\": 1, in seconds"),
            (r#""stderr": 2"#, "stderr: expected a string; write \"2\", with quotes"),
            (r#""group": """#, "group: the string is empty; write a value or remove the option"),
            (r#""enviroment": {}"#, "enviroment: there is no such option; did you mean \"environment\"?"),
        ];
        for (option, expected) in cases {
            assert_eq!(with(option), Err(format!("applications/x/{expected}")), "{option}");
        }
        assert_eq!(
            parsed(r#"{"root": "/srv"}"#),
            Err("applications/x: \"type\" is missing; add \"type\": \"php\"".to_owned())
        );
        assert_eq!(
            Configuration::parse(r#"{"applications": {"a\u001bb": {}}}"#).map_err(|error| error.to_string()),
            Err(r#"applications: the name "a\u{1b}b" has a control character; remove it"#.to_owned())
        );
    }

    #[test]
    fn another_language_is_rejected_before_its_options() {
        let error = parsed(r#"{"type": "python 3.11", "module": "wsgi"}"#).expect_err("python");
        assert!(error.starts_with("applications/x/type: \"python 3.11\" is not PHP"), "{error}");
    }
}
