//! The supervisor's end of a channel: makes it, tells workers to stop, and tidies up after dead ones.

use crate::idle;
use crate::layout::{Geometry, Layout, MAX_WORKERS};
use crate::memory::Memory;
use crate::state::WorkerId;
use crate::sync::Ordering;
use crate::view::View;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The supervisor's end.
#[derive(Debug)]
pub struct ControlEnd {
    memfd: OwnedFd,
    view: View,
}

// === impl ControlEnd ===

impl ControlEnd {
    /// Makes a channel.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn create(geometry: Geometry) -> io::Result<ControlEnd> {
        let memfd = Memory::create(Layout::new(geometry).total_bytes)?;
        let view = View::map(&memfd, geometry)?;
        Ok(ControlEnd { memfd, view })
    }

    /// The channel's memory, to be handed to the other ends.
    pub fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// What the other ends must know.
    pub fn geometry(&self) -> Geometry {
        self.view.layout.geometry
    }

    /// Asks one worker to finish what it does and go.
    pub fn stop_worker(&self, worker: WorkerId) {
        self.view.stop_word(worker.index).store(u32::from(worker.incarnation) + 1, Ordering::SeqCst);
        idle::ring(self.view.doorbell(worker.index));
    }

    /// Asks all workers, those to come too, to finish what they do and go.
    pub fn stop_all(&self) {
        self.view.drain_word().store(1, Ordering::SeqCst);
        for index in 0..MAX_WORKERS {
            idle::ring(self.view.doorbell(index));
        }
    }

    /// A worker is dead: nobody shall try to wake it.
    pub fn worker_died(&self, worker: WorkerId) {
        self.view.idle().leave(worker.index);
    }
}
