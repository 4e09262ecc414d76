//! The messages of a prototype, and their effects: a program that does nothing takes the prototype's place.

use super::*;
use crate::os::files::logs::Outputs;
use crate::os::identity::UserAccount;
use crate::os::processes::reap;
use crate::os::processes::spawn::Environment;
use crate::plan::confinement::Confined;
use crate::policy::pace::boot_timeout;
use howdah_config::{PhpOptions, PhpVersion};
use howdah_protocol::messages::confinement::Confinement;
use std::process::{Child, Command};
use std::time::Duration;

/// A generation of two workers whose prototype runs this shell script.
struct Fake {
    generation: PhpGeneration,
    now: Instant,
    _folder: tempfile::TempDir,
}

impl Fake {
    fn new(script: &str) -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("howdah-php8.2");
        install(&executable, &format!("#!/bin/sh\n{script}\n"));
        let plan = PhpPlan {
            needs: Vec::new(),
            written: Vec::new(),
            name: "shop".to_owned(),
            php: Php { version: "8.2".parse::<PhpVersion>().unwrap(), executable },
            account: UserAccount::default(),
            options: PhpOptions::default(),
            confined: Confined::default(),
            outputs: Outputs::default(),
            environment: Environment::default(),
            working_directory: None,
            pools: vec![crate::plan::php::application::PoolPlan {
                script: None,
                policy: crate::policy::pool::PoolPolicy::new(howdah_config::Processes::Fixed(2), 2.0),
            }],
            limits: Default::default(),
            release: Default::default(),
            slow_log: None,
        };
        let now = Instant::now();
        let mut generation = PhpGeneration::new(1, plan, 1, now).unwrap();
        generation.on_time(now);
        Fake { generation, now, _folder: folder }
    }

    /// One whose workers have been ordered.
    fn booted(script: &str) -> Fake {
        let mut fake = Fake::new(script);
        fake.receive(FromPrototype::Booted { php_version: "8.2.0".to_owned(), opcache: true });
        assert_eq!(fake.generation.pools[0].workers.table.alive().count(), 2);
        fake
    }

    fn receive(&mut self, message: FromPrototype) {
        self.generation.on_message(message, self.now);
    }

    fn prototype(&self) -> Pid {
        self.generation.prototype.pid().expect("there is a prototype")
    }

    /// Waits for the prototype's death, and notifies the generation.
    fn reap_prototype(&mut self) -> ProcessEnd {
        let pid = self.prototype();
        let (_, status) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        let end = status.terminating_signal().map_or(ProcessEnd::Code(0), ProcessEnd::Signal);
        assert!(self.generation.on_death(pid, end, self.now));
        end
    }

    /// The prototype lives, and no kill is under way.
    fn assert_prototype_alive(&self) {
        assert_eq!(self.generation.failure(), None);
        // A kill takes a moment.
        std::thread::sleep(Duration::from_millis(50));
        let exited = rustix::process::waitpid(Some(self.prototype()), rustix::process::WaitOptions::NOHANG).unwrap();
        assert!(exited.is_none(), "the prototype is dead: {exited:?}");
    }

    /// The prototype is killed because its message broke this rule.
    fn assert_breach(mut self, rule: BrokenRule) {
        assert_eq!(self.reap_prototype(), ProcessEnd::Signal(9));
        let failure = self.generation.failure().unwrap();
        assert!(failure.contains(&format!("broke the rules: {rule};")), "{failure}");
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(pid) = self.generation.prototype.pid() {
            reap::kill_group(pid, pid);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        }
    }
}

/// Makes an executable script. Another process writes it: a child that another test forks while this process has the file
/// open for writing would inherit the descriptor until its exec, and executing the script would fail with ETXTBSY.
fn install(executable: &std::path::Path, script: &str) {
    let source = executable.with_extension("sh");
    std::fs::write(&source, script).unwrap();
    let status = Command::new("install").args(["-m", "755"]).args([&source, executable]).status().unwrap();
    assert!(status.success(), "{status}");
}

/// A process that no test may kill.
struct Neighbour(Child);

impl Neighbour {
    fn new() -> Neighbour {
        Neighbour(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn assert_alive(&mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "the neighbour is dead");
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const FIRST: WorkerId = WorkerId { index: 0, incarnation: 0 };
const UNKNOWN: WorkerId = WorkerId { index: 7, incarnation: 7 };
/// A worker of the only pool.
fn in_pool(worker: WorkerId) -> PoolWorker {
    PoolWorker { pool: 0, worker }
}

const SLEEP: &str = "exec sleep 1000";
const NOT_ITS_CHILD: BrokenRule = "it reported a pid that is not its child";
const MOVED_ELSEWHERE: BrokenRule = "it moved to a process that is not its child";
/// Beyond the most that Linux gives out.
const GONE: i32 = i32::MAX;

#[tokio::test]
async fn a_stranger_that_is_called_a_worker_lives_and_the_prototype_dies() {
    for worker in [FIRST, UNKNOWN] {
        let mut neighbour = Neighbour::new();
        let mut fake = Fake::booted(SLEEP);
        fake.receive(FromPrototype::WorkerStarted { worker: in_pool(worker), pid: neighbour.pid() });
        fake.assert_breach(NOT_ITS_CHILD);
        neighbour.assert_alive();
    }
}

#[tokio::test]
async fn a_stranger_is_not_killed_when_all_workers_are_replaced() {
    let mut neighbour = Neighbour::new();
    let mut fake = Fake::booted(SLEEP);
    fake.generation.replace_workers(1, fake.now);
    fake.receive(FromPrototype::WorkerStarted { worker: in_pool(FIRST), pid: neighbour.pid() });
    fake.assert_breach(NOT_ITS_CHILD);
    neighbour.assert_alive();
}

#[tokio::test]
async fn numbers_that_name_no_process_are_no_workers() {
    for pid in [0, -1, i32::MIN, 1, std::process::id() as i32] {
        let mut fake = Fake::booted(SLEEP);
        fake.receive(FromPrototype::WorkerStarted { worker: in_pool(FIRST), pid });
        fake.assert_breach(NOT_ITS_CHILD);
    }
}

#[tokio::test]
async fn a_prototype_that_boots_twice_or_reports_an_unknown_death_is_killed() {
    let end = ProcessEnd::Code(0);
    let booted = |version: &str| FromPrototype::Booted { php_version: version.to_owned(), opcache: true };
    for (message, rule) in [
        (booted("8.2.30"), "it booted twice"),
        (booted(""), "it has loaded a PHP without a valid version"),
        (booted("8.2\u{1b}[31m"), "it has loaded a PHP without a valid version"),
        (FromPrototype::Failed { reason: String::new() }, "it failed to boot after it had booted"),
        (
            FromPrototype::WorkerExited { worker: PoolWorker { pool: 1, worker: FIRST }, pid: 1, end },
            "it named a pool of workers that does not exist",
        ),
        (
            FromPrototype::WorkerExited { worker: in_pool(UNKNOWN), pid: 1, end },
            "it reported the death of a worker that does not live",
        ),
    ] {
        let mut fake = Fake::booted(SLEEP);
        fake.receive(message);
        fake.assert_breach(rule);
    }
}

#[tokio::test]
async fn a_message_of_a_dead_prototype_harms_no_process() {
    let mut neighbour = Neighbour::new();
    let mut fake = Fake::booted("exit 0");
    let pid = fake.prototype();
    rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
    fake.receive(FromPrototype::WorkerStarted { worker: in_pool(UNKNOWN), pid: neighbour.pid() });
    fake.generation.on_death(pid, ProcessEnd::Code(0), fake.now);
    neighbour.assert_alive();
}

#[tokio::test]
async fn a_prototype_that_does_not_boot_within_a_minute_is_killed() {
    let mut fake = Fake::new(SLEEP);
    fake.generation.on_time(fake.now + Duration::from_secs(59));
    assert_eq!(fake.generation.next_deadline(), Some(fake.now + boot_timeout::timeout()));
    fake.assert_prototype_alive();
    fake.generation.on_time(fake.now + boot_timeout::timeout());
    assert_eq!(fake.reap_prototype(), ProcessEnd::Signal(9));
    assert!(fake.generation.failure().unwrap().contains("more than 60 s"));
}

#[tokio::test]
async fn a_prototype_that_forks_no_worker_has_not_started() {
    let mut fake = Fake::booted(SLEEP);
    fake.generation.on_time(fake.now + boot_timeout::timeout() - Duration::from_secs(1));
    fake.assert_prototype_alive();
    fake.generation.on_time(fake.now + boot_timeout::timeout());
    assert_eq!(fake.reap_prototype(), ProcessEnd::Signal(9));
    assert!(fake.generation.failure().unwrap().contains("more than 60 s"));
}

#[tokio::test]
async fn a_prototype_that_does_not_answer_probes_is_killed() {
    use crate::policy::pace::heartbeat::{MAX_UNANSWERED, interval};
    for answers in [true, false] {
        let mut fake = Fake::booted(SLEEP);
        for index in [0, 1] {
            fake.receive(FromPrototype::WorkerStarted {
                worker: in_pool(WorkerId { index, incarnation: 0 }),
                pid: GONE,
            });
        }
        for asked in 1..=MAX_UNANSWERED {
            fake.generation.on_time(fake.now + interval() * asked);
        }
        if answers {
            fake.receive(FromPrototype::Pong);
        }
        fake.generation.on_time(fake.now + interval() * (MAX_UNANSWERED + 1));
        match answers {
            true => fake.assert_prototype_alive(),
            false => assert_eq!(fake.reap_prototype(), ProcessEnd::Signal(9)),
        }
    }
}

/// The workers whose death the router is notified of, since the last call.
fn reported_dead(generation: &mut PhpGeneration) -> Vec<WorkerId> {
    let died = |notice: &ToRouter| match notice {
        ToRouter::WorkerDied { worker, .. } => Some(*worker),
        _ => None,
    };
    generation.take_notices().iter().filter_map(died).collect()
}

#[tokio::test]
async fn a_worker_that_its_dead_prototype_did_not_report_counts_as_alive_until_it_is_dead() {
    reap::adopt_orphans().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let mut fake = Fake::booted(&format!("sleep 1000 & echo $! >> {}; wait", file.display()));
    let worker = Pid::from_raw(pids(&file, 1)[0]).unwrap();
    reap::kill(fake.prototype());
    fake.reap_prototype();
    fake.generation.settle_orphans(fake.now);
    assert_eq!(reported_dead(&mut fake.generation), [], "both may be the process that lives");

    fake.generation.on_time(fake.now + Duration::from_secs(60));
    let (_, status) = rustix::process::waitpid(Some(worker), rustix::process::WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.terminating_signal(), Some(9), "its time is over");
    fake.generation.settle_orphans(fake.now);
    assert_eq!(reported_dead(&mut fake.generation), [FIRST, WorkerId { index: 1, incarnation: 0 }]);
}

#[tokio::test]
async fn workers_that_were_never_forked_are_dead_with_their_prototype() {
    let mut fake = Fake::booted(SLEEP);
    reap::kill(fake.prototype());
    fake.reap_prototype();
    assert_eq!(reported_dead(&mut fake.generation).len(), 2);
}

/// The process ids that a script writes to its standard output would end in ours: it names them in a file.
fn pids(path: &std::path::Path, count: usize) -> Vec<i32> {
    for _ in 0..3000 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.lines().count() >= count {
            return text.lines().map(|line| line.parse().unwrap()).collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the script wrote no {count} lines");
}

#[tokio::test]
async fn a_live_worker_cannot_be_reported_dead() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let mut fake = Fake::booted(&format!("sleep 1000 & echo $! >> {}; wait", file.display()));
    let pid = pids(&file, 1)[0];
    fake.receive(FromPrototype::WorkerStarted { worker: in_pool(FIRST), pid });
    assert!(fake.generation.is_proven());
    fake.receive(FromPrototype::WorkerExited { worker: in_pool(FIRST), pid, end: ProcessEnd::Code(0) });
    assert_eq!(fake.generation.pools[0].workers.table.alive().count(), 2, "it counts as alive");
    assert_eq!(fake.reap_prototype(), ProcessEnd::Signal(9));
    let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL);
}

#[tokio::test]
async fn a_prototype_that_moves_without_being_asked_to_is_killed() {
    let mut neighbour = Neighbour::new();
    let mut fake = Fake::new(SLEEP);
    fake.receive(FromPrototype::Moved { pid: neighbour.pid() });
    fake.assert_breach(MOVED_ELSEWHERE);
    neighbour.assert_alive();
}

#[tokio::test]
async fn a_prototype_cannot_move_into_another_process() {
    let mut neighbour = Neighbour::new();
    let mut fake = Fake::new(SLEEP);
    fake.generation.plan.confined.confinement = Some(Confinement { pid: true, ..Confinement::default() });
    fake.receive(FromPrototype::Moved { pid: neighbour.pid() });
    fake.assert_breach(MOVED_ELSEWHERE);
    neighbour.assert_alive();
}

#[tokio::test]
async fn a_prototype_that_does_not_exit_after_a_stop_is_killed_at_the_deadline() {
    let mut fake = Fake::booted("trap '' TERM; while true; do sleep 1; done");
    let now = fake.now;
    fake.generation.stop(now);
    let at = fake.generation.next_deadline().expect("the wait has a deadline");
    assert!(at > now + Duration::from_secs(30));
    fake.generation.on_time(at - Duration::from_secs(1));
    fake.assert_prototype_alive();
    assert_eq!(fake.generation.next_deadline(), Some(at));
    fake.generation.on_time(at);
    assert_eq!(fake.reap_prototype(), ProcessEnd::Signal(9));
    assert!(fake.generation.next_deadline().is_none());
}
