//! Notices deploys: threads that may wait for slow file systems, so that the supervisor never does.
//!
//! - `swaps`: where the paths of the applications lead, resolved twice a second
//! - `edits`: writes to files, reported by inotify: a thread for each application with `"reload": "on-change"`
//! - `messages`: the messages between the supervisor and these threads
//! - `files`: which files and folders count as code; pure

mod edits;
mod files;
mod messages;
mod swaps;

pub use files::is_compiled;
pub use messages::{DeployNotice, WatchedApplication};

use howdah_config::Reload;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, watch};

/// The threads and their channels. A thread of `edits` ends with its application, the other one with the process.
#[derive(Debug)]
pub struct Watch {
    swaps: Option<Sender<Vec<WatchedApplication>>>,
    /// One thread for each application, by its name. A thread that hangs finds the last order only.
    edits: BTreeMap<String, watch::Sender<WatchedApplication>>,
    notices: mpsc::UnboundedReceiver<DeployNotice>,
    for_threads: mpsc::UnboundedSender<DeployNotice>,
}

// === impl Watch ===

impl Watch {
    /// Starts no thread: that happens with the first application.
    pub fn new() -> Watch {
        let (for_threads, notices) = mpsc::unbounded_channel();
        Watch { swaps: None, edits: BTreeMap::new(), notices, for_threads }
    }

    /// Watches these applications from now on, instead of the former ones.
    pub fn watch(&mut self, applications: Vec<WatchedApplication>) {
        let edited = applications.iter().filter(|watched| watched.application.reload == Reload::OnChange);
        self.watch_edits(edited.cloned().collect());
        if self.swaps.is_none() && !applications.is_empty() {
            let started = start_swaps(&self.for_threads);
            let failed = |error: &io::Error| {
                tracing::error!("cannot start the thread that watches for deploys; deploys are not noticed: {error}");
            };
            self.swaps = started.inspect_err(failed).ok();
        }
        if let Some(thread) = &self.swaps {
            // It never exits by itself.
            let _ = thread.send(applications);
        }
    }

    fn watch_edits(&mut self, applications: Vec<WatchedApplication>) {
        // The other threads end.
        self.edits.retain(|name, _| applications.iter().any(|watched| watched.name == *name));
        for watched in applications {
            let thread = match self.edits.remove(&watched.name) {
                Some(thread) => {
                    thread.send_replace(watched.clone());
                    thread
                }
                None => match self.start_edits(watched.clone()) {
                    Ok(thread) => thread,
                    Err(error) => {
                        let name = &watched.name;
                        tracing::error!(
                            "cannot start a thread that watches the files of {name:?}; edits are not noticed: {error}"
                        );
                        continue;
                    }
                },
            };
            self.edits.insert(watched.name, thread);
        }
    }

    fn start_edits(&self, watched: WatchedApplication) -> io::Result<watch::Sender<WatchedApplication>> {
        let ((sender, orders), notices) = (watch::channel(watched), self.for_threads.clone());
        std::thread::Builder::new().name("edits".to_owned()).spawn(move || edits::run(orders, &notices))?;
        Ok(sender)
    }

    /// The next notice.
    pub fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<DeployNotice> {
        match self.notices.poll_recv(cx) {
            Poll::Ready(Some(notice)) => Poll::Ready(notice),
            _ => Poll::Pending,
        }
    }
}

/// Starts the thread that follows where paths lead, and returns the sender of its orders.
fn start_swaps(notices: &mpsc::UnboundedSender<DeployNotice>) -> io::Result<Sender<Vec<WatchedApplication>>> {
    let ((sender, orders), notices) = (std::sync::mpsc::channel(), notices.clone());
    std::thread::Builder::new().name("swaps".to_owned()).spawn(move || swaps::run(&orders, &notices))?;
    Ok(sender)
}
