//! The stacks of a lab, with all settings of their manifests.

use super::application::Application;
use super::file::{StackObject, part};
use crate::load::connection::Endpoint;
use crate::stacks::StackSpec;
use crate::stacks::library::{Definition, Library};
use crate::stacks::manifest::{Manifest, ProcessTemplate, Ready};
use crate::stacks::running::{label, worker_policy};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;

/// A stack of a lab.
#[derive(Clone, Debug)]
pub struct StackPlan {
    /// Its name in the lab.
    pub name: String,
    /// Its name for people.
    pub label: String,
    /// Where it comes from.
    pub source: Source,
    /// php.ini settings of this stack only.
    pub ini: BTreeMap<String, String>,
    /// How it chooses the number of its workers itself; empty: it takes the lab's number.
    pub worker_policy: String,
    /// Whether its number of workers is its own.
    pub has_own_workers: bool,
}

/// Where a stack comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The lab starts it.
    Started(StackSpec),
    /// It runs already.
    Running {
        /// Its address.
        endpoint: Endpoint,
        /// The value of `Host`.
        host: String,
    },
    /// It needs a script that the lab does not have: it is skipped.
    Unusable {
        /// The name of its manifest.
        manifest: String,
        /// The missing part.
        reason: String,
        /// A remedy.
        remedy: String,
    },
}

/// The manifest of a stack that is only a command.
const CUSTOM: &str = "custom";
const HTTP_PORT: u16 = 80;

/// Reads the stacks. `workers` is the number of PHP processes of those without their own.
///
/// # Errors
/// The message begins with the path of the wrong value.
pub fn read(
    files: &[Value],
    library: &Library,
    application: &Application,
    workers: u32,
    folder: &Path,
) -> Result<Vec<StackPlan>, String> {
    if files.is_empty() {
        return Err("stacks: an empty list; `howdah lab stacks` prints the possible ones".to_owned());
    }
    let mut plans: Vec<StackPlan> = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let object = match file {
            Value::String(name) => StackObject::named(name),
            object => part(object).map_err(|reason| format!("stacks[{index}]: {reason}"))?,
        };
        let plan = read_one(&object, library, application, workers, folder)
            .map_err(|reason| format!("stacks[{index}]: {reason}"))?;
        if plans.iter().any(|other| other.name == plan.name) {
            return Err(format!("stacks[{index}]/name: {:?} is the name of an earlier stack, too", plan.name));
        }
        plans.push(plan);
    }
    Ok(plans)
}

/// Whether a name is fit for files and for the command line.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn read_one(
    object: &StackObject,
    library: &Library,
    application: &Application,
    workers: u32,
    folder: &Path,
) -> Result<StackPlan, String> {
    let name = object.name.clone();
    if !is_name(&name) {
        return Err(format!("name: {name:?} has other characters than a to z, 0 to 9 and -"));
    }
    if let Some(url) = &object.url {
        let (endpoint, host) = endpoint(url).map_err(|reason| format!("url: {reason}"))?;
        let label = object.label.clone().unwrap_or_else(|| url.clone());
        let source = Source::Running { endpoint, host };
        let worker_policy = "unknown: it runs already".to_owned();
        return Ok(StackPlan { name, label, source, ini: BTreeMap::new(), worker_policy, has_own_workers: true });
    }
    let definition = match &object.command {
        Some(command) => Arc::new(custom(&name, command)?),
        None => library.get(object.stack.as_deref().unwrap_or(&name)).map_err(|reason| format!("stack: {reason}"))?,
    };
    let settings = settings(&definition, &object.settings)?;
    let label = match &object.label {
        Some(label) => label.clone(),
        None => label(&definition, &settings)?,
    };
    let worker_policy = worker_policy(&definition, &settings)?;
    if object.workers == Some(0) {
        return Err("workers: at least 1".to_owned());
    }
    let script = object.script.as_ref().or_else(|| application.scripts.get(&definition.name));
    let needed = needed_script(&definition.manifest, &settings);
    let source = match (script, needed) {
        (None, Some(kind)) => Source::Unusable {
            manifest: definition.name.clone(),
            reason: format!("it needs {kind}"),
            remedy: format!("write its path as application/scripts/{} in lab.json", definition.name),
        },
        (script, _) => {
            let script = script.map(|script| {
                let paths = [folder.join(script), application.root.join(script)];
                let path = paths.iter().find(|path| path.is_file()).unwrap_or(&paths[0]);
                // Absolute, without `..`: templates compare it with the document root.
                (script.clone(), path.canonicalize().unwrap_or_else(|_| path.clone()))
            });
            let mut environment = application.environment.clone();
            environment.extend(object.environment.clone());
            let workers = object.workers.unwrap_or(workers);
            Source::Started(StackSpec { name: name.clone(), definition, settings, workers, environment, script })
        }
    };
    let has_own_workers = object.workers.is_some();
    Ok(StackPlan { name, label, source, ini: object.ini.clone(), worker_policy, has_own_workers })
}

/// All settings of a manifest: the chosen ones, else the defaults.
fn settings(definition: &Definition, chosen: &BTreeMap<String, Value>) -> Result<BTreeMap<String, String>, String> {
    let known = &definition.manifest.settings;
    if let Some(name) = chosen.keys().find(|name| !known.contains_key(*name)) {
        let names: Vec<_> = known.keys().map(String::as_str).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("settings/{name}: no such setting of {}; there are: {names}", definition.name));
    }
    let mut all = BTreeMap::new();
    for (name, setting) in known {
        let value = match chosen.get(name) {
            None => setting.default.clone(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => return Err(format!("settings/{name}: {other} is neither a text nor a number")),
        };
        if !setting.values.is_empty() && !setting.values.contains(&value) {
            return Err(format!("settings/{name}: {value:?} is not one of {}", setting.values.join(", ")));
        }
        if setting.is_number && value.parse::<u32>().is_err() {
            return Err(format!("settings/{name}: {value:?} is not a whole number"));
        }
        all.insert(name.clone(), value);
    }
    Ok(all)
}

fn needed_script(manifest: &Manifest, settings: &BTreeMap<String, String>) -> Option<String> {
    let conditional = manifest.script_if.as_ref().filter(|needed| settings.get(&needed.setting) == Some(&needed.value));
    manifest.script.clone().or_else(|| conditional.map(|needed| needed.about.clone()))
}

fn custom(name: &str, command: &[String]) -> Result<Definition, String> {
    if command.is_empty() || !command.iter().any(|word| word.contains("port")) {
        return Err(
            "command: a list of words, of which one has {{ port }}: the port of 127.0.0.1 to listen on".to_owned()
        );
    }
    let ready = Ready { port: "{{ port }}".to_owned(), ..Ready::default() };
    let process = ProcessTemplate {
        name: name.to_owned(),
        command: command.to_vec(),
        as_user: true,
        ready,
        ..Default::default()
    };
    let manifest = Manifest {
        label: name.to_owned(),
        about: "a command of lab.json".to_owned(),
        worker_policy: "chosen by its command".to_owned(),
        processes: vec![process],
        ..Manifest::default()
    };
    Ok(Definition { name: CUSTOM.to_owned(), manifest, templates: BTreeMap::new() })
}

/// The address and the authority of a URL without a path.
pub fn endpoint(url: &str) -> Result<(Endpoint, String), String> {
    let authority = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let authority = authority.filter(|authority| !authority.is_empty() && !authority.contains('/'));
    let authority =
        authority.ok_or_else(|| format!("{url:?} is not like http://127.0.0.1:8080; write paths as targets"))?;
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = if has_port { authority.to_owned() } else { format!("{authority}:{HTTP_PORT}") };
    let mut addresses = with_port.to_socket_addrs().map_err(|error| format!("{authority}: {error}"))?;
    let address = addresses.next().ok_or_else(|| format!("{authority} has no address"))?;
    Ok((Endpoint::Tcp(address), authority.to_owned()))
}

// === impl StackObject ===

impl StackObject {
    fn named(name: &str) -> StackObject {
        StackObject {
            name: name.to_owned(),
            stack: None,
            label: None,
            settings: BTreeMap::new(),
            workers: None,
            environment: BTreeMap::new(),
            ini: BTreeMap::new(),
            script: None,
            command: None,
            url: None,
        }
    }
}
