//! A thread's port to a generation: its requests in the channel, from their submission to the last byte of the response.
//!
//! A request waits for a slot (`submit`) and is then a [`RunningRequest`] in the table of the port (`active`). The
//! thread's mailbox names the slots that need attention, and the [`GenerationPort`] moves bytes: response bytes out of
//! the ring into a spool, request body bytes into the ring. It does so whether or not the client is quick, until the
//! spool is full. `receive` hands the spooled bytes to the task that answers the client. `wake` wakes workers that sleep.
//!
//! Failures are answered and logged: a dead worker (502, or a cut response if it had begun), a worker that breaks the
//! channel's rules (502; the supervisor replaces the generation's workers), a full disk (500).

mod active;
mod cancel;
mod generation_port;
mod receive;
mod running;
mod submit;
#[cfg(test)]
mod tests;
mod turn_budget;
mod wake;

pub use cancel::CancelOnDrop;
pub use generation_port::{GenerationPort, SWEEP};
pub use receive::{Started, head, poll_body};
pub use running::{Remainder, RunningRequest, Wait};
pub use submit::submit;
