//! Starts one stack of a lab as the race would, and keeps it until the interruption: to look at it, or to measure it with other
//! tools.

use super::machine;
use super::rounds::{Contestant, Rounds};
use super::services::Services;
use super::session::Session;
use crate::measure::role::{self, Role};
use crate::plan::{Plan, Source};
use crate::stacks::detect::{Detection, detect};
use crate::stacks::{Running, StartFailure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A stack that serves.
#[derive(Clone, Debug, Serialize)]
pub struct Served {
    /// Its name in the lab.
    pub stack: String,
    /// `http://127.0.0.1:40123`
    pub url: String,
    /// The processes that the lab started.
    pub started: Vec<u32>,
    /// Its processes by their job, `front` and `php`, once no more of them began.
    pub processes: BTreeMap<String, Vec<u32>>,
    /// The folder with its configuration, its logs and its php.ini (`FOLDER-php.ini`).
    pub folder: PathBuf,
}

const POLL: Duration = Duration::from_millis(50);
/// A stack whose processes stay the same for this time has started all of them: some answer before.
const SETTLED: Duration = Duration::from_millis(300);
/// A stack whose processes come and go is not waited for any longer.
const SETTLING: Duration = Duration::from_secs(3);

/// Starts a stack, calls `ready`, and stops the stack when `interrupted` is set.
///
/// # Errors
/// There is no such stack, it does not start, or it ends by itself.
pub fn serve(plan: &Plan, name: &str, interrupted: &AtomicBool, ready: &mut dyn FnMut(&Served)) -> Result<(), String> {
    let names: Vec<_> = plan.stacks.iter().map(|stack| stack.name.as_str()).collect();
    let stack = plan.stacks.iter().find(|stack| stack.name == name);
    let stack = stack.ok_or_else(|| format!("the lab has no stack {name:?}; it has {}", names.join(", ")))?;
    let detection: Detection = match &stack.source {
        Source::Started(spec) => detect(&spec.definition, &plan.application.php)
            .map_err(|missing| format!("{}: {}", missing.reason, missing.remedy))?,
        Source::Running { .. } => return Err(format!("{name} runs already: the lab does not start it")),
        Source::Unusable { reason, remedy, .. } => return Err(format!("{reason}: {remedy}")),
    };
    let machine = machine::describe();
    let session = Session::new(plan, machine.somaxconn, machine.open_files)?;
    let services = Services::start(&plan.services, session.folder(), interrupted)?;
    let contestant = Contestant { plan: stack, detection };
    let start = Instant::now();
    let rounds =
        Rounds { plan, loads: &plan.loads, session: &session, services: &services.renderer, start, interrupted };
    let (started, place) = rounds.start(&contestant, false).map_err(|failure| describe(&failure))?;
    let Some(mut running) = started.running else { return Err(format!("{name} has no process")) };
    let started_processes = running.roots();
    ready(&Served {
        stack: name.to_owned(),
        url: format!("http://{}", started.host),
        processes: settled_processes(&contestant.roles(), &started_processes, interrupted),
        started: started_processes,
        folder: place.folder,
    });
    let end = wait(&mut running, interrupted);
    running.stop();
    end
}

fn settled_processes(roles: &[Role], started: &[u32], interrupted: &AtomicBool) -> BTreeMap<String, Vec<u32>> {
    let deadline = Instant::now() + SETTLING;
    let (mut processes, mut since) = (role::pids(roles, started), Instant::now());
    while since.elapsed() < SETTLED && Instant::now() < deadline && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(POLL);
        let now = role::pids(roles, started);
        if now != processes {
            (processes, since) = (now, Instant::now());
        }
    }
    processes
}

fn wait(running: &mut Running, interrupted: &AtomicBool) -> Result<(), String> {
    while !interrupted.load(Ordering::Relaxed) {
        if let Some(death) = running.death() {
            return Err(describe(&StartFailure { reason: death, log: running.log() }));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn describe(failure: &StartFailure) -> String {
    let log: String = failure.log.iter().map(|line| format!("\n  {line}")).collect();
    format!("{}{log}", failure.reason)
}
