//! The facts about a file that a 304 leaves out. Compression needs them: a 304 must carry the headers of the 200.

use http::HeaderValue;

/// An extension of a 304 response to a request for a file.
#[derive(Clone, Debug)]
pub struct NotModified {
    /// The Content-Type that a 200 would have, if it would have one.
    pub content_type: Option<HeaderValue>,
    /// The file's length in bytes.
    pub length: u64,
}
