//! The end of a connection whose client still sends: what comes is read and dropped for a while.
//!
//! A socket that is closed while something is unread, or that is sent to afterwards, answers with a reset, and a reset
//! takes with it what the client has not read yet: the answer that said why.

use crate::net::socket::Watched;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// The most bytes that are dropped.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The longest that it takes.
const LONGEST: Duration = Duration::from_secs(5);
/// A client that sends nothing for so long has stopped.
const SILENCE: Duration = Duration::from_secs(2);
const BUFFER_BYTES: usize = 16 * 1024;

/// Reads until the client hangs up, stops, or has had its time. What was to be sent has been, and its end, too.
pub async fn linger(socket: &mut Watched) {
    let dropping = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bytes = 0;
        while let Ok(Ok(read)) = timeout(SILENCE, socket.read(&mut buffer)).await {
            bytes += read;
            if read == 0 || bytes > MOST_BYTES {
                break;
            }
        }
    };
    let _ = timeout(LONGEST, dropping).await;
}
