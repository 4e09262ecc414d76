//! The reasons to refuse a head.

/// Why a head is refused before it becomes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadRefusal {
    /// 400, with the part that is wrong.
    Bad(&'static str),
    /// 400: the request line has another protocol than HTTP. A client of HTTP/2 whose preface is wrong gets no answer.
    OtherProtocol,
    /// 408: the head has no end within `settings/http/header_read_timeout`.
    Late,
    /// 414: the request line has no end within [`MAX_HEAD_BYTES`](crate::protocols::connection::limits::MAX_HEAD_BYTES).
    TargetTooLong,
    /// 431: the head has no end within [`MAX_HEAD_BYTES`](crate::protocols::connection::limits::MAX_HEAD_BYTES).
    HeadTooLarge,
    /// 501: a transfer coding besides `chunked`, or a protocol in the place of HTTP that is no WebSocket.
    Unknown,
    /// 505: an unknown version of HTTP.
    Version,
}
