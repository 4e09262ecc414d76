//! Turns of the event loop: heads that a client has sent at once may cost much more than their bytes do.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::task::yield_now;

/// The most work of one turn, in bytes of heads.
pub const WORK_OF_TURN: usize = 8 * 1024;

/// Lets other connections have their turn. It wakes the task when the event loop has looked at all sockets.
pub fn yield_turn(context: &mut Context<'_>) -> Poll<io::Result<()>> {
    pin!(yield_now()).poll(context).map(Ok)
}
