//! The channel of a worker, and the name of the worker in it.

use crate::memory::layout::Geometry;
use crate::slot_state::WorkerId;
use crate::view::View;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The channel, which the prototype maps once for all the workers that it forks.
#[derive(Clone, Debug)]
pub struct WorkerChannel {
    pub(super) view: Arc<View>,
    pub(super) bells: Arc<Vec<OwnedFd>>,
}

/// The state that a worker's end and its claims share.
#[derive(Debug)]
pub(super) struct Own {
    pub channel: WorkerChannel,
    pub me: WorkerId,
    /// The eventfds of the router are closed.
    pub cannot_notify: AtomicBool,
}

// === impl WorkerChannel ===

impl WorkerChannel {
    /// Maps the channel. `bells` are the eventfds of the router's threads, in their order.
    ///
    /// # Errors
    /// When the memory is not a channel of this geometry, or the number of bells is not the number of threads.
    pub fn attach(memfd: impl AsFd, geometry: Geometry, bells: Vec<OwnedFd>) -> io::Result<WorkerChannel> {
        if bells.len() != usize::from(geometry.threads) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not one eventfd for each router thread"));
        }
        Ok(WorkerChannel { view: Arc::new(View::map(memfd, geometry)?), bells: Arc::new(bells) })
    }
}
