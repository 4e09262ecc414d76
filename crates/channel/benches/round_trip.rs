//! One request through a channel and back, between two threads: `cargo bench -p howdah-channel`.

#![allow(missing_docs)] // the criterion macros generate items without docs

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use howdah_channel::{ControlEnd, Geometry, Next, Progress, RouterEnd, WorkerChannel, WorkerId};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsFd;

/// Bytes of a request's head: the CGI variables of a browser's request.
const HEAD_BYTES: usize = 1024;
/// Bytes of a response: a hello, and a page that fills the slot's ring.
const RESPONSE_BYTES: [u32; 2] = [16, 64 * 1024];
const ME: WorkerId = WorkerId { index: 0, incarnation: 0 };

fn round_trip(c: &mut Criterion) {
    let mut control = ControlEnd::create(Geometry { slots: 64, threads: 1, claims: 1 }).expect("memory");
    let bell = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let router = RouterEnd::attach(control.memfd(), control.geometry()).expect("the router's end");
    let channel = WorkerChannel::attach(control.memfd(), control.geometry(), vec![bell.try_clone().expect("a copy")])
        .expect("the workers' end");
    let worker = std::thread::spawn(move || {
        let end = channel.worker(ME);
        let mut head = Vec::new();
        let page = vec![b'x'; 64 * 1024];
        while let Next::Run(mut claim) = end.next(|| false) {
            claim.head(&mut head).expect("a head");
            let len = u32::from_le_bytes(*head.first_chunk().expect("the response's length"));
            claim.write(&page[..len as usize]).expect("a client");
            claim.finish();
        }
    });

    let mut group = c.benchmark_group("round trip, both sides asleep");
    let mut request = [b'x'; HEAD_BYTES];
    let mut response = Vec::new();
    let visits = router.visits();
    for len in RESPONSE_BYTES {
        request[..4].copy_from_slice(&len.to_le_bytes());
        group.throughput(Throughput::Bytes(HEAD_BYTES as u64 + u64::from(len)));
        group.bench_function(BenchmarkId::new("response bytes", len), |b| {
            b.iter(|| {
                let mut exchange = router.submit(0, &request, b"", true).expect("a slot");
                response.clear();
                while !matches!(exchange.progress().expect("a good worker"), Progress::Done(_)) {
                    if router.prepare_to_sleep(0) {
                        rustix::io::read(bell.as_fd(), &mut [0u8; 8]).expect("the bell");
                    }
                    router.woke(0);
                    router.drain(0, &visits, |_| true);
                }
                exchange.read(&mut response).expect("a good worker");
                assert_eq!(response.len(), len as usize);
            });
        });
    }
    group.finish();
    control.stop_all([ME]);
    worker.join().expect("the worker ends");
}

criterion_group!(benches, round_trip);
criterion_main!(benches);
