//! Descriptors in the event loop of the current thread.

use std::io;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the event loop.
///
/// # Errors
/// When no more descriptors can be watched.
#[allow(deprecated)] // `new` is deprecated for types whose descriptor could change: those here own one and keep it.
pub fn watch<T: AsRawFd>(source: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(source)
}

/// The same for one direction.
///
/// # Errors
/// When no more descriptors can be watched.
#[allow(deprecated)] // As above.
pub fn watch_for<T: AsRawFd>(source: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(source, interest)
}
