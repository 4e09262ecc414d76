//! Load over HTTP/3: `load ADDRESS:PORT PATH CERTIFICATE.pem CONNECTIONS STREAMS SECONDS`, where each connection has this number of
//! requests at a time. Prints JSON. See bench/benchmarks/edge.py.

use howdah_quinn_client::{Failure, Requests, begin, endpoint};
use http::Request;
use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{LocalSet, spawn_local};

#[derive(Default)]
struct Counts {
    right: Cell<u64>,
    failed: Cell<u64>,
}

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run())
}

async fn run() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, path, certificate, connections, streams, seconds] = &arguments[..] else {
        return Err("load ADDRESS:PORT PATH CERTIFICATE CONNECTIONS STREAMS SECONDS".into());
    };
    let address: SocketAddr = address.parse()?;
    let url = format!("https://localhost{path}");
    let streams: usize = streams.parse()?;
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let counts = Rc::<Counts>::default();
    let began = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..connections.parse()? {
        let endpoint = endpoint(certificate)?;
        let connection = endpoint.connect(address, "localhost")?.await?;
        let (mut driver, requests) = begin(connection).await?;
        spawn_local(async move { poll_fn(|context| driver.poll_close(context)).await });
        for _ in 0..streams {
            tasks.push(spawn_local(repeat(requests.clone(), url.clone(), until, Rc::clone(&counts))));
        }
    }
    for task in tasks {
        task.await?;
    }
    let (right, failed) = (counts.right.get(), counts.failed.get());
    println!("{{\"right\": {right}, \"failed\": {failed}, \"seconds\": {}}}", began.elapsed().as_secs_f64());
    Ok(())
}

async fn repeat(mut requests: Requests, url: String, until: Instant, counts: Rc<Counts>) {
    while Instant::now() < until {
        let count = match get(&mut requests, &url).await {
            Ok(true) => &counts.right,
            Ok(false) | Err(_) => &counts.failed,
        };
        count.set(count.get() + 1);
    }
}

async fn get(requests: &mut Requests, url: &str) -> Result<bool, Failure> {
    let mut stream = requests.send_request(Request::get(url).body(())?).await?;
    stream.finish().await?;
    let head = stream.recv_response().await?;
    while stream.recv_data().await?.is_some() {}
    Ok(head.status() == 200)
}
