//! One change of the configuration, from its plans to the switch of the router.
//!
//! The new processes are planned, started, proven and warmed up beside what runs. An application whose options did not
//! change keeps its processes, and a listener its socket. A failure on the way ends the change, and nothing has happened.

use crate::control::active::ActiveConfiguration;
use crate::control::changes::change_request::{ChangeKind, ChangeRequest};
use crate::control::changes::opened_parts::{
    METRICS_LISTENER, OpenedParts, open_access_log, open_listeners, open_metrics_listener, open_quic_sockets,
    option_of_access_log,
};
use crate::control::changes::warm_up::{WarmUp, WarmUpStep};
use crate::control::processes::telemetry_files::TelemetryFiles;
use crate::control::runtime::Runtime;
use crate::generation::Generation;
use crate::os::listen::ChosenBy;
use crate::plan::application::Plan;
use crate::plan::planning::{Planned, Planning};
use crate::policy::pace::boot_timeout;
use howdah_protocol::messages::generation_paths::PinnedLink;
use howdah_protocol::plain_text::plain_and_short;
use howdah_protocol::test_time::divided;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A change in progress.
#[derive(Debug)]
pub struct Change {
    /// The next configuration. While the router switches, the one before.
    pub next: ActiveConfiguration,
    /// Where it comes from.
    pub origin: Origin,
    /// The generations that it started.
    pub started: Vec<u64>,
    /// Whether parts were opened that are missing in the active configuration.
    pub has_found_parts: bool,
    /// The applications that are left out if they do not start.
    pub tolerated: BTreeSet<String>,
    /// How far it is.
    pub progress: Progress,
}

/// Where a change comes from.
#[derive(Debug)]
pub enum Origin {
    /// The command line. If the change fails, or no application starts, howdah does not start.
    Start,
    /// The state directory. If the change fails, howdah starts with an empty configuration. It does not fail only because
    /// applications do not start.
    Stored,
    /// The empty configuration, in place of a stored one that failed. That one remains stored: it may work at the next
    /// start.
    Fallback,
    /// A request of the control API.
    Request(ChangeRequest),
    /// A deploy was found.
    Deploy(Deploy),
    /// Another attempt to start the applications that did not start.
    Retry,
    /// The command line, for a check: everything ends before the configuration is active.
    Check,
}

/// Applications that are reloaded together.
#[derive(Debug)]
pub struct Deploy {
    /// The applications.
    pub applications: Vec<DeployedApplication>,
    /// When the reload began.
    pub since: Instant,
}

/// An application that is reloaded.
#[derive(Debug)]
pub struct DeployedApplication {
    /// Its name.
    pub name: String,
    /// Why it is reloaded, for the log.
    pub cause: DeployCause,
    /// The scripts that were written. PHP must be able to compile them.
    pub written: BTreeSet<PathBuf>,
}

/// Why an application is reloaded.
#[derive(Clone, Debug)]
pub enum DeployCause {
    /// One of its paths leads elsewhere.
    Swapped(PinnedLink),
    /// This file was written.
    Edited(PathBuf),
    /// Its processes still write to a log that was renamed.
    LogsReopened,
}

/// How far a change is.
#[derive(Debug)]
pub enum Progress {
    /// A thread compares the new applications with the machine.
    Planning(Planning),
    /// The plans are complete.
    Planned(Vec<Plan>),
    /// The new generations start. One that does not is reported as failed by itself.
    Booting {
        /// When they must have started.
        until: Instant,
    },
    /// The new generations answer their first requests.
    WarmingUp(WarmUp),
    /// The router switches.
    Switching {
        /// When it got the order.
        since: Instant,
        /// How many routers died since then.
        routers_lost: u32,
    },
}

/// The next step of a change.
#[derive(Debug)]
pub enum ChangeStep {
    /// It waits for an event.
    Wait,
    /// Its plans have taken too long: these are complete.
    Planned(Result<Planned, String>),
    /// It starts new generations.
    Prepare(Vec<Plan>),
    /// It goes on without this generation, which does not start for this reason.
    LeaveOut(u64, String),
    /// It goes on with what this generation has: some of its processes have started, and it does not wait for the others any
    /// longer.
    GoOn(u64),
    /// It lets the router warm up the new generations.
    WarmUp(BTreeSet<u64>),
    /// Its warm-up failed for this reason.
    AbandonWarmUp(String),
    /// It is a check, and complete.
    Checked,
    /// It lets the router switch.
    Switch,
    /// It fails for this reason.
    Fail(String),
}

/// The time that a start may take beyond the timeout of a process, for the end of those that are killed.
const LONGEST_END: Duration = Duration::from_secs(10);

// === impl Origin ===

impl Origin {
    /// Whether the configuration is stored already. A reload and a restart change nothing of it, so a full disk does not
    /// prevent them.
    pub fn is_stored(&self) -> bool {
        match self {
            Origin::Stored | Origin::Fallback | Origin::Deploy(_) | Origin::Retry => true,
            Origin::Request(request) => matches!(request.kind, ChangeKind::Restart(_)),
            Origin::Start | Origin::Check => false,
        }
    }

    /// Whether the configuration was active before. The paths of the router were checked then, and it has read them: a file system
    /// of theirs that hangs must not prevent a deploy.
    pub fn has_active_configuration(&self) -> bool {
        match self {
            Origin::Deploy(_) | Origin::Retry => true,
            Origin::Request(request) => matches!(request.kind, ChangeKind::Restart(_)),
            Origin::Start | Origin::Stored | Origin::Fallback | Origin::Check => false,
        }
    }

    /// Whether all others are served if a listener or the access log cannot be opened.
    pub fn outlives_missing_parts(&self) -> bool {
        matches!(self, Origin::Stored)
    }

    /// Whether something else serves when the change fails.
    pub fn has_alternative(&self) -> bool {
        matches!(self, Origin::Request(_) | Origin::Deploy(_))
    }
}

// === impl Change ===

impl Change {
    /// The generations that it started, and those of the configuration that is not active: the next one, or the one
    /// before.
    pub fn generations(&self) -> impl Iterator<Item = u64> {
        self.started.iter().chain(self.next.generations.values()).copied()
    }

    /// Whether the router has the order to switch.
    pub fn is_switching(&self) -> bool {
        matches!(self.progress, Progress::Switching { .. })
    }

    /// When a step has taken too long. A switch has its own deadline.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.progress {
            Progress::Planning(planning) => Some(planning.deadline()),
            Progress::WarmingUp(warm_up) => Some(warm_up.deadline()),
            Progress::Booting { until } => Some(*until),
            Progress::Planned(_) | Progress::Switching { .. } => None,
        }
    }

    /// The next step.
    pub fn next_step(&mut self, runtime: &Runtime, now: Instant) -> ChangeStep {
        match &mut self.progress {
            Progress::Planning(planning) if planning.is_over(now) => {
                return ChangeStep::Planned(planning.give_up());
            }
            Progress::Planning(_) | Progress::Switching { .. } => return ChangeStep::Wait,
            Progress::Planned(plans) => return ChangeStep::Prepare(std::mem::take(plans)),
            Progress::Booting { .. } | Progress::WarmingUp(_) => {}
        }
        let new = || runtime.generations.iter().filter(|generation| self.started.contains(&generation.id()));
        if let Some((new, reason)) = new().find_map(|new| Some((new, new.failure()?))) {
            let reason = format!("the application {:?} does not start: {reason}", new.name());
            return match self.tolerated.contains(new.name()) {
                true => ChangeStep::LeaveOut(new.id(), reason),
                false => ChangeStep::Fail(reason),
            };
        }
        if let Progress::Booting { until } = self.progress {
            if let Some(unproven) = new().find(|new| !new.is_proven()) {
                return match () {
                    () if now < until => ChangeStep::Wait,
                    () if unproven.is_usable() => ChangeStep::GoOn(unproven.id()),
                    () if self.tolerated.contains(unproven.name()) => {
                        ChangeStep::LeaveOut(unproven.id(), late(unproven))
                    }
                    () => ChangeStep::Fail(late(unproven)),
                };
            }
            if matches!(self.origin, Origin::Check) {
                return ChangeStep::Checked;
            }
            if let Some(reason) = self.useless() {
                return ChangeStep::Fail(reason.to_owned());
            }
            let pending = new().filter(|new| !new.release().warm_up.is_empty()).map(Generation::id).collect();
            self.progress = Progress::WarmingUp(WarmUp::new(pending, now));
        }
        let Progress::WarmingUp(warm_up) = &mut self.progress else { return ChangeStep::Wait };
        match warm_up.next_step(now, runtime.can_warm_up()) {
            WarmUpStep::Wait => ChangeStep::Wait,
            WarmUpStep::Order => {
                warm_up.ordered();
                ChangeStep::WarmUp(warm_up.pending().clone())
            }
            WarmUpStep::Finish => ChangeStep::Switch,
            WarmUpStep::Abandon(reason) => ChangeStep::AbandonWarmUp(reason),
        }
    }

    /// Whether the change may succeed without all of its applications.
    pub fn outlives_failures(&self) -> bool {
        match self.origin {
            Origin::Start => self.next.configuration.applications.len() > 1,
            Origin::Check => false,
            _ => true,
        }
    }

    /// Why nothing that the change was to start has started.
    fn useless(&self) -> Option<&str> {
        let is_useless = match self.origin {
            Origin::Start => self.next.generations.is_empty(),
            Origin::Retry => self.started.is_empty() && !self.has_found_parts,
            _ => false,
        };
        let mut reasons = self.next.failures.values().chain(self.next.missing.values());
        reasons.next().filter(|_| is_useless).map(String::as_str)
    }

    /// Opens the sockets and the access log, and starts the generations that were planned.
    ///
    /// # Errors
    /// With the option and what to do. [`Self::started`] lists the generations that were started before.
    pub fn prepare(
        &mut self,
        mut plans: Vec<Plan>,
        active: &ActiveConfiguration,
        chosen_by: ChosenBy,
        runtime: &mut Runtime,
        now: Instant,
    ) -> Result<(), String> {
        self.progress = Progress::Booting { until: now + longest_boot() };
        let configuration = &self.next.configuration;
        if let Some(telemetry) = &configuration.settings.telemetry {
            TelemetryFiles::read(telemetry)?;
        }
        let mut parts = OpenedParts::of(self.origin.outlives_missing_parts(), active, &mut self.next.missing);
        let access_log = open_access_log(configuration, active);
        self.next.access_log = parts.take(option_of_access_log(configuration), access_log)?.flatten();
        // When it is only checked, the howdah that runs may have the same addresses.
        if !matches!(self.origin, Origin::Check) {
            let (access, listeners) = (&self.next.socket_access, &mut runtime.listeners);
            self.next.listeners = open_listeners(configuration, access, listeners, chosen_by, &mut parts)?;
            self.next.quic_sockets = open_quic_sockets(configuration, &self.next.listeners, listeners, &mut parts)?;
            let metrics = open_metrics_listener(configuration, listeners);
            self.next.metrics_listener = parts.take(METRICS_LISTENER.to_owned(), metrics)?.flatten();
            self.has_found_parts = active.missing.keys().any(|option| !self.next.missing.contains_key(option));
        }
        if let Origin::Deploy(deploy) = &self.origin {
            for plan in &mut plans {
                plan.set_written(deploy.written_of(plan.name()));
            }
        }
        let is_new = |name: &str| plans.iter().any(|plan| plan.name() == name) || self.next.failures.contains_key(name);
        let kept = configuration.applications.keys();
        let kept = kept.filter(|name| !is_new(name) && !configuration.drained.contains(*name));
        let kept = kept.filter_map(|name| Some((name.clone(), *active.generations.get(name)?)));
        let mut generations: BTreeMap<String, u64> = kept.collect();
        for plan in plans {
            let name = plan.name().to_owned();
            let id = runtime
                .generations
                .add(plan, now)
                .map_err(|error| format!("applications/{name}: its generation cannot be made: {error}"))?;
            self.started.push(id);
            generations.insert(name, id);
        }
        self.next.generations = generations;
        Ok(())
    }
}

// === impl Deploy ===

impl Deploy {
    fn written_of(&self, name: &str) -> Vec<PathBuf> {
        let application = self.applications.iter().find(|application| application.name == name);
        application.into_iter().flat_map(|application| application.written.iter().cloned()).collect()
    }
}

/// How long all processes of new generations may take to start, in all: PHP and a first worker have their timeouts one after the
/// other. A script could use that of each worker, and nothing else changes meanwhile.
fn longest_boot() -> Duration {
    2 * boot_timeout::timeout() + divided(LONGEST_END)
}

fn late(generation: &Generation) -> String {
    let (name, seconds) = (generation.name(), longest_boot().as_secs());
    format!("the application {name:?} does not start: its processes are not ready after {seconds} s")
}

/// A path in a log line. An application's user can give it thousands of characters.
fn shown(path: &Path) -> String {
    plain_and_short(&path.to_string_lossy())
}

// === impl DeployCause ===

impl std::fmt::Display for DeployCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeployCause::Swapped(PinnedLink { link, leads_to }) => {
                write!(f, "{} now leads to {}", shown(link), shown(leads_to))
            }
            DeployCause::Edited(file) => write!(f, "{} has changed", shown(file)),
            DeployCause::LogsReopened => write!(f, "its logs are opened again"),
        }
    }
}
