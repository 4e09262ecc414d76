//! Ctrl-C and SIGTERM end a lab in order: what was started is stopped, what was measured is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// A flag that is set by SIGINT, SIGTERM and SIGHUP.
///
/// # Errors
/// The kernel gives no thread.
pub fn flag() -> Result<Arc<AtomicBool>, String> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let wait = async move {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else { return };
        let _ = ready.send(());
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            set.store(true, Ordering::Relaxed);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot wait for signals: {error}"))?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || runtime.block_on(wait))
        .map_err(|error| format!("cannot wait for signals: {error}"))?;
    is_ready.recv().map_err(|_| "cannot wait for signals".to_owned())?;
    Ok(flag)
}
