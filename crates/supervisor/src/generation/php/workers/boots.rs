//! Boots of workers in worker mode: from the fork of a worker until its script asks for the first request. In classic
//! mode a worker is ready when it is forked, and nothing here happens.
//!
//! The first worker of a generation boots alone: if its script fails, its output is the reason of the failure. Then the
//! others boot, a few at a time, because boots compete for processors. The generation is proven when all of its workers
//! are ready. A worker that is not ready in time is killed. If it does not even exit then, the generation has failed all
//! the same.
//!
//! A worker reports that it is ready in its account, in memory that it shares with the supervisor. That is read at
//! short intervals, and only while a worker boots.

use crate::os::processes::process::Process;
use crate::policy::pace::{BootStep, BootTimeout, boot_timeout};
use howdah_channel::WorkerId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The boots of the workers of one generation.
#[derive(Debug)]
pub struct Boots {
    /// The application's name, for the log.
    application: String,
    /// The worker script; `None` in classic mode.
    script: Option<String>,
    /// How many workers may boot at once.
    at_once: usize,
    /// The workers that boot, by their index.
    booting: BTreeMap<u16, BootingWorker>,
    /// When to look at their accounts.
    look_at: Option<Instant>,
    /// The longest recent boot.
    cost: Duration,
    /// Whether a worker has ever been ready.
    was_ready: bool,
    /// Whether all workers have been ready.
    is_proven: bool,
    /// How many workers were ordered.
    ordered: usize,
    /// How many exited by themselves until all were ready.
    setbacks: usize,
    /// How often all were lost until then.
    losses: usize,
    /// How the last one exited.
    last_end: String,
    /// Why the workers do not start.
    failure: Option<String>,
}

#[derive(Debug)]
struct BootingWorker {
    worker: WorkerId,
    process: Option<Process>,
    since: Instant,
    timeout: BootTimeout,
}

/// The time between two looks at the accounts.
const LOOK: Duration = Duration::from_millis(10);
/// After this number of setbacks, a worker script does not stay alive.
const MAX_SETBACKS: usize = 10;
/// After this number of losses of all workers, they will not start either.
const MAX_LOSSES: usize = 3;
/// The weight of the costliest boot decays by this factor at each boot.
const COST_DECAY: f64 = 0.9;

// === impl Boots ===

impl Boots {
    /// Of an application with this worker script, on a machine with this number of processors.
    pub fn new(application: String, script: Option<String>, cores: f64) -> Boots {
        Boots {
            application,
            is_proven: script.is_none(),
            script,
            at_once: (2.0 * cores).ceil().max(2.0) as usize,
            booting: BTreeMap::new(),
            look_at: None,
            cost: Duration::ZERO,
            was_ready: false,
            ordered: 0,
            setbacks: 0,
            losses: 0,
            last_end: String::new(),
            failure: None,
        }
    }

    /// Whether all workers have been ready once.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Takes all workers as ready.
    pub fn go_on(&mut self) {
        self.is_proven = true;
    }

    /// Why the workers do not start.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether this worker boots.
    pub fn is_booting(&self, worker: WorkerId) -> bool {
        self.booting.get(&worker.index).is_some_and(|booting| booting.worker == worker)
    }

    /// How many workers boot.
    pub fn len(&self) -> usize {
        self.booting.len()
    }

    /// The time that a boot takes: the longest of the last ones. Zero in classic mode.
    pub fn cost(&self) -> Duration {
        self.cost
    }

    /// How many more workers may start now.
    pub fn room(&self) -> usize {
        match (&self.script, self.was_ready) {
            (None, _) => usize::MAX,
            _ if self.failure.is_some() => 0,
            (Some(_), false) => 1usize.saturating_sub(self.booting.len()),
            (Some(_), true) => self.at_once.saturating_sub(self.booting.len()),
        }
    }

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// A worker was ordered.
    pub fn on_ordered(&mut self, worker: WorkerId, now: Instant) {
        if self.script.is_some() {
            let booting = BootingWorker { worker, process: None, since: now, timeout: BootTimeout::new(now) };
            self.booting.insert(worker.index, booting);
            self.ordered += 1;
            self.look_at.get_or_insert(now + LOOK);
        }
    }

    /// It runs as this process.
    pub fn on_started(&mut self, worker: WorkerId, process: Option<Process>) {
        if let Some(booting) = self.booting.get_mut(&worker.index).filter(|booting| booting.worker == worker) {
            booting.process = process;
        }
    }

    /// It has exited. `was_ready` is whether it had asked for a request, `output` what it wrote last.
    pub fn on_exit(&mut self, worker: WorkerId, was_ready: bool, end: &str, output: impl FnOnce() -> String) {
        if self.is_booting(worker) {
            self.booting.remove(&worker.index);
            self.was_ready |= was_ready;
            if !was_ready && !self.is_proven {
                self.fail(end, &output());
            }
        }
        if !self.is_proven {
            end.clone_into(&mut self.last_end);
        }
        self.on_setback();
    }

    /// No process of this name lives any more.
    pub fn forget(&mut self, worker: WorkerId) {
        if self.is_booting(worker) {
            self.booting.remove(&worker.index);
        }
    }

    /// A worker has exited by itself. If that happens again and again before all have been ready, a change would wait for long.
    fn on_setback(&mut self) {
        if self.is_proven || self.failure.is_some() {
            return;
        }
        self.setbacks += 1;
        // Of a large pool, a few may die by chance.
        if self.setbacks >= MAX_SETBACKS && 2 * self.setbacks >= self.ordered {
            let (script, last) = (self.script.as_deref().unwrap_or_default(), &self.last_end);
            let last = if last.is_empty() { String::new() } else { format!("; the last one {last}") };
            self.failure =
                Some(format!("workers of its worker script {script} end before all of them are ready{last}"));
        }
    }

    /// The prototype has died, or all workers are replaced because one broke the channel's rules.
    pub fn on_all_lost(&mut self) {
        self.losses += usize::from(!self.is_proven);
        if self.losses >= MAX_LOSSES && self.failure.is_none() {
            let script = self.script.as_deref().unwrap_or_default();
            self.failure = Some(format!(
                "all workers of its worker script {script} were lost {MAX_LOSSES} times before they were ready: their prototype \
                 died, or one of them broke the rules; the log has the reasons"
            ));
        }
    }

    /// Reads the accounts. `is_ready` is whether a worker has asked for a request; `are_ordered` is whether no other
    /// worker is due.
    pub fn on_time(&mut self, is_ready: impl Fn(WorkerId) -> bool, are_ordered: bool, now: Instant) {
        if self.look_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let (cost, was_ready) = (&mut self.cost, &mut self.was_ready);
        self.booting.retain(|_, booting| {
            let is_ready = is_ready(booting.worker);
            if is_ready {
                *cost = cost.mul_f64(COST_DECAY).max(now.saturating_duration_since(booting.since));
                *was_ready = true;
            }
            !is_ready
        });
        self.kill_overdue(now);
        self.is_proven |= self.was_ready && self.booting.is_empty() && are_ordered;
        // A generation that has failed is discarded. Its processes may be there for long.
        if self.failure.is_none() && (!self.booting.is_empty() || !self.is_proven) {
            self.look_at = Some(now + LOOK);
        }
    }

    fn kill_overdue(&mut self, now: Instant) {
        let (application, script) = (&self.application, self.script.as_deref().unwrap_or_default());
        let seconds = boot_timeout::timeout().as_secs();
        let mut given_up = None;
        for booting in self.booting.values_mut() {
            match booting.timeout.step(now) {
                Some(BootStep::Warn) => {
                    tracing::warn!(
                        "the application {application:?}: still waiting for its worker script {script} to boot"
                    );
                }
                Some(BootStep::Fail) => {
                    let Some(process) = booting.process else {
                        given_up =
                            Some(format!("was not started within {seconds} s, although its prototype had the order"));
                        continue;
                    };
                    tracing::error!(
                        "the application {application:?}: its worker script {script} (pid {}) has not asked for a request \
                         within {seconds} s; killing it",
                        process.pid.as_raw_pid()
                    );
                    process.kill();
                }
                Some(BootStep::GiveUp) => {
                    given_up = booting.process.map(|process| {
                        let pid = process.pid.as_raw_pid();
                        format!(
                            "(pid {pid}) was killed after {seconds} s, and has not exited: does a file system hang?"
                        )
                    });
                }
                None => {}
            }
        }
        if let Some(end) = given_up.filter(|_| !self.is_proven && self.failure.is_none()) {
            self.failure = Some(format!("a worker of its worker script {script} {end}"));
        }
    }

    fn fail(&mut self, end: &str, output: &str) {
        let script = self.script.as_deref().unwrap_or_default();
        let mut reason = format!("its worker script {script} {end} before it asked for a request");
        if !output.is_empty() {
            reason.push_str(":\n");
            reason.push_str(output);
        }
        self.failure = Some(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid;

    fn worker(index: u16) -> WorkerId {
        WorkerId { index, incarnation: 0 }
    }

    fn of_worker_script(now: Instant, ordered: &[u16]) -> Boots {
        let mut boots = Boots::new("shop".to_owned(), Some("/srv/worker.php".to_owned()), 1.0);
        ordered.iter().for_each(|index| boots.on_ordered(worker(*index), now));
        boots
    }

    #[test]
    fn in_classic_mode_nothing_boots() {
        let mut boots = Boots::new("shop".to_owned(), None, 1.0);
        boots.on_ordered(worker(0), Instant::now());
        assert_eq!((boots.is_proven(), boots.room(), boots.len()), (true, usize::MAX, 0));
        assert_eq!(boots.next_deadline(), None);
    }

    #[test]
    fn the_first_worker_boots_alone_and_all_must_be_ready() {
        let mut now = Instant::now();
        let mut boots = of_worker_script(now, &[]);
        assert_eq!(boots.room(), 1);
        boots.on_ordered(worker(0), now);
        assert_eq!(boots.room(), 0);
        now += LOOK;
        boots.on_time(|_| false, false, now);
        assert_eq!((boots.room(), boots.is_proven()), (0, false));
        now += LOOK;
        boots.on_time(|_| true, false, now);
        assert_eq!((boots.room(), boots.is_proven(), boots.cost()), (2, false, 2 * LOOK), "one processor: two at once");
        for index in [1, 2] {
            boots.on_ordered(worker(index), now);
        }
        assert_eq!(boots.room(), 0);
        now += LOOK;
        boots.on_time(|ready| ready == worker(2), true, now);
        assert_eq!((boots.room(), boots.is_booting(worker(1)), boots.is_proven()), (1, true, false));
        now += LOOK;
        boots.on_time(|_| true, true, now);
        assert!(boots.is_proven());
        assert_eq!(boots.next_deadline(), None, "nothing is looked at while no worker boots");
    }

    #[test]
    fn the_first_failure_is_the_reason_until_the_generation_is_proven() {
        let now = Instant::now();
        let mut boots = of_worker_script(now, &[0]);
        boots.on_exit(worker(0), false, "exited with code 78", || "no database".to_owned());
        let expected =
            "its worker script /srv/worker.php exited with code 78 before it asked for a request:\nno database";
        assert_eq!((boots.failure(), boots.room()), (Some(expected), 0));

        let mut boots = of_worker_script(now, &[0]);
        boots.on_time(|_| true, true, now + LOOK);
        boots.on_ordered(worker(1), now);
        boots.on_exit(worker(1), false, "exited with code 78", String::new);
        assert_eq!((boots.failure(), boots.len()), (None, 0));
    }

    #[test]
    fn workers_that_are_ready_but_do_not_stay_alive_are_a_failure() {
        let mut now = Instant::now();
        let mut boots = of_worker_script(now, &[]);
        for setbacks in 0..MAX_SETBACKS {
            assert_eq!(boots.failure(), None, "after {setbacks}");
            boots.on_ordered(worker(0), now);
            now += LOOK;
            boots.on_time(|_| true, false, now);
            boots.on_exit(worker(0), true, "was killed by signal 14", || panic!("its output is not needed"));
            boots.forget(worker(0));
        }
        assert!(boots.failure().is_some_and(|failure| failure.ends_with("the last one was killed by signal 14")));
        boots.on_time(|_| true, false, now + LOOK);
        assert_eq!(boots.next_deadline(), None, "nothing is looked at any more");
    }

    #[test]
    fn some_deaths_in_a_large_pool_or_after_all_were_ready_are_no_failure() {
        let now = Instant::now();
        let boots_of = |workers: u16, are_ordered: bool| {
            let mut boots = of_worker_script(now, &(0..workers).collect::<Vec<_>>());
            boots.on_time(|_| true, are_ordered, now + LOOK);
            boots
        };
        for (mut boots, are_forgotten) in
            [(boots_of(100, false), false), (boots_of(1, true), false), (boots_of(1, false), true)]
        {
            for _ in 0..2 * MAX_SETBACKS {
                match are_forgotten {
                    true => boots.forget(worker(0)),
                    false => boots.on_exit(worker(0), true, "exited with code 0", String::new),
                }
            }
            assert_eq!(boots.failure(), None);
        }
    }

    #[test]
    fn workers_that_are_lost_together_again_and_again_are_a_failure() {
        let now = Instant::now();
        for (are_ordered, expected) in [(false, true), (true, false)] {
            let mut boots = of_worker_script(now, &(0..8).collect::<Vec<_>>());
            boots.on_time(|_| true, are_ordered, now + LOOK);
            for loss in 0..MAX_LOSSES {
                assert_eq!(boots.failure(), None, "after {loss}");
                (0..8).for_each(|index| boots.on_ordered(worker(index), now));
                boots.on_all_lost();
            }
            assert_eq!(boots.failure().is_some(), expected);
        }
    }

    #[test]
    fn a_worker_that_is_not_started_or_does_not_exit_is_a_failure_of_the_generation() {
        let now = Instant::now();
        let never_started = of_worker_script(now, &[0]);
        let mut never_ends = of_worker_script(now, &[0]);
        // No process has this id: it cannot be killed, and its death is never reported.
        let process = Process { pid: Pid::from_raw(i32::MAX).unwrap(), started: 0 };
        never_ends.on_started(worker(0), Some(process));
        let timeout = boot_timeout::timeout();
        let table = [(never_started, Duration::ZERO, "was not started"), (never_ends, timeout, "has not exited")];
        for (mut boots, more, reason) in table {
            let mut before_and_after = [timeout / 2, timeout + more].map(|passed| {
                for seconds in 0..3 {
                    boots.on_time(|_| false, true, now + passed + Duration::from_secs(seconds));
                }
                boots.failure().map(str::to_owned)
            });
            assert_eq!(before_and_after[0], None);
            assert!(before_and_after[1].take().is_some_and(|failure| failure.contains(reason)), "{reason}");
        }
    }

    #[test]
    fn a_worker_that_has_booted_and_exited_between_two_looks_has_not_failed() {
        let now = Instant::now();
        let mut boots = of_worker_script(now, &[0]);
        boots.on_exit(worker(0), true, "exited with code 0", || panic!("its output is not needed"));
        assert_eq!(boots.failure(), None);
        boots.on_time(|_| false, true, now + LOOK);
        assert!(boots.is_proven());
    }
}
