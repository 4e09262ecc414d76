//! The capacity that rates in percent refer to: how it is measured, once before the race.

use super::file::{CapacityFile, ChecksFile};
use super::load::{self, LoadPlan};
use crate::load::{Pace, duration};
use std::path::Path;

/// How the capacity is measured.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// The stack whose capacity it is.
    pub stack: String,
    /// A closed loop.
    pub load: LoadPlan,
}

/// Reads it. `names` are those of the stacks.
///
/// # Errors
/// The message begins with the path of the wrong value.
pub fn read(
    file: Option<&CapacityFile>,
    loads: &[LoadPlan],
    names: &[&str],
    checks: &ChecksFile,
    folder: &Path,
) -> Result<Option<Capacity>, String> {
    let Some(file) = file else {
        return match loads.iter().find(|load| load.is_relative()) {
            Some(load) => Err(format!(
                "capacity: the load {} has rates in percent: write of what, for example {{\"targets\": [\"/\"], \
                 \"connections\": 8, \"duration\": \"3s\"}}",
                load.name
            )),
            None => Ok(None),
        };
    };
    let stack = file.stack.as_deref().or_else(|| names.first().copied()).unwrap_or_default();
    if !names.contains(&stack) {
        return Err(format!("capacity/stack: the lab has no stack {stack:?}; it has {}", names.join(", ")));
    }
    let length = duration::parse(&file.duration).map_err(|reason| format!("capacity/duration: {reason}"))?;
    if length.is_zero() || file.connections == 0 {
        return Err("capacity: connections and duration must be more than 0".to_owned());
    }
    let checks = load::read_checks(checks).map_err(|reason| format!("checks{reason}"))?;
    let targets = load::read_targets(&file.targets, &checks, folder).map_err(|reason| format!("capacity/{reason}"))?;
    let pace = Pace::Closed { connections: file.connections, length: Some(length), requests: None };
    // The settings of a load that has none.
    let template = loads.first().ok_or("loads: an empty list")?;
    let load = LoadPlan {
        name: "capacity".to_owned(),
        label: "capacity".to_owned(),
        pace,
        targets,
        keep_alive: true,
        autostop: Vec::new(),
        objective: None,
        keeps_cookies: false,
        sessions: Vec::new(),
        is_fresh: false,
        ..template.clone()
    };
    Ok(Some(Capacity { stack: stack.to_owned(), load }))
}
