//! Strictness: what HTTP/1.1 leaves open to more than one reading never reaches the parser.
//!
//! Request smuggling lives on two programs that read the same bytes differently. hyper refuses most of what is ambiguous,
//! and takes some of it one way: equal Content-Lengths become one, Transfer-Encoding beats Content-Length, a line may end
//! with a bare LF, a fragment is cut from the target. This module looks at the bytes as they pass, and lets them on only
//! if all programs must agree where the request ends:
//!
//! - `head`: the request line, the lines, and the headers that say how long the body is
//! - `chunks`: the framing of a chunked body, of which the contents are not looked at
//! - `guard`: both, over a connection with many requests
//! - [`guarded`](crate::http1::guarded): the socket that hyper reads through
//!
//! hyper gets a head only when it is complete. In the place of one that is refused it gets a request that the guard
//! has written, so that the answer comes in its turn, after those to the requests before it; the [`Refusal`] says which
//! one that is. A body whose framing is wrong is an error of the body. Nothing behind either is read. docs/http.md lists
//! what comes and what is answered.

mod chunks;
mod guard;
mod head;
mod refusal;

pub use guard::{Guard, Trouble};
pub use refusal::Refusal;
