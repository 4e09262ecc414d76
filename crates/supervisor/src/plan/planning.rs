//! Plans applications, each on a thread of its own: a file system that hangs must block neither the supervisor nor the
//! other applications. Another thread looks up the users and groups of Unix sockets, and one looks at the paths of the router.

use crate::os::hanging_threads::HangingThreads;
use crate::os::listen::SocketAccess;
use crate::plan::application::{Plan, plan};
use crate::plan::checked_paths::{self, CheckedPath};
use crate::plan::defaults::{Defaults, Strictness};
use crate::plan::socket_access;
use howdah_config::{Application, Listener};
use howdah_protocol::test_time::divided;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long the plans of one change may take.
const PLANNING_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for applications without which all others are served: they are tried again.
const TOLERATED_TIMEOUT: Duration = Duration::from_secs(10);
/// No test divides that to less: a busy machine needs some time for each plan.
const LEAST_TOLERATED_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts plans.
#[derive(Debug)]
pub struct Planner {
    threads: HangingThreads,
}

/// The parts of a change that need plans.
#[derive(Debug)]
pub struct PlannedParts {
    /// The applications.
    pub applications: Vec<(String, Application)>,
    /// The listeners, with the access to their sockets if it is known.
    pub listeners: Vec<(Listener, Option<SocketAccess>)>,
    /// The paths that must exist.
    pub paths: Vec<CheckedPath>,
}

/// Plans under way, one for each application, the access to the sockets, and the look at paths.
#[derive(Debug)]
pub struct Planning {
    /// `None` once they exist.
    paths: Option<oneshot::Receiver<Result<(), String>>>,
    /// `None` once it is in `planned`.
    sockets: Option<oneshot::Receiver<Result<Vec<SocketAccess>, String>>>,
    applications: Vec<PlannedApplication>,
    tolerated: BTreeSet<String>,
    planned: Planned,
    until: Instant,
    /// The same if only applications are missing that are tolerated.
    tolerated_until: Instant,
}

#[derive(Debug)]
struct PlannedApplication {
    name: String,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Pending(oneshot::Receiver<Result<Plan, String>>),
    Known(Result<Plan, String>),
}

/// The plans of a change.
#[derive(Debug, Default)]
pub struct Planned {
    /// The plans.
    pub plans: Vec<Plan>,
    /// Why each tolerated application cannot start.
    pub failures: BTreeMap<String, String>,
    /// The access to the socket of each listener.
    pub sockets: Vec<SocketAccess>,
}

// === impl Planner ===

impl Planner {
    /// Without plans under way.
    pub fn new() -> Planner {
        Planner { threads: HangingThreads::new("planning") }
    }

    /// Plans these parts. The failure of an application in `tolerated` is not a failure of the whole. A thread that hangs is not
    /// waited for: it exits when its file system answers.
    pub fn begin(
        &mut self,
        parts: PlannedParts,
        tolerated: &BTreeSet<String>,
        defaults: &Defaults,
        strictness: Strictness,
        now: Instant,
    ) -> Planning {
        let PlannedParts { applications, listeners, paths } = parts;
        let applications = applications.into_iter().map(|(name, application)| {
            let (planned, defaults) = (name.clone(), defaults.clone());
            let plan_one = move || plan(&planned, &application, &defaults, strictness);
            let result = self.start(&format!("applications/{name}"), "its folders", plan_one);
            PlannedApplication { name, answer: Answer::Pending(result) }
        });
        let applications = applications.collect();
        let group = defaults.socket_group();
        let has_names = socket_access::has_names(&listeners);
        let look_up = move || socket_access::of_all(&listeners, group);
        let sockets = match has_names {
            true => self.start("listeners", "the users and groups of sockets", look_up),
            false => answered(look_up()),
        };
        let paths = match paths.is_empty() {
            true => answered(Ok(())),
            false => self.start("settings", "the files of settings and routes", move || checked_paths::check(&paths)),
        };
        Planning {
            paths: Some(paths),
            sockets: Some(sockets),
            applications,
            tolerated: tolerated.clone(),
            planned: Planned::default(),
            until: now + divided(PLANNING_TIMEOUT),
            tolerated_until: now + divided(TOLERATED_TIMEOUT).max(LEAST_TOLERATED_TIMEOUT),
        }
    }

    /// Looks at something on a thread. Without a thread, the answer is an error.
    fn start<T: Send + 'static>(
        &mut self,
        subject: &str,
        looks_at: &str,
        look: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, String>> {
        let (sender, result) = oneshot::channel();
        let work = move || {
            let _ = sender.send(look());
        };
        match self.threads.start(subject, work) {
            true => result,
            false => answered(Err(format!(
                "{subject}: cannot check {looks_at}: former checks still wait, or no thread can be started; does a network file \
                 system hang?"
            ))),
        }
    }
}

/// An answer that is there already.
fn answered<T>(answer: Result<T, String>) -> oneshot::Receiver<Result<T, String>> {
    let (sender, result) = oneshot::channel();
    let _ = sender.send(answer);
    result
}

// === impl Planning ===

impl Planning {
    /// The plans, once, in the order of the applications.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Planned, String>> {
        if let Some(paths) = &mut self.paths {
            let checked = ready!(Pin::new(paths).poll(cx));
            self.paths = None;
            checked.unwrap_or_else(|_| panicked("settings"))?;
        }
        if let Some(sockets) = &mut self.sockets {
            let access = ready!(Pin::new(sockets).poll(cx));
            self.sockets = None;
            self.planned.sockets = access.unwrap_or_else(|_| panicked("listeners"))?;
        }
        for PlannedApplication { name, answer } in &mut self.applications {
            if let Answer::Pending(result) = answer
                && let Poll::Ready(result) = Pin::new(result).poll(cx)
            {
                let result = result.unwrap_or_else(|_| panicked(&format!("applications/{name}")));
                if let Err(reason) = &result
                    && !self.tolerated.contains(name)
                {
                    return Poll::Ready(Err(reason.clone()));
                }
                *answer = Answer::Known(result);
            }
        }
        if self.missing().next().is_none() || self.is_over(Instant::now()) {
            Poll::Ready(self.finish())
        } else {
            Poll::Pending
        }
    }

    /// The applications whose answers are not known.
    fn missing(&self) -> impl Iterator<Item = &str> {
        let applications = self.applications.iter();
        applications.filter(|planned| matches!(planned.answer, Answer::Pending(_))).map(|planned| &*planned.name)
    }

    /// When it may have taken too long.
    pub fn deadline(&self) -> Instant {
        if Instant::now() < self.tolerated_until { self.tolerated_until.min(self.until) } else { self.until }
    }

    /// Whether it has taken too long.
    pub fn is_over(&self, now: Instant) -> bool {
        let is_complete = self.paths.is_none() && self.sockets.is_none();
        let are_tolerated = || is_complete && self.missing().all(|name| self.tolerated.contains(name));
        now >= self.until || (now >= self.tolerated_until && are_tolerated())
    }

    /// The plans after the deadline.
    ///
    /// # Errors
    /// An application that is not tolerated has no plan.
    pub fn give_up(&mut self) -> Result<Planned, String> {
        let seconds = divided(PLANNING_TIMEOUT).as_secs();
        if let Some(mut paths) = self.paths.take() {
            let late = || {
                Err(format!(
                    "cannot check the files of error_pages, user_file and body_temp_path within {seconds} s; does a network file \
                     system hang?"
                ))
            };
            paths.try_recv().unwrap_or_else(|_| late())?;
        }
        if let Some(mut sockets) = self.sockets.take() {
            let late = || Err(format!("listeners: cannot look up the users and groups of sockets within {seconds} s"));
            self.planned.sockets = sockets.try_recv().unwrap_or_else(|_| late())?;
        }
        self.finish()
    }

    /// The plans, in the order of the applications. An application without an answer has failed.
    fn finish(&mut self) -> Result<Planned, String> {
        let late = |name: &str| {
            Err(format!("applications/{name}: cannot check its folders in time; does a network file system hang?"))
        };
        for PlannedApplication { name, answer } in std::mem::take(&mut self.applications) {
            let result = match answer {
                Answer::Known(result) => result,
                Answer::Pending(mut result) => result.try_recv().unwrap_or_else(|_| late(&name)),
            };
            match result {
                Ok(plan) => self.planned.plans.push(plan),
                Err(reason) if self.tolerated.contains(&name) => {
                    self.planned.failures.insert(name, reason);
                }
                Err(reason) => return Err(reason),
            }
        }
        Ok(std::mem::take(&mut self.planned))
    }
}

/// The error when a thread ended without an answer.
fn panicked<T>(subject: &str) -> Result<T, String> {
    Err(format!(
        "{subject}: the check panicked, which is a bug of howdah: please report the line of the panic in its log"
    ))
}
