//! File operations of the control thread, which must answer the supervisor also when a file system hangs.

use howdah_protocol::test_time::divided;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A configuration has 10 s to be applied.
const DEADLINE: Duration = Duration::from_secs(2);

/// Waits a short time for an operation on files that `option` of the configuration names.
///
/// # Errors
/// Of the operation, or when it takes too long. It is then left to its thread.
pub fn within_deadline<T: Send + 'static>(
    option: &str,
    operation: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let deadline = divided(DEADLINE);
    let (sender, result) = mpsc::channel();
    let thread = thread::Builder::new().name("configuration".into()).spawn(move || drop(sender.send(operation())));
    thread.map_err(|error| format!("{option}: no thread can be started: {error}"))?;
    result.recv_timeout(deadline).unwrap_or_else(|_| {
        let seconds = deadline.as_secs_f32();
        Err(format!("{option}: the file system has not answered for {seconds} s; choose a path on a local one"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_a_deadline() {
        assert_eq!(within_deadline("a", || Ok(7)), Ok(7));
        assert_eq!(within_deadline("a", || Err::<(), _>("wrong".to_owned())), Err("wrong".to_owned()));
        let (_never, silent) = mpsc::channel::<()>();
        let late = within_deadline("a/b", move || silent.recv().map_err(|error| error.to_string()));
        assert!(late.is_err_and(|reason| reason.starts_with("a/b: the file system has not answered for 2 s")));
    }
}
