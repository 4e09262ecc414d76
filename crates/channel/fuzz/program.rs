//! Bytes as a program on a channel: steps of the router, of an honest worker, and of a hostile one.
//!
//! [`run`] panics when a step of the router panics or reads more than a ring. It also panics when, after all workers
//! have died, a slot is lost or the queue is stuck, although the router found no violation within about a second.
//! (After a violation, all workers are replaced.) It hangs when an honest worker never wakes. An honest worker may
//! answer garbage with any response, but it must not panic, and it must not read more than a ring.

use crate::hostile::HostileMemory;
use howdah_channel::{
    ControlEnd, Exchange, Geometry, Next, Progress, REQUEST_HEAD_BYTES, RESPONSE_RING_BYTES, Refused, RouterEnd,
    SlotState, Violation, WorkerChannel, WorkerId, offsets, request, response,
};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const GEOMETRY: Geometry = Geometry { slots: 64, threads: 1, claims: 3 };
const SLOTS: usize = 64;
const HONEST: WorkerId = WorkerId { index: 1, incarnation: 1 };
const MALLORY: WorkerId = WorkerId { index: 2, incarnation: 1 };

/// How many sweeps at the router's usual distance fit into a little more than a second.
const SECOND: u32 = 5;

/// The rest of a program. Zeroes follow its end.
struct Program<'p>(&'p [u8]);

impl Program<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
    /// Numbers that matter: small ones, sizes of rings, edges, and any.
    fn value(&mut self) -> u64 {
        match self.byte() % 8 {
            0 => self.byte().into(),
            1 => u64::from(self.byte()).wrapping_neg(),
            2 => (RESPONSE_RING_BYTES as u64).wrapping_add(u64::from(self.byte())).wrapping_sub(2),
            3 => u64::from(self.u16()),
            4 => 1 << (self.byte() % 64),
            5 => u64::from(self.byte()) << 32,
            6 => u64::MAX,
            _ => self.u64(),
        }
    }
}

struct Stage {
    control: ControlEnd,
    router: RouterEnd,
    workers: WorkerChannel,
    memory: HostileMemory,
    exchanges: Vec<Exchange>,
    out: Vec<u8>,
    /// The time that the sweeps see.
    now: Instant,
}

/// Runs a program.
pub fn run(bytes: &[u8]) {
    let mut program = Program(bytes);
    let mut stage = Stage::new();
    while !program.0.is_empty() {
        stage.step(&mut program);
    }
    stage.assert_recovers();
}

impl Stage {
    fn new() -> Stage {
        let control = ControlEnd::create(GEOMETRY).expect("memory");
        let router = RouterEnd::attach(control.memfd(), GEOMETRY).expect("the router's end");
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("an eventfd");
        let workers = WorkerChannel::attach(control.memfd(), GEOMETRY, vec![bell]).expect("the workers' end");
        let memory = HostileMemory::map(control.memfd(), GEOMETRY);
        let stage =
            Stage { control, router, workers, memory, exchanges: Vec::new(), out: Vec::new(), now: Instant::now() };
        stage.workers_start();
        stage
    }

    fn step(&mut self, program: &mut Program<'_>) {
        match program.byte() % 22 {
            0 | 1 => self.submit(program),
            2 => self.exchange(program, |exchange, _, _| {
                exchange.is_abandoned();
                exchange.progress().and(exchange.check())
            }),
            3 | 4 => self.exchange(program, |exchange, _, out| {
                out.clear();
                let read = exchange.read(out);
                assert!(out.len() <= RESPONSE_RING_BYTES, "more than the ring was read");
                assert_eq!(out.len(), *read.as_ref().unwrap_or(&0));
                if let Ok(Some((head, body))) = response::parse(out) {
                    head.headers().for_each(drop);
                    assert!(body <= out.len());
                }
                read.map(drop)
            }),
            5 => self.exchange(program, |exchange, program, _| {
                let bytes = vec![5; usize::from(program.u16())];
                exchange.write_body(&bytes).map(|taken| assert!(taken <= bytes.len()))
            }),
            6 => self.exchange(program, |exchange, program, _| {
                exchange.end_body(program.byte() & 1 == 0);
                exchange.resubmit_if_stranded();
                Ok(())
            }),
            7 => self.over(program, |exchange, _| exchange.cancel()),
            8 => self.over(program, |_, _| true),
            9 => self.over(program, |exchange, program| {
                let worker = if program.byte() & 1 == 0 { MALLORY } else { HONEST };
                exchange.worker_died(worker).unwrap_or(false)
            }),
            10 => drop(self.sweep()),
            11 => {
                self.router.drain(0, &self.router.visits(), |slot| {
                    assert!(slot < GEOMETRY.slots);
                    true
                });
                let _ = self.router.prepare_to_sleep(0);
                self.router.woke(0);
                self.router.queued();
                assert!(self.router.free_slots() <= SLOTS - self.exchanges.len());
            }
            12 => self.router.worker_died(MALLORY),
            13 => self.honest_worker(program),
            14 => self.memory.queue_head().store(program.value(), Ordering::SeqCst),
            15 => {
                let by = program.value();
                self.memory.queue_head().fetch_add(by, Ordering::SeqCst);
            }
            16 => {
                let (cell, word) = (program.byte(), program.value());
                self.memory.queue_cell(cell.into()).store(word, Ordering::SeqCst);
            }
            17 => self.plausible_state(program),
            18 => {
                let (slot, word, value) = (self.some_slot(program), program.byte() % 16, program.value());
                self.memory.control(slot, usize::from(word) * 8).store(value, Ordering::SeqCst);
            }
            19 => {
                if self.control.check_orders().is_err() {
                    self.replace_workers();
                }
            }
            20 if !self.exchanges.is_empty() => {
                let n = usize::from(program.byte()) % self.exchanges.len();
                self.exchanges.swap_remove(n).time_out();
            }
            _ => {
                let at = program.u64() as usize % (self.memory.len() / 8) * 8;
                self.memory.u64(at).store(program.value(), Ordering::SeqCst);
            }
        }
    }

    fn submit(&mut self, program: &mut Program<'_>) {
        let head = vec![1; usize::from(program.u16())];
        let body = vec![2; usize::from(program.u16())];
        match self.router.submit(0, &head, &body, program.byte() & 1 == 0) {
            Ok(exchange) => {
                assert!(self.exchanges.iter().all(|other| other.slot() != exchange.slot()), "a slot was given twice");
                self.exchanges.push(exchange);
            }
            Err(Refused::HeadTooLarge) => assert!(head.len() > REQUEST_HEAD_BYTES),
            Err(Refused::NoSlot) => {}
            Err(Refused::Broken(_)) => self.replace_workers(),
        }
    }

    /// A step of an exchange, which is set aside when it finds a broken rule.
    fn exchange(
        &mut self,
        program: &mut Program<'_>,
        step: impl FnOnce(&mut Exchange, &mut Program<'_>, &mut Vec<u8>) -> Result<(), Violation>,
    ) {
        if self.exchanges.is_empty() {
            return;
        }
        let n = usize::from(program.byte()) % self.exchanges.len();
        if step(&mut self.exchanges[n], program, &mut self.out).is_err() {
            self.exchanges.swap_remove(n).quarantine();
        }
    }

    /// Drops an exchange when `step` returns `true`.
    fn over(&mut self, program: &mut Program<'_>, step: impl FnOnce(&mut Exchange, &mut Program<'_>) -> bool) {
        if self.exchanges.is_empty() {
            return;
        }
        let n = usize::from(program.byte()) % self.exchanges.len();
        if step(&mut self.exchanges[n], program) {
            self.exchanges.swap_remove(n);
        }
    }

    fn some_slot(&self, program: &mut Program<'_>) -> u16 {
        let n = program.byte();
        match self.exchanges.get(usize::from(n) % self.exchanges.len().max(1)) {
            Some(exchange) if n < 224 => exchange.slot(),
            _ => u16::from(n) % GEOMETRY.slots,
        }
    }

    /// Writes a state that passes the first check: its sequence number is mostly right.
    fn plausible_state(&self, program: &mut Program<'_>) {
        let slot = self.some_slot(program);
        let sequence = self.memory.sequence(slot);
        let state = match program.byte() % 6 {
            0 => SlotState::Free,
            1 => SlotState::Submitted,
            2 => SlotState::Claimed(MALLORY),
            3 => SlotState::Done(MALLORY),
            4 => SlotState::Claimed(WorkerId { index: program.u16(), incarnation: 0 }),
            _ => SlotState::Done(HONEST),
        };
        self.memory.set_state(slot, sequence.wrapping_add(u32::from(program.byte() / 250)), state);
    }

    /// An honest worker's request, if a hint leads to one. It believes nothing that it reads.
    fn honest_worker(&mut self, program: &mut Program<'_>) {
        if !self.a_hint_leads_to_a_request() {
            return; // it would sleep
        }
        let (len, end_of_request) = (usize::from(program.u16()), program.byte() & 7);
        let workers = self.workers.clone();
        let worker = std::thread::spawn(move || {
            let end = workers.worker(HONEST);
            let Next::Run(mut claim) = end.next(|| false) else { return };
            let (slot, sequence) = claim.name();
            assert!(end.head_of(slot, sequence).is_none_or(|head| head.len() <= REQUEST_HEAD_BYTES));
            let mut head = Vec::new();
            if claim.head(&mut head).is_ok() {
                assert!(head.len() <= REQUEST_HEAD_BYTES);
                let _ = request::parse_head(&head, &mut Vec::new());
            }
            // Less than a ring: it waits only if a step wrote the router's words. The router then wakes it.
            let _ = claim.write(&vec![3; len]);
            claim.flush();
            match end_of_request {
                0 | 4 => {}
                1 => claim.abandon(),
                _ => claim.finish(),
            }
        });
        while !worker.is_finished() {
            let _ = self.sweep();
            std::thread::yield_now();
        }
        worker.join().expect("an honest worker does not panic");
    }

    fn a_hint_leads_to_a_request(&self) -> bool {
        let mut head = self.memory.queue_head().load(Ordering::SeqCst);
        loop {
            let hint = self.memory.queue_cell(head as usize % (2 * SLOTS)).load(Ordering::SeqCst);
            head = head.wrapping_add(1);
            if hint >> 32 != head & u64::from(u32::MAX) {
                return false;
            }
            let slot = (hint >> 16) as u16;
            if slot < GEOMETRY.slots {
                let sequence = self.memory.sequence(slot);
                let waits = self.memory.state(slot).load(Ordering::SeqCst) & 0xf
                    == offsets::word(sequence, SlotState::Submitted) & 0xf;
                if waits && sequence as u16 == hint as u16 {
                    return true;
                }
            }
        }
    }

    /// The checks that a router's thread runs four times a second.
    fn sweep(&mut self) -> Result<(), Violation> {
        self.now += Duration::from_millis(250);
        let mut result = self.router.sweep(0, self.now).map(drop);
        for n in (0..self.exchanges.len()).rev() {
            if let Err(violation) = self.exchanges[n].check() {
                result = Err(violation);
                self.exchanges.swap_remove(n).quarantine();
            }
        }
        result
    }

    fn workers_start(&self) {
        [MALLORY, HONEST].into_iter().for_each(|worker| self.router.worker_started(worker));
    }

    fn workers_die(&mut self) {
        for worker in [MALLORY, HONEST] {
            self.exchanges.retain_mut(|exchange| !exchange.worker_died(worker).unwrap_or(false));
            self.router.worker_died(worker);
            self.control.worker_died(worker);
        }
    }

    /// Kills all workers; the supervisor notifies the router.
    fn replace_workers(&mut self) {
        self.workers_die();
        self.control.workers_replaced();
        self.router.release_quarantined();
        self.exchanges.iter_mut().for_each(Exchange::resubmit_if_stranded);
        self.workers_start();
    }

    fn assert_recovers(mut self) {
        self.exchanges.clear();
        // All workers die some day. The sweeps must find everything that their deaths do not repair.
        self.workers_die();
        let found = (0..SECOND).filter(|_| self.sweep().is_err()).count();
        if found > 0 || self.control.check_orders().is_err() {
            self.replace_workers();
        }
        self.sweep().expect("nothing is broken any more");
        // A worker takes the hints of requests that were taken back.
        self.memory.queue_head().fetch_add(self.router.queued(), Ordering::SeqCst);
        assert_eq!(self.router.free_slots(), SLOTS, "a slot is lost");
        let end = self.workers.worker(WorkerId { index: 1, incarnation: 2 });
        for n in 0..SLOTS {
            let mut exchange = self.router.submit(0, &[n as u8], b"", true).expect("a slot");
            let Next::Run(mut claim) = end.next(|| false) else { panic!("ordered to stop") };
            claim.write(&[n as u8; 3]).expect("a client");
            claim.finish();
            self.out.clear();
            assert!(matches!(exchange.progress(), Ok(Progress::Done(_))));
            assert_eq!(exchange.read(&mut self.out), Ok(3));
            assert_eq!(self.out, [n as u8; 3]);
        }
        assert_eq!(self.router.free_slots(), SLOTS);
        self.control.stop_all([]);
    }
}
