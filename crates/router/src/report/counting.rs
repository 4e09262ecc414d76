//! The numbers of the thread, for `GET /metrics`. They are in memory of the supervisor, and outlive the router.

use howdah_metrics::layout::Scalar;
use howdah_metrics::recorder::Recorder;
use howdah_system_log::log::Log;
use howdah_telemetry::logs::{self, LogLine};
use std::cell::OnceCell;

thread_local! {
    static RECORDER: OnceCell<Recorder> = const { OnceCell::new() };
}

/// Sends a line of a log to the collector of `settings/telemetry`, and counts it.
pub fn send_log_line(line: &LogLine) {
    let sent = logs::send(line);
    let is_counted = with_recorder(|recorder| {
        recorder.count(Scalar::LogRecords);
        recorder.count_by(Scalar::LogRecordsLost, u64::from(sent.is_err()));
    });
    if is_counted.is_none() {
        logs::count(sent);
    }
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

/// Counts the lines that log daemons do not get, of all threads of this process.
pub fn count_lost_lines() {
    count_by(Scalar::AccessLinesLost, Log::Access.take_lost());
    count_by(Scalar::OwnLinesLost, Log::Error.take_lost());
}

/// Calls `act` with the thread's recorder.
pub fn with_recorder<T>(act: impl FnOnce(&Recorder) -> T) -> Option<T> {
    // At the end of the thread there is nothing left to count.
    RECORDER.try_with(|cell| cell.get().map(act)).ok().flatten()
}
