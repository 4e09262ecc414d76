//! Notices deploys: threads that may wait for slow file systems, so that the supervisor never does.
//!
//! - `swaps`: where the paths of the applications lead, resolved twice a second
//! - `edits`: writes to files, reported by inotify, for applications with `"reload": "on-change"`
//! - `files`: which files and folders count as code; pure

mod edits;
mod files;
mod swaps;

use howdah_config::{Application, Reload};
use howdah_protocol::generation_paths::PinnedLink;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::mpsc;

/// An application that is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// Its name.
    pub name: String,
    /// Its active generation.
    pub generation: u64,
    /// Its options.
    pub application: Application,
    /// Where the paths led when the generation was planned.
    pub led_to: Vec<PinnedLink>,
}

/// What a thread has noticed.
#[derive(Debug)]
pub enum Notice {
    /// The paths of these applications lead elsewhere, or lead somewhere again, with where they lead.
    Swapped(Vec<(String, Vec<PinnedLink>)>),
    /// It has not been known for some seconds where the paths of an application lead. When it is known again, that is
    /// reported as [`Self::Swapped`], even if they lead where they led before.
    Lost {
        /// The application.
        application: String,
        /// The option, and a sentence.
        problem: String,
    },
    /// A file of an application was written.
    Edited {
        /// The application.
        application: String,
        /// One of the files.
        file: PathBuf,
        /// When the last of these files was written.
        at: Instant,
    },
}

/// The threads. They run until the process exits.
#[derive(Debug)]
pub struct Watch {
    swaps: Option<Sender<Vec<Watched>>>,
    edits: Option<Sender<Vec<Watched>>>,
    notices: mpsc::UnboundedReceiver<Notice>,
    for_threads: mpsc::UnboundedSender<Notice>,
}

type Run = fn(&std::sync::mpsc::Receiver<Vec<Watched>>, &mpsc::UnboundedSender<Notice>);

// === impl Watched ===

impl Watched {
    /// Whether the same files matter for both.
    fn has_same_files_as(&self, other: &Watched) -> bool {
        self.name == other.name && self.application == other.application && self.led_to == other.led_to
    }
}

// === impl Watch ===

impl Watch {
    /// Starts no thread: that happens with the first application.
    pub fn new() -> Watch {
        let (for_threads, notices) = mpsc::unbounded_channel();
        Watch { swaps: None, edits: None, notices, for_threads }
    }

    /// Watches these applications from now on, instead of the former ones.
    pub fn watch(&mut self, applications: Vec<Watched>) {
        let edited = applications.iter().filter(|watched| watched.application.reload == Reload::OnChange);
        let edited: Vec<_> = edited.cloned().collect();
        send_order(&mut self.edits, "edits", edits::run, &self.for_threads, edited);
        send_order(&mut self.swaps, "swaps", swaps::run, &self.for_threads, applications);
    }

    /// The next notice.
    pub fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<Notice> {
        match self.notices.poll_recv(cx) {
            Poll::Ready(Some(notice)) => Poll::Ready(notice),
            _ => Poll::Pending,
        }
    }
}

/// Sends an order to a thread. The thread is started with the first order that names an application.
fn send_order(
    thread: &mut Option<Sender<Vec<Watched>>>,
    name: &str,
    run: Run,
    notices: &mpsc::UnboundedSender<Notice>,
    applications: Vec<Watched>,
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
