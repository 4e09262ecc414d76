//! Bodies and responses of any size in pieces of any size arrive whole, whatever waits for whom.

use howdah_channel::{
    BODY_RING_BYTES, BodyError, ControlEnd, Exchange, Geometry, Next, Progress, RESPONSE_RING_BYTES, RouterEnd,
    WorkerChannel, WorkerId,
};
use proptest::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Instant;

const GEOMETRY: Geometry = Geometry { slots: 64, threads: 1, claims: 1 };

const ME: WorkerId = WorkerId { index: 0, incarnation: 0 };

/// One request and how both sides cut it.
#[derive(Clone, Debug)]
struct Plan {
    body: usize,
    /// How much of the body goes with the submission.
    first: usize,
    router_piece: usize,
    read_piece: usize,
    response: usize,
    write_piece: usize,
    flush_every: usize,
    /// The worker begins to answer before it reads the body.
    answer_first: bool,
    /// The client leaves when it has this much of the response.
    leaves_after: Option<usize>,
    /// The client stops sending after this much of the body.
    fails_after: Option<usize>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let size = |ring: usize| prop_oneof![0usize..300, Just(ring - 1), Just(ring), Just(ring + 1), ring..4 * ring,];
    let piece = || prop_oneof![1usize..64, 1000usize..5000, 5000usize..200_000];
    let rarely = |up_to: usize| prop_oneof![4 => Just(None), 1 => (0..up_to).prop_map(Some)];
    (
        (size(BODY_RING_BYTES), 0usize..70_000, piece(), piece()),
        (size(RESPONSE_RING_BYTES), piece(), 1usize..20, any::<bool>()),
        (rarely(100_000), rarely(60_000)),
    )
        .prop_map(
            |(
                (body, first, router_piece, read_piece),
                (response, write_piece, flush_every, answer_first),
                (leaves_after, fails_after),
            )| Plan {
                body,
                first: first.min(body).min(fails_after.unwrap_or(usize::MAX)),
                router_piece,
                read_piece,
                response,
                write_piece,
                flush_every,
                answer_first,
                leaves_after,
                fails_after: fails_after.filter(|after| *after < body),
            },
        )
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n ^ seed).wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

struct Setup {
    control: ControlEnd,
    router: RouterEnd,
    bell: OwnedFd,
}

impl Setup {
    fn new() -> Setup {
        let control = ControlEnd::create(GEOMETRY).unwrap();
        let router = RouterEnd::attach(control.memfd(), GEOMETRY).unwrap();
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        Setup { control, router, bell }
    }

    /// The worker of one plan; sends the part of the body that it has read.
    fn work(channel: WorkerChannel, plan: &Plan, read: &mpsc::Sender<Vec<u8>>) {
        let end = channel.worker(ME);
        let Next::Run(mut claim) = end.next(|| false) else { panic!("ordered to stop") };
        let response = pattern(2, plan.response);
        let (early, late) = response.split_at(if plan.answer_first { plan.response / 2 } else { 0 });
        let write = |claim: &mut howdah_channel::Claim<'_>, bytes: &[u8]| {
            for (n, piece) in bytes.chunks(plan.write_piece).enumerate() {
                if claim.write(piece).is_err() {
                    assert!(claim.client_gone());
                    return;
                }
                if n % plan.flush_every == 0 {
                    claim.flush();
                }
            }
        };
        write(&mut claim, early);
        let mut body = Vec::new();
        let mut piece = vec![0; plan.read_piece];
        loop {
            match claim.read_body(&mut piece) {
                Ok(0) => {
                    assert_eq!(body.len(), plan.body, "a part is not taken for the whole");
                    break;
                }
                Ok(len) => body.extend_from_slice(&piece[..len]),
                Err(BodyError::Incomplete) => {
                    assert!(plan.fails_after.is_some() || plan.leaves_after.is_some());
                    break;
                }
                Err(BodyError::Broken(violation)) => panic!("{violation}"),
            }
        }
        read.send(body).unwrap();
        write(&mut claim, late);
        claim.finish();
    }

    /// Sleeps until the worker asks for attention. Long sleeps are lost wake-ups.
    fn sleep(&self) {
        if self.router.prepare_to_sleep(0) {
            let mut polled = [PollFd::new(&self.bell, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap();
            assert_eq!(ready, 1, "no worker rings, and the request is not done");
            rustix::io::read(&self.bell, &mut [0; 8]).unwrap();
        }
        self.router.woke(0);
        self.router.drain(0, &self.router.visits(), |_| true);
    }

    /// The response, as far as the client waited for it.
    fn send(&self, plan: &Plan, mut exchange: Exchange, body: &[u8]) -> Vec<u8> {
        let end = plan.fails_after.unwrap_or(body.len());
        let mut body_ended = plan.fails_after.is_none() && exchange.body_taken() as usize == body.len();
        if body_ended && plan.first < body.len() {
            exchange.end_body(true);
        }
        let mut response = Vec::new();
        loop {
            let progress = exchange.progress().unwrap();
            let mut moved = exchange.read(&mut response).unwrap();
            if plan.leaves_after.is_some_and(|after| response.len() >= after) || matches!(progress, Progress::Done(_)) {
                return response;
            }
            if !body_ended {
                let at = exchange.body_taken() as usize;
                moved += exchange.write_body(&body[at..end.min(at + plan.router_piece)]).unwrap();
                if exchange.body_taken() as usize == end {
                    exchange.end_body(end == body.len());
                    body_ended = true;
                    moved += 1;
                }
            }
            if moved == 0 {
                self.sleep();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(debug_assertions) { 150 } else { 1000 }, ..ProptestConfig::default() })]

    #[test]
    fn what_one_side_writes_the_other_reads(plan in plan()) {
        let mut setup = Setup::new();
        let body = pattern(1, plan.body);
        let channel =
            WorkerChannel::attach(setup.control.memfd(), GEOMETRY, vec![setup.bell.try_clone().unwrap()]).unwrap();
        let (sender, receiver) = mpsc::channel();
        let worker = {
            let plan = plan.clone();
            std::thread::spawn(move || Setup::work(channel, &plan, &sender))
        };
        let complete = plan.first == body.len();
        let exchange = setup.router.submit(0, b"head", &body[..plan.first], complete).unwrap();
        let response = setup.send(&plan, exchange, &body);
        if plan.leaves_after.is_some() {
            // A client that leaves before its request is claimed cancels it: the worker then gets the order to stop.
            prop_assert_eq!(&response, &pattern(2, plan.response)[..response.len()]);
            setup.control.stop_all([ME]);
            let _ = worker.join();
        } else {
            worker.join().unwrap();
            prop_assert!(response == pattern(2, plan.response));
            let sent = plan.fails_after.unwrap_or(body.len());
            prop_assert!(receiver.recv().unwrap() == body[..sent]);
            prop_assert_eq!(setup.router.free_slots(), 64);
        }
        setup.router.sweep(0, Instant::now()).unwrap();
        // A client that leaves while its request is queued leaves a hint: the worker that takes it frees the slot.
        if setup.router.queued() > 0 {
            prop_assert_eq!(setup.router.free_slots(), 63);
        } else {
            prop_assert_eq!(setup.router.free_slots(), 64);
        }
    }
}
