//! Timeouts that are too long for end-to-end tests, and connections that end at the wrong moment.

use super::*;
use crate::request::record::ids::AssignedHeaders;
use http::uri::PathAndQuery;
use http::{Method, Request};
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::Instant;

static SETTINGS: LazyLock<ProxySettings> = LazyLock::new(ProxySettings::default);

/// Runs on an event loop whose clock jumps ahead whenever no other work is left.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("runtime");
    LocalSet::new().block_on(&runtime, test)
}

fn listen() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let endpoint = listener.local_addr().expect("address").to_string().parse().expect("endpoint");
    (listener, endpoint)
}

async fn request(proxy: &Proxy, to: ProxyTarget<'_>, method: Method) -> Answer<UpstreamBody> {
    request_with_body(proxy, to, method, ClientBody::none()).await
}

async fn request_with_body(
    proxy: &Proxy,
    to: ProxyTarget<'_>,
    method: Method,
    body: Rc<ClientBody>,
) -> Answer<UpstreamBody> {
    let request = Request::builder().method(method).uri("/").body(()).expect("request").into_parts().0;
    let target = PathAndQuery::from_static("/");
    let outgoing = Outgoing {
        request: &request,
        target,
        body,
        upgrade: None,
        assigned: AssignedHeaders::default(),
        forwarded: None,
        settings: to.settings(),
        inform: &|_, _| {},
    };
    proxy.answer(to, &outgoing).await
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("ASCII")
}

#[test]
fn an_upstream_that_does_not_answer_gets_a_minute() {
    let (_listener, endpoint) = listen();
    run(async {
        let began = Instant::now();
        let answer = request(&Proxy::default(), ProxyTarget::Server(&endpoint, &SETTINGS, None), Method::GET).await;
        assert_eq!(answer.err(), Some(Failure::GatewayTimeout));
        assert_eq!(began.elapsed().as_secs(), 60);
    });
}

#[test]
fn a_response_that_stops_is_cut_after_a_minute() {
    let (listener, endpoint) = listen();
    let upstream = std::thread::spawn(move || {
        let mut stream = listener.accept().expect("connection").0;
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").expect("written");
        read_head(&mut stream)
    });
    run(async {
        // The clock must not jump while the other thread writes.
        tokio::time::resume();
        let proxy = Proxy::default();
        let answer =
            request(&proxy, ProxyTarget::Server(&endpoint, &SETTINGS, None), Method::GET).await.expect("answer");
        let mut body = std::pin::pin!(answer.into_body());
        let first = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await;
        assert_eq!(first.expect("frame").expect("data").into_data().ok().as_deref(), Some(&b"abc"[..]));
        tokio::time::pause();
        let began = Instant::now();
        let second = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await;
        assert!(second.expect("frame").is_err());
        assert_eq!(began.elapsed().as_secs(), 60);
    });
    assert_eq!(upstream.join().expect("upstream"), "", "the connection is closed");
}

#[test]
fn a_response_that_breaks_with_the_clients_body_is_not_an_error_of_the_upstream() {
    for (body, expected) in [
        (ClientBody::none as fn() -> Rc<ClientBody>, Failure::BadGateway),
        (|| ClientBody::failed(Failure::BodyTooLarge), Failure::BodyTooLarge),
    ] {
        let (listener, endpoint) = listen();
        let upstream = std::thread::spawn(move || {
            let mut stream = listener.accept().expect("connection").0;
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n").expect("written");
        });
        run(async {
            tokio::time::resume();
            let to = ProxyTarget::Server(&endpoint, &SETTINGS, None);
            let answer = request_with_body(&Proxy::default(), to, Method::POST, body()).await;
            assert_eq!(answer.err(), Some(expected));
        });
        upstream.join().expect("upstream");
    }
}

#[test]
fn reading_ahead_gives_the_connection_one_turn() {
    let (listener, endpoint) = listen();
    let upstream = std::thread::spawn(move || {
        let mut stream = listener.accept().expect("connection").0;
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").expect("written");
        read_head(&mut stream)
    });
    run(async {
        tokio::time::resume();
        let pool = Proxy::default().pool(&endpoint, None, None);
        let request = Request::new(()).into_parts().0;
        let (target, body) = (PathAndQuery::from_static("/"), ClientBody::none());
        let outgoing = Outgoing {
            request: &request,
            target,
            body,
            upgrade: None,
            assigned: AssignedHeaders::default(),
            forwarded: None,
            settings: &SETTINGS,
            inform: &|_, _| {},
        };
        let mut connection = pool.connect(SETTINGS.connect_timeout).await.expect("connection");
        let limit = SETTINGS.response_timeout;
        let response = exchange(&mut connection, &outgoing, &endpoint).await;
        let incoming = response.expect("response").into_body();
        let mut stream = UpstreamStream::new(incoming, connection, pool, Rc::clone(&outgoing.body), limit);
        let mut reading = std::pin::pin!(stream.read_ahead());
        let mut polls = 0;
        let read = std::future::poll_fn(|context| {
            polls += 1;
            reading.as_mut().poll(context)
        });
        assert_eq!((read.await, polls), (Ok(()), 2));
    });
    upstream.join().expect("upstream");
}

#[test]
fn a_request_on_a_dead_idle_connection_is_sent_again_if_that_is_safe() {
    // The upstream answers one request on each connection, and closes it when it sees a second.
    let (listener, endpoint) = listen();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("connection");
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("written");
            read_head(&mut stream);
        }
    });
    run(async {
        tokio::time::resume();
        let cases = [("GET", 200), ("HEAD", 200), ("PUT", 200), ("DELETE", 200), ("POST", 502), ("PATCH", 502)];
        for (method, expected) in cases {
            let proxy = Proxy::default();
            let method = Method::from_bytes(method.as_bytes()).expect("method");
            let first =
                request(&proxy, ProxyTarget::Server(&endpoint, &SETTINGS, None), method.clone()).await.expect("answer");
            drop(first);
            assert_eq!(proxy.pool(&endpoint, None, None).idle_count(), 1);
            let second = request(&proxy, ProxyTarget::Server(&endpoint, &SETTINGS, None), method.clone()).await;
            let status = second.map_or_else(Failure::status, |response| response.status());
            assert_eq!(status.as_u16(), expected, "{method}");
        }
    });
}

#[test]
fn a_connection_with_a_long_idle_time_gets_no_request_that_cannot_be_repeated() {
    let (listener, endpoint) = listen();
    let counter = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let accepted = std::sync::Arc::clone(&counter);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            accepted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let mut stream = stream.expect("connection");
            std::thread::spawn(move || {
                while !read_head(&mut stream).is_empty() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("written");
                }
            });
        }
    });
    run(async {
        tokio::time::resume();
        let proxy = Proxy::default();
        let connections = async |method, idle_seconds| {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(idle_seconds)).await;
            tokio::time::resume();
            drop(request(&proxy, ProxyTarget::Server(&endpoint, &SETTINGS, None), method).await.expect("answer"));
            counter.load(std::sync::atomic::Ordering::SeqCst)
        };
        assert_eq!(connections(Method::POST, 0).await, 1);
        assert_eq!(connections(Method::POST, 0).await, 1);
        assert_eq!(connections(Method::GET, 10).await, 1);
        assert_eq!(connections(Method::POST, 10).await, 2);
        assert_eq!(proxy.pool(&endpoint, None, None).idle_count(), 2);
        assert_eq!(connections(Method::GET, 20).await, 3);
        proxy.sweep();
        assert_eq!(proxy.pool(&endpoint, None, None).idle_count(), 1);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(20)).await;
        proxy.sweep();
        assert!(proxy.pools.borrow().is_empty());
    });
}

#[test]
fn a_server_that_is_down_gets_no_requests_for_a_while() {
    let (first, one) = listen();
    let (second, two) = listen();
    drop(first);
    std::thread::spawn(move || {
        for stream in second.incoming() {
            let mut stream = stream.expect("connection");
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").expect("written");
        }
    });
    run(async {
        tokio::time::resume();
        let proxy = Proxy::default();
        let text = format!(r#"{{"upstreams": {{"u": {{"servers": {{"{one}": {{}}, "{two}": {{}}}}}}}}}}"#);
        let configuration = howdah_config::Configuration::parse(&text).expect("configuration");
        let mut states = HealthStates::default();
        states.update(&configuration);
        let balancer = Balancer::new("u", &configuration.upstreams["u"], &states, None);
        let is_down = |endpoint| !states.of("u", endpoint).is_up();
        for _ in 0..10 {
            let answer = request(&proxy, ProxyTarget::Upstream(&balancer), Method::POST).await.expect("answer");
            assert_eq!(answer.status(), 200);
            assert!(is_down(&one) && !is_down(&two));
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!is_down(&one));
    });
}
