//! Planning, on a thread of its own: a file system that hangs must not hang the supervisor.

use crate::plan::application::{Defaults, Plan, Strictness, plan};
use howdah_config::Application;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long the machine may take to answer.
const LONGEST_PLANNING: Duration = Duration::from_secs(60);

/// Plans under way.
#[derive(Debug)]
pub struct Planning {
    result: oneshot::Receiver<Result<Vec<Plan>, String>>,
    until: Instant,
}

// === impl Planning ===

impl Planning {
    /// Plans these applications. A thread that hangs is left to itself.
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
        // Without a thread nobody sends, and that is the result.
        let _ = std::thread::Builder::new().name("planning".to_owned()).spawn(plan_all);
        Planning { result, until: now + LONGEST_PLANNING }
    }

    /// The plans, once.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Plan>, String>> {
        let result = ready!(Pin::new(&mut self.result).poll(cx));
        Poll::Ready(result.unwrap_or_else(|_| Err("its folders cannot be looked at: no thread starts".to_owned())))
    }

    /// When it has taken too long.
    pub fn deadline(&self) -> Instant {
        self.until
    }

    /// Why it is given up then.
    pub fn overdue(&self) -> String {
        format!(
            "its folders could not be looked at within {} s; does a network file system hang?",
            LONGEST_PLANNING.as_secs()
        )
    }
}
