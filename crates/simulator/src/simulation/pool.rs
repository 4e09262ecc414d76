//! The workers: which are idle, what the others do, and their accounts.

use super::agenda::RequestId;
use crate::policy::WorkerView;
use crate::processors::{Processors, TaskId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All workers, by index.
#[derive(Debug, Default)]
pub struct Pool {
    workers: Vec<Worker>,
    idle: BTreeSet<usize>,
    /// The index of the worker that has this task.
    by_task: BTreeMap<TaskId, usize>,
    counts: Counts,
    /// How many have ever existed.
    started: u64,
    /// How many requests they have finished.
    finished: u64,
}

/// One index.
#[derive(Debug)]
pub struct Worker {
    /// Its task, which the index keeps.
    pub task: TaskId,
    /// Its number.
    pub number: u64,
    /// Its state.
    pub state: WorkerState,
    /// It exits after its request.
    is_leaving: bool,
    requests: u64,
    busy: Time,
    /// The use of the task before this worker.
    ran_before: Time,
    delayed_before: Time,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkerState {
    /// No worker has the index.
    Vacant,
    /// It is forked.
    Starting,
    /// It waits for a request.
    Idle,
    /// It was woken, and will look for a request.
    Waking,
    /// It runs a request.
    Busy(Running),
}

/// A request that a worker runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Running {
    /// The request.
    pub request: RequestId,
    /// When it began.
    pub began: Time,
    /// How often it still waits and computes.
    pub waits_left: u32,
    /// Whether it uses or needs a processor now.
    pub computes: bool,
    /// Each time that it computes.
    pub cpu: Time,
    /// Each time that it waits.
    pub wait: Time,
    /// Whether its waits need the resource.
    pub waits_at_resource: bool,
}

/// Numbers of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// They serve, and will go on.
    pub serving: usize,
    /// They are being started.
    pub starting: usize,
    /// They exit after their request.
    pub leaving: usize,
}

// === impl Pool ===

impl Pool {
    /// Starts a worker. It serves when its task has done this much work.
    pub fn start(&mut self, work: Time, processors: &mut Processors, now: Time) {
        let vacant = self.workers.iter().position(|worker| worker.state == WorkerState::Vacant);
        let index = vacant.unwrap_or_else(|| {
            let task = processors.add_task();
            self.by_task.insert(task, self.workers.len());
            self.workers.push(Worker::vacant(task));
            self.workers.len() - 1
        });
        self.started += 1;
        self.counts.starting += 1;
        let task = self.workers[index].task;
        self.workers[index] = Worker { number: self.started, state: WorkerState::Starting, ..Worker::vacant(task) };
        processors.start(task, work.max(1), now);
    }

    /// Retires a worker that serves: an idle one, otherwise one that exits after its request. Returns `false` without
    /// one.
    pub fn retire(&mut self) -> bool {
        if let Some(index) = self.idle.pop_last() {
            self.workers[index].state = WorkerState::Vacant;
            self.counts.serving -= 1;
            return true;
        }
        let serves = |worker: &&mut Worker| worker.serves();
        let Some(worker) = self.workers.iter_mut().rev().find(serves) else { return false };
        worker.is_leaving = true;
        self.counts.serving -= 1;
        self.counts.leaving += 1;
        true
    }

    /// The worker whose task this is.
    pub fn index_of(&self, task: TaskId) -> Option<usize> {
        self.by_task.get(&task).copied()
    }

    /// A worker.
    pub fn worker(&self, index: usize) -> &Worker {
        &self.workers[index]
    }

    /// Takes an idle worker, to wake it. The lowest index comes first.
    pub fn wake(&mut self) -> Option<TaskId> {
        let index = self.idle.pop_first()?;
        self.workers[index].state = WorkerState::Waking;
        Some(self.workers[index].task)
    }

    /// A started worker serves: from now on, its use of processors counts.
    pub fn on_started(&mut self, index: usize, processors: &Processors, now: Time) {
        let worker = &mut self.workers[index];
        worker.ran_before = processors.ran(worker.task, now);
        worker.delayed_before = processors.delayed(worker.task, now);
        worker.state = WorkerState::Waking;
        self.counts.starting -= 1;
        self.counts.serving += 1;
    }

    /// The worker runs this request, or another step of it.
    pub fn set_running(&mut self, index: usize, running: Running) {
        self.workers[index].state = WorkerState::Busy(running);
    }

    /// The worker has finished its request.
    pub fn on_finished(&mut self, index: usize, now: Time) {
        let worker = &mut self.workers[index];
        if let WorkerState::Busy(running) = worker.state {
            worker.busy += now - running.began;
            worker.requests += 1;
            self.finished += 1;
        }
        worker.state = WorkerState::Waking;
    }

    /// The worker exits if it must. Returns whether it did.
    pub fn exit_if_leaving(&mut self, index: usize) -> bool {
        if self.workers[index].is_leaving {
            self.workers[index].state = WorkerState::Vacant;
            self.counts.leaving -= 1;
        }
        self.workers[index].is_leaving
    }

    /// The worker waits for a request.
    pub fn set_idle(&mut self, index: usize) {
        self.workers[index].state = WorkerState::Idle;
        self.idle.insert(index);
    }

    /// How many are idle.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// How many requests all workers have finished.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// How many there are.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The tasks of all workers.
    pub fn tasks(&self) -> Vec<TaskId> {
        let alive = self.workers.iter().filter(|worker| worker.state != WorkerState::Vacant);
        alive.map(|worker| worker.task).collect()
    }

    /// The workers that serve and stay, as a policy sees them.
    pub fn views(&self, processors: &Processors, now: Time) -> Vec<WorkerView> {
        let serving = self.workers.iter().filter(|worker| worker.serves());
        serving.map(|worker| worker.view(processors, now)).collect()
    }
}

// === impl Worker ===

impl Worker {
    fn vacant(task: TaskId) -> Worker {
        Worker {
            task,
            number: 0,
            state: WorkerState::Vacant,
            is_leaving: false,
            requests: 0,
            busy: 0,
            ran_before: 0,
            delayed_before: 0,
        }
    }

    fn serves(&self) -> bool {
        !self.is_leaving && !matches!(self.state, WorkerState::Vacant | WorkerState::Starting)
    }

    fn view(&self, processors: &Processors, now: Time) -> WorkerView {
        let began = match self.state {
            WorkerState::Busy(running) => Some(running.began),
            // It looks for a request: it is not idle, and has none.
            WorkerState::Waking => Some(now),
            _ => None,
        };
        WorkerView {
            number: self.number,
            began: began.map(Duration::from_nanos),
            is_waiting: matches!(self.state, WorkerState::Busy(Running { computes: false, .. })),
            requests: self.requests,
            busy: Duration::from_nanos(self.busy + began.map_or(0, |began| now - began)),
            ran: Duration::from_nanos(processors.ran(self.task, now) - self.ran_before),
            delayed: Duration::from_nanos(processors.delayed(self.task, now) - self.delayed_before),
        }
    }
}
