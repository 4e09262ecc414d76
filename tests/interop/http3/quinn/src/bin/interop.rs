//! The interop run of HTTP/3 with h3 on quinn: `interop ADDRESS:PORT FOLDER CERTIFICATE.pem`. See scripts/http3-interop.

use bytes::{Buf, Bytes};
use howdah_quinn_client::{Failure, Requests, begin, endpoint};
use http::{Method, Request};
use ring::digest::{SHA256, digest};
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::{LocalSet, spawn_local};

const HOST: &str = "localhost";
const MEGABYTE: usize = 1 << 20;
const PIECE: usize = 64 * 1024;
const H3_REQUEST_CANCELLED: u32 = 0x10c;

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let all = async { tokio::time::timeout(Duration::from_secs(120), run()).await? };
    LocalSet::new().block_on(&runtime, all).inspect_err(|error| println!("FAIL {error}"))
}

async fn run() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, folder, certificate] = &arguments[..] else {
        return Err("interop ADDRESS:PORT FOLDER CERTIFICATE".into());
    };
    let address: SocketAddr = address.parse()?;
    let endpoint = endpoint(certificate)?;
    let connection = endpoint.connect(address, HOST)?.await?;
    let (mut driver, requests) = begin(connection.clone()).await?;
    let driving = spawn_local(async move { poll_fn(|context| driver.poll_close(context)).await });
    expect("GET", &text(&requests, Method::GET, "/protocol.php", b"").await?, "HTTP/3.0")?;

    let upload: Vec<u8> = (0..64 * MEGABYTE).map(|n| (n * n >> 7) as u8).collect();
    let began = Instant::now();
    let hash = text(&requests, Method::POST, "/hash.php", &upload).await?;
    expect("upload of 64 MiB", &hash, &hexadecimal(&upload))?;
    rate(began);
    let began = Instant::now();
    let large = std::fs::read(Path::new(folder).join("large.bin"))?;
    let download = call(&requests, Method::GET, "/large.bin", b"").await?;
    expect("download of 64 MiB", &hexadecimal(&download), &hexadecimal(&large))?;
    rate(began);

    let mut tasks = Vec::new();
    for _ in 0..500 {
        let requests = requests.clone();
        tasks.push(spawn_local(async move {
            text(&requests, Method::GET, "/protocol.php", b"").await.map_err(|error| error.to_string())
        }));
    }
    for task in tasks {
        if task.await?? != "HTTP/3.0" {
            return Err("500 requests at once: another response".into());
        }
    }
    println!("ok   500 requests at once");

    for _ in 0..20 {
        let mut stream = requests.clone().send_request(request(Method::GET, "/large.bin")?).await?;
        stream.finish().await?;
        stream.recv_response().await?;
        stream.recv_data().await?;
        stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    }
    expect("after 20 downloads were reset", &text(&requests, Method::GET, "/protocol.php", b"").await?, "HTTP/3.0")?;
    for _ in 0..20 {
        let mut stream = requests.clone().send_request(request(Method::POST, "/hash.php")?).await?;
        stream.send_data(Bytes::copy_from_slice(&upload[..PIECE])).await?;
        stream.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
    }
    expect("after 20 uploads were reset", &text(&requests, Method::GET, "/protocol.php", b"").await?, "HTTP/3.0")?;

    // A download goes on while the address changes, and the next requests have another one.
    let before = text(&requests, Method::GET, "/port.php", b"").await?;
    let mut stream = requests.clone().send_request(request(Method::GET, "/large.bin")?).await?;
    stream.finish().await?;
    stream.recv_response().await?;
    let mut download = Vec::new();
    let mut moves = 0;
    while let Some(mut data) = stream.recv_data().await? {
        download.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        if download.len() > (moves + 1) * 8 * MEGABYTE {
            moves += 1;
            endpoint.rebind(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?)?;
        }
    }
    expect("a download during seven migrations", &hexadecimal(&download), &hexadecimal(&large))?;
    let after = text(&requests, Method::GET, "/port.php", b"").await?;
    if before == after || moves < 7 {
        return Err(format!("migration: {moves} moves, from port {before} to {after}").into());
    }
    println!("ok   migration from port {before} to {after}");
    connection.close(H3_REQUEST_CANCELLED.into(), b"");
    driving.abort();

    // It comes again, with requests in its first packets.
    let (connection, accepted) =
        endpoint.connect(address, HOST)?.into_0rtt().map_err(|_| "early data: no session was kept")?;
    let (mut driver, requests) = begin(connection.clone()).await?;
    spawn_local(async move { poll_fn(|context| driver.poll_close(context)).await });
    let early = requests.clone();
    let get =
        spawn_local(
            async move { text(&early, Method::GET, "/protocol.php", b"").await.map_err(|error| error.to_string()) },
        );
    let hash = text(&requests, Method::POST, "/hash.php", b"abc").await?;
    expect("a body in early data", &hash, &hexadecimal(b"abc"))?;
    expect("a request in early data", &get.await??, "HTTP/3.0")?;
    expect("early data is accepted", if accepted.await { "yes" } else { "no" }, "yes")?;
    connection.close(0x100_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

fn request(method: Method, path: &str) -> Result<Request<()>, Failure> {
    Ok(Request::builder().method(method).uri(format!("https://{HOST}{path}")).body(())?)
}

async fn text(requests: &Requests, method: Method, path: &str, body: &[u8]) -> Result<String, Failure> {
    Ok(String::from_utf8(call(requests, method, path, body).await?)?)
}

/// The body of the response, whose status is 200.
async fn call(requests: &Requests, method: Method, path: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut stream = requests.clone().send_request(request(method, path)?).await?;
    for piece in body.chunks(PIECE) {
        stream.send_data(Bytes::copy_from_slice(piece)).await?;
    }
    stream.finish().await?;
    let head = stream.recv_response().await?;
    let mut content = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        content.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    if head.status() != 200 {
        return Err(format!("{path}: status {}, {}", head.status(), String::from_utf8_lossy(&content)).into());
    }
    Ok(content)
}

fn hexadecimal(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rate(began: Instant) {
    println!("     {:.0} MB/s", 64.0 * 1.048_576 / began.elapsed().as_secs_f64());
}

fn expect(name: &str, found: &str, wanted: &str) -> Result<(), Failure> {
    if found != wanted {
        return Err(format!("{name}: found {found:.100}, not {wanted:.100}").into());
    }
    println!("ok   {name}");
    Ok(())
}
