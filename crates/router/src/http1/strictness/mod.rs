//! Strictness: requests that HTTP/1.1 allows to be read in more than one way never reach the parser.
//!
//! Request smuggling needs two programs that read the same bytes differently. hyper refuses most ambiguous requests, and
//! accepts some: equal Content-Lengths become one, Transfer-Encoding overrides Content-Length, a line may end with a bare
//! LF, a fragment is cut from the target. This module checks the bytes before hyper reads them, and they pass only if all
//! programs must agree on the end of the request:
//!
//! - `head`: the request line, the lines, and the headers that give the length of the body
//! - `chunks`: the framing of a chunked body; the contents are not checked
//! - `guard`: both, over a connection with many requests
//! - [`guarded`](crate::http1::guarded): the socket that hyper reads through
//!
//! hyper reads a head only when it is complete. Instead of a refused head it reads a request that the guard has written,
//! so that the answer comes in its turn, after the answers to the requests before it; the [`HeadRefusal`] determines the
//! answer. A body with wrong framing is an error of the body. Bytes behind either are not read. docs/http.md lists the
//! requests and their answers.

mod chunks;
mod guard;
mod head;
mod refusal;

pub use guard::{Guard, GuardError};
pub use refusal::HeadRefusal;
