//! Operations on files that may hang, with a limit of time: the supervisor has one thread, and all else would wait with it.
//!
//! An operation that hangs is left to its thread, which ends when the file system answers. On a machine with local file systems
//! only, most operations have no thread.

use howdah_blocking_work::mounts::are_all_local;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

/// The longest that the supervisor waits for a file.
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// The same at its start, when nothing else waits for the supervisor, and the machine may be busy.
pub const TIMEOUT_AT_START: Duration = Duration::from_secs(10);

/// The name of the threads.
pub const THREAD: &str = "file";

/// Does this on a thread, and waits no longer than `timeout`. A late result is dropped on the thread.
///
/// # Errors
/// Of the operation, or when it takes too long, or when there is no thread.
pub fn within<T: Send + 'static>(
    timeout: Duration,
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, result) = mpsc::channel();
    let on_thread = move || drop(sender.send(operation()));
    std::thread::Builder::new().name(THREAD.to_owned()).spawn(on_thread)?;
    let late = |_| io::Error::other(format!("no answer from its file system in {} s", timeout.as_secs()));
    result.recv_timeout(timeout).map_err(late)?
}

/// The same, without a thread if all file systems are local.
///
/// # Errors
/// As above.
pub fn within_if_it_may_hang<T: Send + 'static>(
    timeout: Duration,
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if are_all_local() { operation() } else { within(timeout, operation) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_a_limit_of_time() {
        assert_eq!(within(TIMEOUT_AT_START, || Ok(7)).unwrap(), 7);
        assert_eq!(within_if_it_may_hang(TIMEOUT, || Ok(7)).unwrap(), 7);
        assert_eq!(
            within(TIMEOUT, || Err::<(), _>(io::ErrorKind::NotFound.into())).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let (never, silent) = mpsc::channel::<()>();
        let late = within(TIMEOUT, move || silent.recv().map_err(io::Error::other)).unwrap_err();
        assert_eq!(late.to_string(), "no answer from its file system in 1 s");
        drop(never);
    }
}
