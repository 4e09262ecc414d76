//! One request to a control API, on a connection of its own, and its answer.

use crate::client::problem::Problem;
use crate::client::source::Source;
use crate::command_line::parse_address;
use crate::places::Places;
use clap::Args;
use howdah_config::Endpoint;
use howdah_supervisor::system_error::words;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, ETAG, HOST, IF_MATCH};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Which howdah is asked.
#[derive(Debug, Args)]
pub struct Whom {
    /// Where howdah's control API listens: unix:/path or 127.0.0.1:PORT; found by the state directory, if nothing is
    /// said.
    #[arg(long, value_name = "ADDR", global = true, value_parser = parse_address::<Endpoint>)]
    control: Option<String>,
    /// The state directory of the howdah that is asked; /var/lib/howdah, or ~/.local/state/howdah, if nothing is said.
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
}

/// A howdah that can be asked.
#[derive(Debug)]
pub struct Server {
    address: Endpoint,
}

/// What it answered.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    /// The configuration's ETag, if the answer is about it.
    pub etag: Option<String>,
    /// JSON, with lines as they are usual here.
    pub body: String,
    /// The body as it came.
    pub bytes: Bytes,
}

// === impl Server ===

impl Server {
    /// The one that is meant.
    ///
    /// # Errors
    /// When its address is none.
    pub fn of(whom: &Whom) -> Result<Server, String> {
        let places = Places::of_this_user();
        let text = match (&whom.control, &whom.state_dir) {
            (Some(address), _) => address.clone(),
            (None, Some(folder)) => {
                let folder = std::path::absolute(folder).map_err(|error| format!("--state-dir: {error}"))?;
                places.control_of(&folder)
            }
            (None, None) => places.control_of(&places.state_dir),
        };
        Ok(Server { address: text.parse().map_err(|error| format!("--control: {error}"))? })
    }

    /// Asks, and waits for the answer for as long as it takes.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn ask(&self, method: &str, path: &str, if_match: Option<&str>, body: Vec<u8>) -> Result<Answer, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json");
        if let Some(etag) = if_match {
            request = request.header(IF_MATCH, etag);
        }
        let request =
            request.body(Full::new(body.into())).map_err(|error| format!("{path} cannot be asked for: {error}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.map_err(|error| format!("the connection cannot be made: {error}"))?.block_on(async {
            let connected = match &self.address {
                Endpoint::Tcp(address) => {
                    let stream = TcpStream::connect(address).await.map_err(|error| self.unreachable(&error))?;
                    return self.exchange(stream, request).await;
                }
                Endpoint::Unix(path) => UnixStream::connect(path).await,
                Endpoint::Abstract(name) => UnixStream::connect(format!("\0{name}")).await,
            };
            let stream = connected.map_err(|error| self.unreachable(&error))?;
            self.exchange(stream, request).await
        })
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, String> {
        let ended = |error: hyper::Error| {
            format!(
                "howdah on {} gave no answer ({error}); its control socket is only for root and for the user who runs it",
                self.address
            )
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ended)?;
        // Its errors are those of the request, too.
        tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await.map_err(ended)?.into_parts();
        let body = body.collect().await.map_err(ended)?.to_bytes();
        Ok(Answer {
            status: head.status,
            etag: head.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned),
            body: String::from_utf8_lossy(&body).replace("\r\n", "\n"),
            bytes: body,
        })
    }

    fn unreachable(&self, error: &io::Error) -> String {
        let address = &self.address;
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
                "no howdah listens on {address}; start one with `howdah run`, or say where it listens with --control or \
                 --state-dir"
            ),
            io::ErrorKind::PermissionDenied => {
                format!("you may not use {address}: it is only for root and for the user who runs howdah; try sudo")
            }
            _ => {
                format!("howdah on {address} cannot be reached: {}; say where it listens with --control", words(error))
            }
        }
    }
}

// === impl Answer ===

impl Answer {
    /// Itself, if it is a success. `source` is what was sent.
    ///
    /// # Errors
    /// What is wrong, with its place in the source.
    pub fn succeeded(self, source: Option<&Source>) -> Result<Answer, String> {
        match self.problem() {
            None => Ok(self),
            Some(problem) => Err(problem.describe(source)),
        }
    }

    /// Why howdah did not do what it was asked.
    pub fn problem(&self) -> Option<Problem> {
        if self.status.is_success() {
            return None;
        }
        let found = serde_json::from_str(&self.body).ok().and_then(|body: Value| Problem::of_json(&body));
        Some(found.unwrap_or_else(|| {
            Problem::new(format!("The answer is {}: that is no control API of howdah's.", self.status))
        }))
    }

    /// Whether the configuration is not any more what it was.
    pub fn is_overtaken(&self) -> bool {
        self.status == StatusCode::PRECONDITION_FAILED
    }

    /// Whether howdah has nothing at this path.
    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// The text of a success.
    pub fn message(&self) -> String {
        let body: Option<Value> = serde_json::from_str(&self.body).ok();
        let text = body.as_ref().and_then(|body| body.get("success")?.as_str());
        text.map_or_else(|| self.body.clone(), |text| format!("{text}\n"))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// A control API with these answers by their paths, each a status and a body; 404 for all else.
    pub fn api(answers: Vec<(&'static str, (u16, &'static str))>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map(Result::unwrap) {
                let head = BufReader::new(&stream).lines().map(Result::unwrap);
                let head: Vec<_> = head.take_while(|line| !line.is_empty()).collect();
                let path = head[0].split(' ').nth(1).unwrap();
                let found = answers.iter().find(|(its, _)| *its == path);
                let (status, body) = found.map_or((404, r#"{"error": "None."}"#), |(_, answer)| *answer);
                let length = body.len();
                write!(stream, "HTTP/1.1 {status} \r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
                    .unwrap();
            }
        });
        Server { address }
    }
}
