//! Plans applications, each on a thread of its own: a file system that hangs must block neither the supervisor nor the
//! other applications. Another thread looks up the users and groups of Unix sockets.

use crate::os::listen::SocketAccess;
use crate::plan::application::{Plan, plan};
use crate::plan::defaults::{Defaults, Strictness};
use crate::plan::socket_access;
use howdah_config::{Application, Listener};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long the plans of one change may take.
const PLANNING_TIMEOUT: Duration = Duration::from_secs(60);

/// Plans under way, one for each application, and the access to the sockets.
#[derive(Debug)]
pub struct Planning {
    /// `None` once it is in `planned`.
    sockets: Option<oneshot::Receiver<Result<Vec<SocketAccess>, String>>>,
    pending: Vec<(String, oneshot::Receiver<Result<Plan, String>>)>,
    tolerated: BTreeSet<String>,
    planned: Planned,
    until: Instant,
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

// === impl Planning ===

impl Planning {
    /// Plans these applications, and the access to the sockets of these listeners, unless it is known. The failure of
    /// an application in `tolerated` is not a failure of the whole. A thread that hangs is not waited for: it exits
    /// when its file system answers.
    pub fn begin(
        applications: Vec<(String, Application)>,
        listeners: Vec<(Listener, Option<SocketAccess>)>,
        tolerated: &BTreeSet<String>,
        defaults: &Defaults,
        strictness: Strictness,
        now: Instant,
    ) -> Planning {
        let pending = applications.into_iter().map(|(name, application)| {
            let (sender, result) = oneshot::channel();
            let (planned, defaults) = (name.clone(), defaults.clone());
            let plan_one = move || {
                let _ = sender.send(plan(&planned, &application, &defaults, strictness));
            };
            // If no thread can be started, the sender is dropped, and `poll` returns an error.
            let _ = std::thread::Builder::new().name("planning".to_owned()).spawn(plan_one);
            (name, result)
        });
        Planning {
            sockets: Some(begin_sockets(listeners, defaults.socket_group())),
            pending: pending.collect(),
            tolerated: tolerated.clone(),
            planned: Planned::default(),
            until: now + PLANNING_TIMEOUT,
        }
    }

    /// The plans, once, in the order of the applications.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Planned, String>> {
        if let Some(sockets) = &mut self.sockets {
            let access = ready!(Pin::new(sockets).poll(cx));
            self.sockets = None;
            self.planned.sockets = access.unwrap_or_else(|_| Err("cannot start a thread for listeners".to_owned()))?;
        }
        while let Some((name, result)) = self.pending.first_mut() {
            let result = ready!(Pin::new(result).poll(cx));
            let result = result.unwrap_or_else(|_| Err("cannot start a thread that checks its folders".to_owned()));
            let name = std::mem::take(name);
            self.pending.remove(0);
            self.add(name, result)?;
        }
        Poll::Ready(Ok(std::mem::take(&mut self.planned)))
    }

    /// When it has taken too long.
    pub fn deadline(&self) -> Instant {
        self.until
    }

    /// The plans after the deadline.
    ///
    /// # Errors
    /// An application that is not tolerated has no plan.
    pub fn give_up(&mut self) -> Result<Planned, String> {
        let seconds = PLANNING_TIMEOUT.as_secs();
        if let Some(mut sockets) = self.sockets.take() {
            let late = || Err(format!("listeners: cannot look up the users and groups of sockets within {seconds} s"));
            self.planned.sockets = sockets.try_recv().unwrap_or_else(|_| late())?;
        }
        for (name, mut result) in std::mem::take(&mut self.pending) {
            let late = || Err(format!("cannot check its folders within {seconds} s; does a network file system hang?"));
            let result = result.try_recv().unwrap_or_else(|_| late());
            self.add(name, result)?;
        }
        Ok(std::mem::take(&mut self.planned))
    }

    fn add(&mut self, name: String, result: Result<Plan, String>) -> Result<(), String> {
        match result {
            Ok(plan) => self.planned.plans.push(plan),
            Err(reason) if self.tolerated.contains(&name) => {
                self.planned.failures.insert(name, reason);
            }
            Err(reason) => return Err(reason),
        }
        Ok(())
    }
}

/// Looks up names on a thread of its own, if there are any.
fn begin_sockets(
    listeners: Vec<(Listener, Option<SocketAccess>)>,
    group: Option<u32>,
) -> oneshot::Receiver<Result<Vec<SocketAccess>, String>> {
    let (sender, access) = oneshot::channel();
    let has_names = socket_access::has_names(&listeners);
    let look_up = move || {
        let _ = sender.send(socket_access::of_all(&listeners, group));
    };
    if has_names {
        // If no thread can be started, the sender is dropped, and `poll` returns an error.
        let _ = std::thread::Builder::new().name("planning".to_owned()).spawn(look_up);
    } else {
        look_up();
    }
    access
}
