//! Strictness: a request that two HTTP/1.1 programs could read differently never reaches the parser.
//!
//! Request smuggling needs two programs that read the same bytes differently. hyper refuses most ambiguous requests, and
//! accepts some: equal Content-Lengths become one, Transfer-Encoding overrides Content-Length, a line may end with a bare
//! LF, a fragment is cut from the target. This module checks the bytes before hyper reads them. They pass only if every
//! program finds the same end of the request:
//!
//! - `head`: the request line, the lines, and the headers that give the length of the body
//! - `chunks`: the framing of a chunked body; the contents are not checked
//! - `guard`: both, over a connection with many requests
//! - [`guarded`](crate::protocols::http1::guarded): the socket that hyper reads through
//!
//! hyper receives a head only when the head is complete. The guard replaces a refused head with a request of its own. The
//! answer is then sent in order, after the answers to the requests before it; the [`HeadRefusal`] determines this answer.
//! For a body with wrong framing, hyper receives an error while it reads the body. In both cases, no later bytes of the
//! connection are read. docs/http.md lists the requests and their answers.

mod chunks;
mod guard;
mod head;

pub use guard::{Guard, GuardError};
