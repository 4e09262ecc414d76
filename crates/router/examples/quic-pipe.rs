//! The QUIC client of the tests: a connection whose streams a test reads and writes as bytes. The test has its own HTTP/3.
//!
//! `quic-pipe JSON`, with [`Options`]. Commands come as lines of JSON, and so do events. Certificates are checked
//! only against a CA that is given. At the end of its input it closes the connection.

#![forbid(unsafe_code)]

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// How the client connects.
#[derive(Deserialize)]
struct Options {
    address: SocketAddr,
    /// The server's name.
    name: String,
    alpn: String,
    ca: Option<String>,
    /// A file with the client's certificate and its key.
    certificate: Option<String>,
    /// How many bytes of all responses together may wait here.
    window: Option<u32>,
    /// How many bytes each stream of the server may have. The server's own streams, such as that of its settings, are not
    /// read then.
    stream_window: Option<u32>,
    /// Whether it sends requests with its first packets when it comes again (0-RTT).
    early: bool,
}

/// A request with the first packets of a connection.
#[derive(Deserialize)]
struct EarlyRequest {
    stream: u64,
    is_request: bool,
    data: String,
    ends: bool,
}

/// An order of the test.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
enum Command {
    /// Opens a stream. Its number in the test is `stream`.
    Open { stream: u64, is_request: bool, reads: bool },
    /// Sends bytes on it, in hexadecimal.
    Send { stream: u64, data: String, ends: bool },
    /// Sends bytes on it, each in a packet of its own.
    Drip { stream: u64, data: String },
    /// Cancels the client's direction.
    Reset { stream: u64, code: u32 },
    /// Cancels the server's direction.
    Stop { stream: u64, code: u32 },
    /// Reads this number of bytes of a stream that nothing reads otherwise.
    Take { stream: u64, bytes: u64 },
    /// Goes on with another address.
    Move,
    /// Closes the connection, and connects again. These requests are sent at once.
    Again { requests: Vec<EarlyRequest> },
    /// Begins this number of other handshakes.
    Shake { count: u32 },
    /// Closes the connection.
    Close { code: u32 },
}

/// A task of a stream. They are done in their order.
enum Part {
    Send(Vec<u8>, bool),
    Drip(Vec<u8>),
    Reset(u32),
}

#[derive(Default)]
struct Streams {
    sending: HashMap<u64, mpsc::UnboundedSender<Part>>,
    stopping: HashMap<u64, mpsc::UnboundedSender<u32>>,
    taking: HashMap<u64, mpsc::UnboundedSender<u64>>,
}

/// The client, with its connection at the time.
struct Client {
    options: Options,
    endpoint: Endpoint,
    connection: Connection,
    streams: Streams,
}

#[derive(Debug)]
struct AcceptsAll(CryptoProvider);

const LAST_PACKETS: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let options = std::env::args().nth(1).ok_or("quic-pipe OPTIONS, in JSON")?;
    let options: Options = serde_json::from_str(&options)?;
    let mut endpoint = Endpoint::client(any_port(&options))?;
    endpoint.set_default_client_config(config(&options)?);
    let connection = match endpoint.connect(options.address, &options.name)?.await {
        Ok(connection) => connection,
        Err(error) => {
            event(&json!({"event": "closed", "reason": error.to_string()}));
            return Ok(());
        }
    };
    event(&json!({"event": "connected"}));
    let mut closed = spawn_local(watch(connection.clone(), options.stream_window.is_some()));
    let mut client = Client { options, endpoint, connection, streams: Streams::default() };
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
    });
    while let Some(line) = lines.recv().await {
        match serde_json::from_str(&line)? {
            Command::Again { requests } => {
                client.connection.close(VarInt::from_u32(0x100), b"");
                closed.abort();
                closed = client.again(requests).await?;
            }
            command => client.obey(command).await?,
        }
    }
    client.endpoint.close(VarInt::from_u32(0x100), b"");
    let _ = closed.await;
    // A server that does not answer is not waited for.
    let _ = tokio::time::timeout(LAST_PACKETS, client.endpoint.wait_idle()).await;
    Ok(())
}

fn any_port(options: &Options) -> SocketAddr {
    match options.address {
        SocketAddr::V4(_) => (Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::LOCALHOST, 0).into(),
    }
}

/// Reports what the server does without being asked, to the end of the connection.
async fn watch(connection: Connection, keeps_unread: bool) {
    let accepting = connection.clone();
    spawn_local(async move {
        let mut unread = Vec::new();
        while let Ok(stream) = accepting.accept_uni().await {
            if keeps_unread {
                unread.push(stream);
                continue;
            }
            let id = json!(format!("server {}", u64::from(stream.id())));
            spawn_local(receive(stream, id, None));
        }
    });
    let error = connection.closed().await;
    let code = match &error {
        quinn::ConnectionError::ApplicationClosed(close) => Some(close.error_code.into_inner()),
        _ => None,
    };
    event(&json!({"event": "closed", "reason": error.to_string(), "code": code}));
}

// === impl Client ===

impl Client {
    /// Connects again.
    async fn again(&mut self, requests: Vec<EarlyRequest>) -> Result<JoinHandle<()>, Box<dyn Error>> {
        self.streams = Streams::default();
        let mut shaken = None;
        self.connection = match self.endpoint.connect(self.options.address, &self.options.name)?.into_0rtt() {
            Ok((connection, accepted)) => {
                shaken = Some(accepted);
                connection
            }
            Err(connecting) => connecting.await?,
        };
        event(&json!({"event": "connected", "early": shaken.is_some()}));
        for EarlyRequest { stream, is_request, data, ends } in requests {
            self.obey(Command::Open { stream, is_request, reads: true }).await?;
            self.obey(Command::Send { stream, data, ends }).await?;
        }
        if let Some(shaken) = shaken {
            spawn_local(async move {
                let accepted = shaken.await;
                event(&json!({"event": "shaken", "accepted": accepted}));
            });
        }
        Ok(spawn_local(watch(self.connection.clone(), self.options.stream_window.is_some())))
    }

    async fn obey(&mut self, command: Command) -> Result<(), Box<dyn Error>> {
        let Client { connection, endpoint, streams, options } = self;
        match command {
            Command::Open { stream, is_request, reads } => {
                let send = if is_request {
                    let (send, receiving) = match connection.open_bi().await {
                        Ok(both) => both,
                        Err(_) => return Ok(()),
                    };
                    let (stop, stopped) = mpsc::unbounded_channel();
                    streams.stopping.insert(stream, stop);
                    if reads {
                        spawn_local(receive(receiving, json!(stream), Some(stopped)));
                    } else {
                        // Its window is opened again only as far as the test asks for.
                        let (take, taken) = mpsc::unbounded_channel();
                        streams.taking.insert(stream, take);
                        spawn_local(keep(receiving, json!(stream), stopped, taken));
                    }
                    send
                } else {
                    match connection.open_uni().await {
                        Ok(send) => send,
                        Err(_) => return Ok(()),
                    }
                };
                let (sender, parts) = mpsc::unbounded_channel();
                streams.sending.insert(stream, sender);
                spawn_local(transmit(send, stream, parts));
            }
            Command::Send { stream, data, ends } => {
                if let Some(sender) = streams.sending.get(&stream) {
                    let _ = sender.send(Part::Send(bytes(&data)?, ends));
                }
            }
            Command::Drip { stream, data } => {
                if let Some(sender) = streams.sending.get(&stream) {
                    let _ = sender.send(Part::Drip(bytes(&data)?));
                }
            }
            Command::Reset { stream, code } => {
                if let Some(sender) = streams.sending.get(&stream) {
                    let _ = sender.send(Part::Reset(code));
                }
            }
            Command::Stop { stream, code } => {
                if let Some(stop) = streams.stopping.get(&stream) {
                    let _ = stop.send(code);
                }
            }
            Command::Take { stream, bytes } => {
                if let Some(take) = streams.taking.get(&stream) {
                    let _ = take.send(bytes);
                }
            }
            Command::Move => endpoint.rebind(UdpSocket::bind(any_port(options))?)?,
            Command::Again { .. } => {}
            Command::Shake { count } => {
                for _ in 0..count {
                    let connecting = endpoint.connect(options.address, &options.name)?;
                    spawn_local(async move {
                        let connection = connecting.await;
                        std::future::pending::<()>().await;
                        drop(connection);
                    });
                }
            }
            Command::Close { code } => connection.close(VarInt::from_u32(code), b""),
        }
        Ok(())
    }
}

async fn transmit(mut send: SendStream, stream: u64, mut parts: mpsc::UnboundedReceiver<Part>) {
    while let Some(part) = parts.recv().await {
        let done = match part {
            Part::Send(data, ends) => {
                let sent = send.write_all(&data).await;
                sent.map_err(|error| error.to_string())
                    .and_then(|()| if ends { send.finish().map_err(|error| error.to_string()) } else { Ok(()) })
            }
            Part::Drip(data) => drip(&mut send, &data).await.map_err(|error| error.to_string()),
            Part::Reset(code) => send.reset(VarInt::from_u32(code)).map_err(|error| error.to_string()),
        };
        if let Err(reason) = done {
            event(&json!({"event": "refused", "stream": stream, "reason": reason}));
        }
    }
}

async fn drip(send: &mut SendStream, data: &[u8]) -> Result<(), quinn::WriteError> {
    for byte in data {
        send.write_all(&[*byte]).await?;
        // The connection's own task sends it.
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn receive(mut stream: RecvStream, id: Value, mut stop: Option<mpsc::UnboundedReceiver<u32>>) {
    loop {
        let stopped = async {
            match &mut stop {
                Some(stop) => stop.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            chunk = stream.read_chunk(65536, true) => match chunk {
                Ok(Some(chunk)) => {
                    event(&json!({"event": "data", "stream": id, "data": hexadecimal(&chunk.bytes)}));
                }
                Ok(None) => return event(&json!({"event": "end", "stream": id})),
                Err(quinn::ReadError::Reset(code)) => {
                    return event(&json!({"event": "reset", "stream": id, "code": code.into_inner()}));
                }
                Err(_) => return,
            },
            Some(code) = stopped => {
                let _ = stream.stop(VarInt::from_u32(code));
                return;
            }
        }
    }
}

async fn keep(
    mut stream: RecvStream,
    id: Value,
    mut stop: mpsc::UnboundedReceiver<u32>,
    mut take: mpsc::UnboundedReceiver<u64>,
) {
    loop {
        tokio::select! {
            Some(code) = stop.recv() => {
                let _ = stream.stop(VarInt::from_u32(code));
                return;
            }
            Some(mut missing) = take.recv() => {
                while missing > 0 && let Ok(Some(chunk)) = stream.read_chunk(missing as usize, true).await {
                    missing -= chunk.bytes.len() as u64;
                    event(&json!({"event": "data", "stream": id, "data": hexadecimal(&chunk.bytes)}));
                }
            }
            else => return,
        }
    }
}

fn config(options: &Options) -> Result<ClientConfig, Box<dyn Error>> {
    let provider = default_provider();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider.clone()));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match &options.ca {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(ca)?)?;
            builder.with_root_certificates(roots)
        }
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptsAll(provider))),
    };
    let mut tls = match &options.certificate {
        Some(file) => {
            let chain = CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(file)?)?
        }
        None => builder.with_no_client_auth(),
    };
    tls.enable_early_data = options.early;
    tls.alpn_protocols = vec![options.alpn.as_bytes().to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let mut transport = TransportConfig::default();
    // A test that reads nothing wants the server to notice it soon.
    let window = options.stream_window.unwrap_or(256 * 1024);
    transport
        .stream_receive_window(VarInt::from_u32(window))
        .max_idle_timeout(Some(Duration::from_secs(60).try_into()?));
    if let Some(window) = options.window {
        // Its windows of single streams are wide: that of the connection is the only limit.
        transport.receive_window(VarInt::from_u32(window)).stream_receive_window(VarInt::from_u32(1 << 24));
    }
    config.transport_config(Arc::new(transport));
    Ok(config)
}

fn event(event: &Value) {
    let mut out = std::io::stdout().lock();
    // A test that has ended reads nothing.
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

// === impl AcceptsAll ===

impl ServerCertVerifier for AcceptsAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
