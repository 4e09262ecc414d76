//! The lingering close of a connection whose client still sends: its bytes are read and dropped for a while.
//!
//! A socket that is closed with unread bytes, or that receives bytes afterwards, answers with a reset. A reset discards
//! the bytes that the client has not read yet, and with them the response that explains the end.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// The most bytes that are dropped.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// The longest time that it takes.
const LONGEST: Duration = Duration::from_secs(5);
/// A client that sends nothing for this time has stopped.
const SILENCE: Duration = Duration::from_secs(2);
const BUFFER_BYTES: usize = 16 * 1024;

/// Reads until the client closes the connection, stops sending, or the time is over. The response, and the end of
/// howdah's side, must have been sent before.
pub async fn linger(socket: &mut (impl AsyncRead + Unpin)) {
    let dropping = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bytes = 0;
        while let Ok(Ok(read)) = timeout(SILENCE, socket.read(&mut buffer)).await {
            bytes += read;
            if read == 0 || bytes > MAX_BYTES {
                break;
            }
        }
    };
    let _ = timeout(LONGEST, dropping).await;
}
