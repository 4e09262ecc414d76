//! The messages between the supervisor and its watching threads: the applications to watch, and the deploys that a
//! thread has noticed.

use howdah_config::PhpApplication;
use howdah_protocol::messages::generation_paths::PinnedLink;
use std::path::PathBuf;
use std::time::Instant;

/// An application that is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedApplication {
    /// Its name.
    pub name: String,
    /// Its active generation.
    pub generation: u64,
    /// When that was made.
    pub made: Instant,
    /// Its options.
    pub application: PhpApplication,
    /// Where the paths led when the generation was planned.
    pub led_to: Vec<PinnedLink>,
}

/// A change that a thread has noticed.
#[derive(Debug, PartialEq)]
pub enum DeployNotice {
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
        /// The files, the first one first; not all of very many.
        files: Vec<PathBuf>,
        /// When the last of these files was written.
        at: Instant,
    },
}

// === impl WatchedApplication ===

impl WatchedApplication {
    /// Whether the same files matter for both.
    pub fn has_same_files_as(&self, other: &WatchedApplication) -> bool {
        self.name == other.name && self.application == other.application && self.led_to == other.led_to
    }
}
