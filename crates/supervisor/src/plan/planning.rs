//! Plans applications on a thread of its own: a file system that hangs must not block the supervisor.

use crate::plan::application::{Defaults, Plan, Strictness, plan};
use howdah_config::Application;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long the plans of one change may take.
const PLANNING_TIMEOUT: Duration = Duration::from_secs(60);

/// Plans under way.
#[derive(Debug)]
pub struct Planning {
    result: oneshot::Receiver<Result<Vec<Plan>, String>>,
    until: Instant,
}

// === impl Planning ===

impl Planning {
    /// Plans these applications. A thread that hangs is not waited for: it exits when its file system answers.
    pub fn begin(
        applications: Vec<(String, Application)>,
        defaults: &Defaults,
        strictness: Strictness,
        now: Instant,
    ) -> Planning {
        let (sender, result) = oneshot::channel();
        let defaults = defaults.clone();
        let plan_all = move || {
            let plans = applications.iter().map(|(name, application)| plan(name, application, &defaults, strictness));
            let _ = sender.send(plans.collect());
        };
        // If no thread can be started, the sender is dropped, and `poll` returns an error.
        let _ = std::thread::Builder::new().name("planning".to_owned()).spawn(plan_all);
        Planning { result, until: now + PLANNING_TIMEOUT }
    }

    /// The plans, once.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Plan>, String>> {
        let result = ready!(Pin::new(&mut self.result).poll(cx));
        Poll::Ready(result.unwrap_or_else(|_| Err("cannot start a thread that checks its folders".to_owned())))
    }

    /// When it has taken too long.
    pub fn deadline(&self) -> Instant {
        self.until
    }

    /// The error after the deadline.
    pub fn timeout_reason(&self) -> String {
        format!("cannot check its folders within {} s; does a network file system hang?", PLANNING_TIMEOUT.as_secs())
    }
}
