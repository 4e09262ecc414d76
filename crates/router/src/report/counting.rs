//! The numbers of the thread, for `GET /metrics`. They are in memory of the supervisor, and outlive the router.

use howdah_metrics::layout::Scalar;
use howdah_metrics::recorder::Recorder;
use std::cell::OnceCell;

thread_local! {
    static RECORDER: OnceCell<Recorder> = const { OnceCell::new() };
}

/// Lets this thread count here. Before that, and in unit tests, nothing is counted.
pub fn count_with(recorder: Recorder) {
    RECORDER.with(|cell| drop(cell.set(recorder)));
}

/// Counts an event of the thread.
pub fn count(scalar: Scalar) {
    with_recorder(|recorder| recorder.count(scalar));
}

/// Calls `act` with the thread's recorder.
pub fn with_recorder<T>(act: impl FnOnce(&Recorder) -> T) -> Option<T> {
    // At the end of the thread there is nothing left to count.
    RECORDER.try_with(|cell| cell.get().map(act)).ok().flatten()
}
