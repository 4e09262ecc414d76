//! A check of one process: whether it accepts a connection, and answers a request if `health_check` is set.
//!
//! Of the answer, the supervisor reads the status, and throws the rest away. A failure is a phrase for the log.

use howdah_config::{Endpoint, HealthCheck};
use howdah_protocol::sockets::application_socket::ApplicationSocket;
use howdah_protocol::sockets::refused_descriptors::refuse_descriptors;
use howdah_protocol::sockets::tcp_peer::check_listening_user;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixSocket};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A check under way. Dropping it ends it.
#[derive(Debug)]
pub struct Probe {
    task: JoinHandle<Result<(), String>>,
}

/// How long a connection may take without `health_check`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The beginning of an answer: `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;
/// How much of an answer is read at once: mostly all of it, so that the process can send it.
const ANSWER_BYTES: usize = 16 * 1024;

// === impl Probe ===

impl Probe {
    /// Begins a check.
    pub fn begin(endpoint: Endpoint, listening_user: Option<u32>, check: Option<HealthCheck>) -> Probe {
        let limit = check.as_ref().map_or(CONNECT_TIMEOUT, |check| check.timeout);
        let task = tokio::spawn(async move {
            let result = timeout(limit, probe(&endpoint, listening_user, check.as_ref())).await;
            result.unwrap_or_else(|_| Err(format!("no response within {} s", limit.as_secs_f64())))
        });
        Probe { task }
    }

    /// Its result, once.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        let result = Pin::new(&mut self.task).poll(cx);
        result.map(|result| result.unwrap_or_else(|error| Err(error.to_string())))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn probe(endpoint: &Endpoint, listening_user: Option<u32>, check: Option<&HealthCheck>) -> Result<(), String> {
    let variable = if matches!(endpoint, Endpoint::Unix(_)) { "HOWDAH_SOCKET" } else { "PORT" };
    let refused = |error: io::Error| {
        format!("it does not accept a connection at {endpoint} (${variable} of its environment): {error}")
    };
    match endpoint {
        Endpoint::Unix(path) => {
            let file = ApplicationSocket::open(path).map_err(refused)?;
            let socket = UnixSocket::new_stream().map_err(refused)?;
            refuse_descriptors(&socket);
            let socket = socket.connect(file.path()).await.map_err(refused)?;
            // The router requires the same.
            let user = socket.peer_cred().map_err(refused)?.uid();
            match listening_user.filter(|expected| *expected != user) {
                None => ask(socket, endpoint, check).await,
                Some(expected) => Err(format!(
                    "user id {user} listens at {endpoint}, but the user id of the application is {expected}; set \"user\""
                )),
            }
        }
        Endpoint::Tcp(address) => {
            let socket = TcpStream::connect(address).await.map_err(refused)?;
            if let Some(expected) = listening_user {
                let own = socket.local_addr().map_err(refused)?;
                check_listening_user(*address, own, expected)
                    .map_err(|error| format!("{endpoint} is not its address: {error}"))?;
            }
            ask(socket, endpoint, check).await
        }
        Endpoint::Name { .. } | Endpoint::Abstract(_) => Err(format!("{endpoint} is not an address of a process")),
    }
}

async fn ask(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    endpoint: &Endpoint,
    check: Option<&HealthCheck>,
) -> Result<(), String> {
    let Some(check) = check else { return Ok(()) };
    let path = &check.path;
    let host = check.host.clone().unwrap_or_else(|| match endpoint {
        Endpoint::Tcp(address) => address.to_string(),
        _ => "localhost".to_owned(),
    });
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: howdah (health check)\r\nConnection: close\r\n\r\n"
    );
    let broken = |error: io::Error| format!("GET {path}: {error}");
    socket.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut answer = Vec::with_capacity(ANSWER_BYTES);
    while answer.len() < STATUS_BYTES {
        if socket.read_buf(&mut answer).await.map_err(broken)? == 0 {
            return Err(format!("GET {path}: it closed the connection before its response"));
        }
    }
    let status = status(&answer).ok_or_else(|| format!("GET {path}: its response is not HTTP"))?;
    match check.accepts(status) {
        true => Ok(()),
        false => Err(format!("GET {path}: it answered {status}")),
    }
}

fn status(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?;
    let digits = rest.strip_prefix(b"0 ").or(rest.strip_prefix(b"1 "))?;
    std::str::from_utf8(digits.get(..3)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_from_the_first_bytes() {
        let cases: [(&[u8], _); 5] = [
            (b"HTTP/1.1 200", Some(200)),
            (b"HTTP/1.0 503", Some(503)),
            (b"HTTP/2.0 200", None),
            (b"HTTP/1.1 2xx", None),
            (b"SSH-2.0-Open", None),
        ];
        for (head, expected) in cases {
            assert_eq!(status(head), expected);
        }
    }
}
