//! One request through a channel and back, between two threads: `cargo bench -p howdah-channel`.

#![allow(missing_docs)] // of what the criterion macros make

use criterion::{Criterion, criterion_group, criterion_main};
use howdah_channel::{ControlEnd, Geometry, Next, Progress, RouterEnd, WorkerChannel, WorkerId};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsFd;

fn round_trip(c: &mut Criterion) {
    let mut control = ControlEnd::create(Geometry { slots: 64, threads: 1 }).expect("memory");
    let bell = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let router = RouterEnd::attach(control.memfd(), control.geometry()).expect("the router's end");
    let channel = WorkerChannel::attach(control.memfd(), control.geometry(), vec![bell.try_clone().expect("a copy")])
        .expect("the workers' end");
    let worker = std::thread::spawn(move || {
        let end = channel.worker(WorkerId { index: 0, incarnation: 0 });
        let mut head = Vec::new();
        while let Next::Run(mut claim) = end.next(|| false) {
            claim.head(&mut head).expect("a head");
            claim.write(&head).expect("a client");
            claim.finish();
        }
    });

    let request = [b'x'; 1024];
    let mut response = Vec::new();
    c.bench_function("round trip of 1 KiB, both sides asleep", |b| {
        b.iter(|| {
            let mut exchange = router.submit(0, &request, b"", true).expect("a slot");
            while !matches!(exchange.progress().expect("a good worker"), Progress::Done(_)) {
                if router.prepare_to_sleep(0) {
                    rustix::io::read(bell.as_fd(), &mut [0u8; 8]).expect("the bell");
                }
                router.woke(0);
                router.drain(0, |_| {});
            }
            response.clear();
            exchange.read(&mut response).expect("a good worker");
            assert_eq!(response.len(), request.len());
        });
    });
    control.stop_all();
    worker.join().expect("the worker ends");
}

criterion_group!(benches, round_trip);
criterion_main!(benches);
