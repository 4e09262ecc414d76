//! The limit of interim responses: a script or an upstream chooses them.

use http::{HeaderMap, StatusCode};
use std::cell::Cell;

/// How many bytes of interim responses a request has had.
#[derive(Default)]
pub struct InterimLimit {
    used: Cell<usize>,
}

/// The size limit of all interim responses to a request, in bytes.
pub const MAX_BYTES: usize = 16 * 1024;
/// The status line and the empty line at the end, as they count.
const STATUS_LINE_BYTES: usize = 64;
/// The most interim responses that a client gets for a request.
pub const MAX_RESPONSES: usize = MAX_BYTES / STATUS_LINE_BYTES;

// === impl InterimLimit ===

impl InterimLimit {
    /// Another request begins.
    pub fn reset(&self) {
        self.used.set(0);
    }

    /// The size of a response that may be sent, at most; `None` if it is dropped.
    pub fn take(&self, status: StatusCode, headers: &HeaderMap) -> Option<usize> {
        if !may_be_sent(status) {
            return None;
        }
        let lines = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
        let size = STATUS_LINE_BYTES + lines.sum::<usize>();
        let used = self.used.get().saturating_add(size);
        if used > MAX_BYTES {
            tracing::debug!(status = status.as_u16(), "an interim response is dropped: more than {MAX_BYTES} bytes");
            return None;
        }
        self.used.set(used);
        Some(size)
    }

    /// How many bytes were taken.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.used.get()
    }
}

/// 100 belongs to howdah, which reads bodies; 101 is a response.
fn may_be_sent(status: StatusCode) -> bool {
    status.is_informational() && !matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS)
}
