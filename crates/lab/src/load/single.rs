//! One request over a connection of its own, blocking: for checks before a load, not for measurements.

use super::connection::Endpoint;
use super::response::{Reading, Response};
use super::target::{Checks, Target};
use regex::bytes::Regex;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The header fields with their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as far as it is shorter than 16 MiB.
    pub body: Vec<u8>,
    /// Whether it passes the checks of its target.
    pub is_right: bool,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

// === impl Answer ===

impl Answer {
    /// The first value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// Sends one request and waits for its response.
///
/// # Errors
/// There is no complete response in time; the message names the reason.
pub fn request(endpoint: &Endpoint, host: &str, target: &Target, timeout: Duration) -> Result<Answer, String> {
    let deadline = Instant::now() + timeout;
    exchange(endpoint, host, target, timeout, deadline).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("no response within {} s", timeout.as_secs_f64())
        }
        _ => error.to_string(),
    })
}

fn exchange(
    endpoint: &Endpoint,
    host: &str,
    target: &Target,
    timeout: Duration,
    deadline: Instant,
) -> io::Result<Answer> {
    let mut stream: Box<dyn Stream> = match endpoint {
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            Box::new(stream)
        }
        Endpoint::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            Box::new(stream)
        }
    };
    stream.write_all(format!("{}\r\n", target.head(host, false)).as_bytes())?;
    stream.write_all(&target.body)?;
    // A pattern that matches all bodies: they are kept.
    let keeping = Checks { matches: Regex::new("").ok(), headers: target.checks.headers.clone(), ..Checks::default() };
    let reading = Reading { checks: &keeping, is_head: target.method == "HEAD", keeps_cookies: false };
    let (mut response, mut received, mut buffer) = (Response::default(), Vec::new(), vec![0; 16 * 1024]);
    let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, "the response is not HTTP");
    loop {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            if response.end_of_connection() {
                break;
            }
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended before the response"));
        }
        if received.len() < 256 * 1024 {
            received.extend_from_slice(&buffer[..length]);
        }
        if response.feed(&buffer[..length], reading).map_err(malformed)? {
            break;
        }
    }
    let (length, body) = response.body();
    let is_right = target.checks.is_right_status(response.status())
        && response.has_right_headers()
        && target.checks.is_right_body(length, body);
    Ok(Answer { status: response.status(), headers: headers(&received), body: body.to_vec(), is_right })
}

/// The header fields of the final response in these bytes.
fn headers(mut bytes: &[u8]) -> Vec<(String, String)> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 128];
        let mut head = httparse::Response::new(&mut headers);
        let Ok(httparse::Status::Complete(length)) = head.parse(bytes) else { return Vec::new() };
        if !matches!(head.code, Some(100..=199)) {
            let field = |header: &httparse::Header| {
                (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).into_owned())
            };
            return head.headers.iter().map(field).collect();
        }
        bytes = &bytes[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_response_has_status_headers_and_body() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let length = stream.read(&mut [0; 4096]).unwrap();
            let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            write!(stream, "{early}HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\nno").unwrap();
            length
        });
        let answer = request(&endpoint, "localhost", &Target::get("/"), Duration::from_secs(5)).unwrap();
        assert!(server.join().unwrap() > 20);
        assert_eq!((answer.status, answer.body.as_slice(), answer.is_right), (404, &b"no"[..], false));
        assert_eq!(answer.header("content-type"), Some("text/plain"));
        assert_eq!(answer.header("link"), None);
        assert!(request(&endpoint, "localhost", &Target::get("/"), Duration::from_secs(5)).is_err());
    }
}
