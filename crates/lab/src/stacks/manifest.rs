//! The fields of a stack's `manifest.json`. Texts marked *template* may use the variables of [`super::template`].

use crate::measure::Role;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A stack.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Template: its name for people.
    pub label: String,
    /// Its nature, in a sentence.
    #[serde(default)]
    pub about: String,
    /// The settings that lab.json can choose.
    #[serde(default)]
    pub settings: BTreeMap<String, Setting>,
    /// The programs that it needs, by the name that templates use.
    #[serde(default)]
    pub programs: BTreeMap<String, Program>,
    /// Its other needs.
    #[serde(default)]
    pub checks: Vec<Requirement>,
    /// Variables of the lab's environment that templates use, such as the path of an extension.
    #[serde(default)]
    pub variables: Vec<String>,
    /// It needs a script of the application: what kind of script, for the error message.
    #[serde(default)]
    pub script: Option<String>,
    /// It needs a script if a setting has a value.
    #[serde(default)]
    pub script_if: Option<ScriptIf>,
    /// Template: how it chooses the number of its workers itself; empty: it takes the lab's number.
    #[serde(default)]
    pub worker_policy: String,
    /// Folders that are made inside of its folder, writable for PHP's user.
    #[serde(default)]
    pub folders: Vec<String>,
    /// Folders that are made inside of its folder, in which only root, or the user of the lab, makes files.
    #[serde(default)]
    pub private_folders: Vec<String>,
    /// Its configuration files.
    #[serde(default)]
    pub files: Vec<FileTemplate>,
    /// Its processes, in the order of their start.
    pub processes: Vec<ProcessTemplate>,
    /// Requests to its control interface after the start of its processes.
    #[serde(default)]
    pub requests: Vec<ControlRequest>,
    /// When it is ready after these requests.
    #[serde(default)]
    pub ready: Ready,
    /// Its processes by their job, `front` and `php`: regular expressions of their titles, `@started` or `@forked`
    /// ([`crate::measure::role`]). Their cost is measured separately.
    #[serde(default)]
    pub roles: BTreeMap<String, String>,
    /// Its log files inside of its folder.
    #[serde(default)]
    pub logs: Vec<String>,
    /// Remarks for the report.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A setting that lab.json can choose.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Its meaning.
    pub about: String,
    /// The value if lab.json chooses none.
    pub default: String,
    /// The possible values; empty: any.
    #[serde(default)]
    pub values: Vec<String>,
    /// Whether it is a whole number.
    #[serde(default)]
    pub is_number: bool,
}

/// A program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name for people.
    pub label: String,
    /// Templates: names that are searched in PATH and the folders of system programs, in this order. `$NAME` is a
    /// variable of the environment, `@self` is howdah.
    pub names: Vec<String>,
    /// The arguments with which it prints its version.
    pub version: Vec<String>,
    /// A regular expression whose first group is the version.
    pub pattern: String,
    /// Template: how to install it.
    pub install: String,
}

/// Something else that a stack needs: a file, or a command that succeeds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Template: a file that must exist.
    #[serde(default)]
    pub file: Option<String>,
    /// Templates: a command that must succeed.
    #[serde(default)]
    pub command: Vec<String>,
    /// The name of the part whose version the command prints.
    #[serde(default)]
    pub label: Option<String>,
    /// A regular expression whose first group is the version in the command's output.
    #[serde(default)]
    pub pattern: Option<String>,
    /// Template: the missing part.
    pub reason: String,
    /// Template: how to install it.
    pub install: String,
}

/// A stack that needs a script if a setting has a value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptIf {
    /// The setting.
    pub setting: String,
    /// Its value.
    pub value: String,
    /// The kind of script.
    pub about: String,
}

/// A configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTemplate {
    /// Its path inside of the stack's folder.
    pub path: String,
    /// Its template beside the manifest.
    pub template: String,
    /// Whether a reader who chooses this stack needs it.
    #[serde(default)]
    pub configuration: bool,
}

/// A process that is started in the foreground.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessTemplate {
    /// Its name, also of its log.
    pub name: String,
    /// Templates: its words. A word that becomes empty is left out.
    pub command: Vec<String>,
    /// Templates: its environment beside the application's. A value that becomes empty is left out.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Whether it is started as PHP's user. Servers that change the user themselves are not.
    #[serde(default)]
    pub as_user: bool,
    /// Template: the number of such processes; empty: one.
    #[serde(default)]
    pub count: String,
    /// When the next process can be started.
    #[serde(default)]
    pub ready: Ready,
}

/// When a process is ready.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Template: a port of 127.0.0.1 that accepts connections; empty: not waited for.
    #[serde(default)]
    pub port: String,
    /// Template: a unix socket that accepts connections; empty: not waited for.
    #[serde(default)]
    pub socket: String,
}

/// A request to a control interface. Its response must have a status from 200 to 299.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlRequest {
    /// Template: the unix socket.
    pub socket: String,
    /// `PUT`
    pub method: String,
    /// `/config`
    pub path: String,
    /// The body: one of [`Manifest::files`].
    pub body_file: String,
}

// === impl Manifest ===

impl Manifest {
    /// The roles of its processes.
    ///
    /// # Errors
    /// A pattern is wrong; the message has its path.
    pub fn read_roles(&self) -> Result<Vec<Role>, String> {
        let read = |(name, processes): (&String, &String)| {
            let processes = processes.parse().map_err(|error| format!("roles/{name}: {error}"))?;
            Ok(Role { name: name.clone(), processes })
        };
        self.roles.iter().map(read).collect()
    }
}
