//! The numbers of the thread, for `GET /metrics`. They are in memory of the supervisor, and outlive the router.

use howdah_metrics::layout::Scalar;
use howdah_metrics::recorder::Recorder;
use howdah_telemetry::pipe::SpanWriter;
use std::cell::OnceCell;
use std::sync::OnceLock;

thread_local! {
    static RECORDER: OnceCell<Recorder> = const { OnceCell::new() };
}

/// The pipe of the spans of all threads.
static SPANS: OnceLock<SpanWriter> = OnceLock::new();

/// Lets all threads write their spans here. Before that, and in unit tests, they are lost.
pub fn set_span_writer(writer: SpanWriter) {
    // A process is a router once.
    let _ = SPANS.set(writer);
}

/// Calls `act` with the pipe of the spans.
pub fn with_span_writer<T>(act: impl FnOnce(&SpanWriter) -> T) -> Option<T> {
    SPANS.get().map(act)
}

/// Lets this thread count here. Before that, and in unit tests, nothing is counted.
pub fn count_with(recorder: Recorder) {
    RECORDER.with(|cell| drop(cell.set(recorder)));
}

/// Counts an event of the thread.
pub fn count(scalar: Scalar) {
    with_recorder(|recorder| recorder.count(scalar));
}

/// Counts several events of the thread.
pub fn count_by(scalar: Scalar, number: u64) {
    with_recorder(|recorder| recorder.count_by(scalar, number));
}

/// Calls `act` with the thread's recorder.
pub fn with_recorder<T>(act: impl FnOnce(&Recorder) -> T) -> Option<T> {
    // At the end of the thread there is nothing left to count.
    RECORDER.try_with(|cell| cell.get().map(act)).ok().flatten()
}
