//! File operations that must not stop an event loop, when a file system does not answer.
//!
//! A look-up in a network file system without its server, or in a FUSE file system whose program hangs, waits in the
//! kernel, possibly without end. An event loop would wait with it, and with it all connections of the loop. Therefore:
//!
//! - [`metadata`] on an event loop answers only if it certainly does not wait: all mounts of the machine are local, or
//!   the kernel has the whole path in its cache, and it leads to a local mount ([`howdah_blocking_work::mounts`]). Otherwise the caller
//!   repeats its work with [`Waiting::Allowed`] on another thread.
//! - [`open_at_once`] is the same for a file that is read. The path of [`metadata`] may lead elsewhere by then: the mount
//!   of the opened file itself is checked.
//! - [`on_file_thread`] runs such work: a few threads for each place (a share, an application's root, a device, a
//!   socket), so that one that hangs cannot take all of them, and with a timeout.
//! - [`open_socket`] is the same for a socket: an event loop connects only to one that it finds without waiting.
//!
//! The control thread of the router reads files of a configuration with a deadline ([`within_deadline`]), and logs in
//! such a file system are written by threads of their own.
//!
//! On a machine with local mounts only, a look-up is one `stat`, as without all of this. A local disk that hangs stops
//! an event loop; so does the first file system that can hang, if it is mounted between the look at the mounts and the
//! system call. The supervisor replaces the router then.

mod at_once;
mod deadline;
mod metadata;
mod threads;

pub use at_once::{PathError, Waiting, WouldWait, canonical_at_once, open_at_once, open_socket};
pub use deadline::within_deadline;
pub use metadata::{metadata, metadata_below};
pub use threads::{
    FILE_THREADS, FilesUnavailable, Place, close_on_file_thread, on_file_thread, on_file_thread_unlogged,
    start_on_file_thread,
};
