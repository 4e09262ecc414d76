//! The address of a control API, and one request to it on a connection of its own.

use crate::argument::parse_address;
use crate::control_client::response::ApiResponse;
use crate::paths::{ServeFolders, StatePaths, absolute};
use clap::Args;
use howdah_blocking_work::connect;
use howdah_config::Endpoint;
use howdah_protocol::sockets::refused_descriptors;
use howdah_protocol::sockets::tcp_peer::check_listening_user;
use howdah_supervisor::system_error::error_text;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, ETAG, HOST, IF_MATCH};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::socket_peercred;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The options that choose a running howdah.
#[derive(Debug, Args)]
pub struct ApiOptions {
    /// The address of the control API: unix:/path or 127.0.0.1:PORT. Default: the socket that belongs to --state-dir.
    #[arg(long, value_name = "ADDR", global = true, value_parser = parse_address::<Endpoint>)]
    control: Option<String>,
    /// The folder of a running howdah serve. Default: the current folder, or the only one that is served.
    #[arg(long, value_name = "DIR", global = true, conflicts_with_all = ["control", "state_dir"])]
    folder: Option<PathBuf>,
    /// The state directory of the running howdah. Default: /var/lib/howdah for root, else ~/.local/state/howdah.
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
}

// === impl ApiOptions ===

impl ApiOptions {
    /// The state directory, absolute.
    ///
    /// # Errors
    /// The current folder does not exist.
    pub fn state_dir(&self) -> Result<PathBuf, String> {
        let folder = self.state_dir.clone().unwrap_or_else(|| StatePaths::of_this_user().state_dir);
        std::path::absolute(folder).map_err(|error| format!("--state-dir: {error}"))
    }
}

/// The control API of one howdah. Each request opens a connection.
#[derive(Debug)]
pub struct ControlApi {
    address: Endpoint,
}

// === impl ControlApi ===

impl ControlApi {
    /// The control API that the options choose.
    ///
    /// # Errors
    /// Its address is not valid.
    pub fn new(options: &ApiOptions) -> Result<ControlApi, String> {
        let paths = StatePaths::of_this_user();
        let text = match (&options.control, &options.folder, &options.state_dir) {
            (Some(address), ..) => address.clone(),
            (None, Some(folder), _) => serving(&absolute(folder)?)?,
            (None, None, Some(_)) => paths.control_address(&options.state_dir()?),
            (None, None, None) => default_address(paths.control_address(&paths.state_dir))?,
        };
        Ok(ControlApi { address: text.parse().map_err(|error| format!("--control: {error}"))? })
    }

    /// Its address, as for `--control`.
    pub fn address(&self) -> &Endpoint {
        &self.address
    }

    /// Sends a GET request; see [`Self::request`].
    ///
    /// # Errors
    /// There is no response.
    pub fn get(&self, path: &str) -> Result<ApiResponse, String> {
        self.request("GET", path, None, Vec::new())
    }

    /// Sends a request and waits for the response, without a timeout: a change may take as long as PHP takes to start.
    ///
    /// # Errors
    /// There is no response.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Vec<u8>,
    ) -> Result<ApiResponse, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(|error| format!("cannot create the connection: {error}"))?;
        runtime.block_on(self.send(method, path, if_match, body))
    }

    /// The same on a runtime of the caller. If the result is no longer awaited, the connection is closed: howdah then ends
    /// a recording, but completes a change.
    ///
    /// # Errors
    /// There is no response.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Vec<u8>,
    ) -> Result<ApiResponse, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json");
        if let Some(etag) = if_match {
            request = request.header(IF_MATCH, etag);
        }
        let request =
            request.body(Full::new(body.into())).map_err(|error| format!("cannot request {path}: {error}"))?;
        let connected = match &self.address {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(|error| self.unreachable(&error))?;
                self.check_listener(&stream)?;
                return self.exchange(stream, request).await;
            }
            Endpoint::Name { host, port } => {
                let stream = connect(host, *port).await.map_err(|error| self.unreachable(&error))?;
                self.check_listener(&stream)?;
                return self.exchange(stream, request).await;
            }
            Endpoint::Unix(path) => connect_unix(path),
            Endpoint::Abstract(name) => connect_unix(Path::new(&format!("\0{name}"))),
        };
        let stream = connected.map_err(|error| self.unreachable(&error))?;
        self.exchange(stream, request).await
    }

    /// Checks that a port of this machine belongs to root, or to this user: another user can listen there while no howdah does, and
    /// would get the configurations and keys that are sent.
    fn check_listener(&self, stream: &TcpStream) -> Result<(), String> {
        let ends = stream.peer_addr().and_then(|server| Ok((server, stream.local_addr()?)));
        let (server, own) = ends.map_err(|error| self.unreachable(&error))?;
        if !server.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        check_listening_user(server, own, rustix::process::geteuid().as_raw()).map_err(|error| {
            let advice = "if that is its howdah, run this command as that user, such as with sudo -u";
            format!("nothing was sent to {}: {error}; {advice}", self.address)
        })
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<ApiResponse, String> {
        let ended = |error: hyper::Error| {
            format!(
                "howdah on {} closed the connection ({error}); only root and the user who runs it may use its control API",
                self.address
            )
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ended)?;
        let exchanged = async {
            let (head, body) = sender.send_request(request).await.map_err(ended)?.into_parts();
            Ok::<_, String>((head, body.collect().await.map_err(ended)?.to_bytes()))
        };
        // Beside each other in one task: the connection is closed with the last of both.
        let mut connection = pin!(connection);
        let mut exchanged = pin!(exchanged);
        let mut is_closed = false;
        let (head, body) = poll_fn(|cx| {
            // Its errors are errors of the request, too.
            is_closed = is_closed || connection.as_mut().poll(cx).is_ready();
            exchanged.as_mut().poll(cx)
        })
        .await?;
        Ok(ApiResponse {
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
                "no howdah listens on {address}; start one with `howdah run` or `howdah serve`, or choose another with \
                 --control, --folder or --state-dir"
            ),
            io::ErrorKind::PermissionDenied => {
                format!("permission denied on {address}: only root and the user who runs howdah may use it; try sudo")
            }
            io::ErrorKind::WouldBlock => busy(address),
            _ => {
                format!(
                    "cannot connect to howdah on {address}: {}; choose its address with --control",
                    error_text(error)
                )
            }
        }
    }
}

/// Connects to a socket. Any user can listen at an abstract name while no howdah does: descriptors that it attaches to its
/// answer must not stop this process.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    UnixStream::from_std(refused_descriptors::connect(path)?)
}

fn busy(address: impl Display) -> String {
    format!("too many connections wait for howdah on {address}; try again, or choose another with --control")
}

/// The control API of the `howdah serve` of this folder.
fn serving(folder: &Path) -> Result<String, String> {
    let running = ServeFolders::of_this_user().running(Some(folder));
    only(running).unwrap_or_else(|| {
        Err(format!("no `howdah serve` of this user serves {}; its first lines have its folder", folder.display()))
    })
}

/// The control API of `howdah run`, or else of the only `howdah serve`, or of the one that serves the current folder. A
/// stranger who listens in place of this user's howdah would get the configurations that this user sends.
fn default_address(of_run: String) -> Result<String, String> {
    let listener = of_run.strip_prefix("unix:").map(|path| refused_descriptors::connect(Path::new(path)));
    // Its user is not known, and may be a stranger.
    if let Some(Err(error)) = &listener
        && error.kind() == io::ErrorKind::WouldBlock
    {
        return Err(busy(of_run));
    }
    if let Some(Ok(listener)) = listener {
        let user = socket_peercred(&listener).map_err(|error| format!("cannot check who runs {of_run}: {error}"))?.uid;
        return match user.is_root() || user == rustix::process::geteuid() {
            true => Ok(of_run),
            false => Err(format!(
                "user id {} runs the howdah on {of_run}; if you trust that user, choose it with --control",
                user.as_raw()
            )),
        };
    }
    let serves = ServeFolders::of_this_user();
    let running = serves.running(None);
    let here = absolute(Path::new(".")).map(|folder| serves.running(Some(&folder))).unwrap_or_default();
    only(if running.len() > 1 && here.len() == 1 { here } else { running }).unwrap_or(Ok(of_run))
}

/// The only address; `None` without any.
fn only(mut running: Vec<String>) -> Option<Result<String, String>> {
    match running.len() {
        0 | 1 => running.pop().map(Ok),
        several => Some(Err(format!(
            "{several} `howdah serve` are running; choose one with --folder DIR, or with --control and one of {}",
            running.join(", ")
        ))),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// A control API with these responses, each a status and a body, by their paths; 404 for all other paths.
    pub fn api(responses: Vec<(&'static str, (u16, &'static str))>) -> ControlApi {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map(Result::unwrap) {
                let head = BufReader::new(&stream).lines().map(Result::unwrap);
                let head: Vec<_> = head.take_while(|line| !line.is_empty()).collect();
                let path = head[0].split(' ').nth(1).unwrap();
                let found = responses.iter().find(|(its_path, _)| *its_path == path);
                let (status, body) = found.map_or((404, r#"{"error": "None."}"#), |(_, response)| *response);
                let length = body.len();
                write!(stream, "HTTP/1.1 {status} \r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
                    .unwrap();
            }
        });
        ControlApi { address }
    }
}
