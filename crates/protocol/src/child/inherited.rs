//! The descriptors that a child inherits from the process that started it.
//!
//! With [`session`](super::session), the only unsafe code outside of `channel` and `php`: a number becomes an owned descriptor,
//! which no safe function does.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// The number of a child's control socket.
pub const CONTROL_FD: RawFd = 3;
const STANDARD_ERROR: RawFd = 2;

/// Takes ownership of the descriptor that the parent passed at a fixed number. Call it once, at the start of the process.
///
/// # Errors
/// When no descriptor is open at that number.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: only reads and sets a flag of the number; nothing takes ownership of it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open (just checked), and the parent passed it for this call alone: nothing else in this process owns it.
    Ok(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) })
}

/// Marks every open descriptor above the standard streams close-on-exec, so that children inherit no descriptor by accident.
///
/// # Errors
/// When /proc/self/fd cannot be read.
pub fn set_close_on_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        if let Some(number) = number.filter(|number| *number > STANDARD_ERROR) {
            // SAFETY: only sets a flag; the owner of the number stays its owner. A closed number is an error, which is ignored.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
            let _ = rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC);
        }
    }
    Ok(())
}
