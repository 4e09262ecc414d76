//! Notices deploys: threads that may wait for slow file systems, so that the supervisor never does.
//!
//! - `swaps`: where the paths of the applications lead, resolved twice a second
//! - `edits`: writes to files, reported by inotify, for applications with `"reload": "on-change"`
//! - `messages`: the messages between the supervisor and these threads
//! - `files`: which files and folders count as code; pure

mod edits;
mod files;
mod messages;
mod swaps;

pub use files::is_compiled;
pub use messages::{DeployNotice, WatchedApplication};

use howdah_config::Reload;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The threads and their channels. The threads run until the process exits.
#[derive(Debug)]
pub struct Watch {
    swaps: Option<Sender<Vec<WatchedApplication>>>,
    edits: Option<Sender<Vec<WatchedApplication>>>,
    notices: mpsc::UnboundedReceiver<DeployNotice>,
    for_threads: mpsc::UnboundedSender<DeployNotice>,
}

/// The main function of a thread.
type Run = fn(&std::sync::mpsc::Receiver<Vec<WatchedApplication>>, &mpsc::UnboundedSender<DeployNotice>);

// === impl Watch ===

impl Watch {
    /// Starts no thread: that happens with the first application.
    pub fn new() -> Watch {
        let (for_threads, notices) = mpsc::unbounded_channel();
        Watch { swaps: None, edits: None, notices, for_threads }
    }

    /// Watches these applications from now on, instead of the former ones.
    pub fn watch(&mut self, applications: Vec<WatchedApplication>) {
        let edited = applications.iter().filter(|watched| watched.application.reload == Reload::OnChange);
        let edited: Vec<_> = edited.cloned().collect();
        send_order(&mut self.edits, "edits", edits::run, &self.for_threads, edited);
        send_order(&mut self.swaps, "swaps", swaps::run, &self.for_threads, applications);
    }

    /// The next notice.
    pub fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<DeployNotice> {
        match self.notices.poll_recv(cx) {
            Poll::Ready(Some(notice)) => Poll::Ready(notice),
            _ => Poll::Pending,
        }
    }
}

/// Sends an order to a thread. The thread is started with the first order that names an application.
fn send_order(
    thread: &mut Option<Sender<Vec<WatchedApplication>>>,
    name: &str,
    run: Run,
    notices: &mpsc::UnboundedSender<DeployNotice>,
    applications: Vec<WatchedApplication>,
) {
    if thread.is_none() && !applications.is_empty() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let notices = notices.clone();
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&receiver, &notices));
        match started {
            Ok(_) => *thread = Some(sender),
            Err(error) => {
                tracing::error!("cannot start a thread that watches for deploys; deploys are not noticed: {error}")
            }
        }
    }
    if let Some(thread) = thread {
        // The thread never exits by itself.
        let _ = thread.send(applications);
    }
}
