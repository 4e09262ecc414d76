//! What looks for deploys: threads that may wait for slow file systems, so that the supervisor never does.
//!
//! - `swaps`: where the paths of the applications lead, looked at twice a second
//! - `edits`: files that are written, by inotify, for applications that want it
//! - `files`: which files and folders that concerns; pure

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
    /// The generation in force.
    pub generation: u64,
    /// Its options.
    pub application: Application,
    /// Where the paths led when it was made.
    pub led_to: Vec<PinnedLink>,
}

/// What was seen.
#[derive(Debug)]
pub enum Notice {
    /// The paths of these applications lead elsewhere, or lead somewhere again, with where they lead.
    Swapped(Vec<(String, Vec<PinnedLink>)>),
    /// For some seconds it has not been known where the paths of an application lead. When it is again, they are
    /// [`Self::Swapped`], be it to where they led before.
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
        /// When the last of them was.
        at: Instant,
    },
}

/// The threads. They end with the process.
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
    /// Whether the same files are of interest.
    fn is_like(&self, other: &Watched) -> bool {
        self.name == other.name && self.application == other.application && self.led_to == other.led_to
    }
}

// === impl Watch ===

impl Watch {
    /// Without a thread: the first application starts them.
    pub fn new() -> Watch {
        let (for_threads, notices) = mpsc::unbounded_channel();
        Watch { swaps: None, edits: None, notices, for_threads }
    }

    /// Watches these applications from now on, and no others.
    pub fn watch(&mut self, applications: Vec<Watched>) {
        let edited = applications.iter().filter(|watched| watched.application.reload == Reload::OnChange);
        let edited: Vec<_> = edited.cloned().collect();
        tell(&mut self.edits, "edits", edits::run, &self.for_threads, edited);
        tell(&mut self.swaps, "swaps", swaps::run, &self.for_threads, applications);
    }

    /// What was seen.
    pub fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<Notice> {
        match self.notices.poll_recv(cx) {
            Poll::Ready(Some(notice)) => Poll::Ready(notice),
            _ => Poll::Pending,
        }
    }
}

/// Tells a thread, which is started when there is something to watch for the first time.
fn tell(
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
            Err(error) => tracing::error!("deploys are not seen: no thread can be started: {error}"),
        }
    }
    if let Some(thread) = thread {
        // It never ends by itself.
        let _ = thread.send(applications);
    }
}
