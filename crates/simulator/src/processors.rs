//! Processors that run tasks in time slices and share them fairly.
//!
//! It is the idea of the kernel's fair schedulers (CFS, EEVDF): each task has a virtual time, the processor time that
//! it has used. A free processor takes the runnable task with the least. A task that wakes gets no credit for its sleep
//! beyond one slice, and displaces a task that is more than a slice ahead. All processors share one queue, and tasks
//! have no home. A change of the task costs processor time, which is added to the work of the task that begins.
//!
//! A task has one piece of work at a time. The caller passes the end of each slice to [`Processors::on_slice_end`],
//! which returns the task when its work is done.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds since the start of the simulation.
pub type Time = u64;

/// A task.
pub type TaskId = usize;

/// The processors and their tasks.
#[derive(Debug)]
pub struct Processors {
    cores: Vec<Core>,
    tasks: Vec<Task>,
    /// The tasks that wait for a processor, by virtual time. An entry with an old stamp does not count.
    ready: BinaryHeap<Reverse<(Time, u64, TaskId)>>,
    /// The virtual time of the task that started last.
    virtual_now: Time,
    /// How long tasks have run, added up.
    used: Time,
    next_stamp: u64,
    slice: Time,
    switch: Time,
}

/// The end of a slice, which the caller must schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceEnd {
    /// When.
    pub at: Time,
    /// On which processor.
    pub core: usize,
    /// Distinguishes this slice from a later one of the same processor.
    pub stamp: u64,
}

#[derive(Debug, Default)]
struct Core {
    /// The task that runs.
    task: Option<TaskId>,
    /// The task that ran last.
    last: Option<TaskId>,
    /// Since when it runs; its virtual time and its work are those of this moment.
    since: Time,
    stamp: u64,
}

#[derive(Debug, Default)]
struct Task {
    state: TaskState,
    /// The rest of its work.
    work: Time,
    virtual_time: Time,
    ran: Time,
    delayed: Time,
    is_stopped: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TaskState {
    /// It has no work.
    #[default]
    Asleep,
    Ready {
        stamp: u64,
        since: Time,
    },
    Running {
        core: usize,
    },
}

// === impl Processors ===

impl Processors {
    /// Idle processors. `slice` and `switch` are in nanoseconds.
    pub fn new(cores: usize, slice: Time, switch: Time) -> Processors {
        Processors {
            cores: (0..cores).map(|_| Core::default()).collect(),
            tasks: Vec::new(),
            ready: BinaryHeap::new(),
            virtual_now: 0,
            used: 0,
            next_stamp: 0,
            slice: slice.max(1),
            switch,
        }
    }

    /// Another task, without work.
    pub fn add_task(&mut self) -> TaskId {
        self.tasks.push(Task::default());
        self.tasks.len() - 1
    }

    /// A task without work gets some.
    pub fn start(&mut self, id: TaskId, work: Time, now: Time) {
        let earliest = self.virtual_now.saturating_sub(self.slice);
        let task = &mut self.tasks[id];
        debug_assert!(task.state == TaskState::Asleep, "task {id} has work already");
        task.work = work;
        task.virtual_time = task.virtual_time.max(earliest);
        if !task.is_stopped {
            self.enqueue(id, now);
        }
    }

    /// A task with work has no more of it.
    pub fn cancel(&mut self, id: TaskId, now: Time) {
        self.take_from_core(id, now);
        self.tasks[id].state = TaskState::Asleep;
        self.tasks[id].work = 0;
    }

    /// Stops a task, as SIGSTOP does, or lets it go on.
    pub fn set_stopped(&mut self, id: TaskId, is_stopped: bool, now: Time) {
        if self.tasks[id].is_stopped == is_stopped {
            return;
        }
        self.tasks[id].is_stopped = is_stopped;
        if is_stopped {
            self.take_from_core(id, now);
            self.tasks[id].state = TaskState::Asleep;
        } else if self.tasks[id].work > 0 {
            self.enqueue(id, now);
        }
    }

    /// Gives work to free processors. The caller schedules the end of each slice.
    pub fn dispatch(&mut self, now: Time, mut schedule: impl FnMut(SliceEnd)) {
        self.displace(now);
        for number in 0..self.cores.len() {
            if self.cores[number].task.is_some() {
                continue;
            }
            let Some(id) = self.next_ready() else { return };
            let task = &mut self.tasks[id];
            if let TaskState::Ready { since, .. } = task.state {
                task.delayed += now - since;
            }
            task.state = TaskState::Running { core: number };
            if self.cores[number].last != Some(id) {
                task.work += self.switch;
            }
            self.virtual_now = self.virtual_now.max(task.virtual_time);
            let length = task.work.min(self.slice);
            self.next_stamp += 1;
            let stamp = self.next_stamp;
            self.cores[number] = Core { task: Some(id), last: Some(id), since: now, stamp };
            schedule(SliceEnd { at: now + length, core: number, stamp });
        }
    }

    /// The end of a slice. Returns the task if its work is done. Call [`Processors::dispatch`] afterwards.
    pub fn on_slice_end(&mut self, end: SliceEnd, now: Time) -> Option<TaskId> {
        let id = self.cores[end.core].task.filter(|_| self.cores[end.core].stamp == end.stamp)?;
        self.take_from_core(id, now);
        if self.tasks[id].work == 0 {
            self.tasks[id].state = TaskState::Asleep;
            return Some(id);
        }
        self.enqueue(id, now);
        None
    }

    /// How long the task has used a processor.
    pub fn ran(&self, id: TaskId, now: Time) -> Time {
        let task = &self.tasks[id];
        match task.state {
            TaskState::Running { core } => task.ran + (now - self.cores[core].since),
            _ => task.ran,
        }
    }

    /// How long the processors have been idle until now, added up.
    pub fn idle(&self, now: Time) -> Time {
        let running = self.cores.iter().filter(|core| core.task.is_some()).map(|core| now - core.since).sum::<Time>();
        (now * self.cores.len() as Time).saturating_sub(self.used + running)
    }

    /// How long the task has waited for a processor.
    pub fn delayed(&self, id: TaskId, now: Time) -> Time {
        let task = &self.tasks[id];
        match task.state {
            TaskState::Ready { since, .. } => task.delayed + (now - since),
            _ => task.delayed,
        }
    }

    fn enqueue(&mut self, id: TaskId, now: Time) {
        self.next_stamp += 1;
        let stamp = self.next_stamp;
        self.tasks[id].state = TaskState::Ready { stamp, since: now };
        self.ready.push(Reverse((self.tasks[id].virtual_time, stamp, id)));
    }

    /// If no processor is free, the task that waits with the least virtual time displaces one that is far ahead.
    fn displace(&mut self, now: Time) {
        if self.cores.iter().any(|core| core.task.is_none()) {
            return;
        }
        let Some(least) = self.least_ready() else { return };
        let virtual_time_of = |core: &Core| core.task.map(|id| (self.tasks[id].virtual_time + (now - core.since), id));
        let ahead = self.cores.iter().filter_map(virtual_time_of).max();
        if let Some((_, id)) = ahead.filter(|(virtual_time, _)| *virtual_time > least + self.slice) {
            self.take_from_core(id, now);
            self.enqueue(id, now);
        }
    }

    fn least_ready(&mut self) -> Option<Time> {
        while let Some(Reverse((virtual_time, stamp, id))) = self.ready.peek() {
            if matches!(self.tasks[*id].state, TaskState::Ready { stamp: known, .. } if known == *stamp) {
                return Some(*virtual_time);
            }
            self.ready.pop();
        }
        None
    }

    fn next_ready(&mut self) -> Option<TaskId> {
        self.least_ready()?;
        self.ready.pop().map(|Reverse((_, _, id))| id)
    }

    fn take_from_core(&mut self, id: TaskId, now: Time) {
        let TaskState::Running { core } = self.tasks[id].state else { return };
        let used = now - self.cores[core].since;
        let task = &mut self.tasks[id];
        self.used += used;
        task.ran += used;
        task.virtual_time += used;
        task.work = task.work.saturating_sub(used);
        self.cores[core].task = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Time = 3000;

    /// Plays until all work is done, and returns the tasks in the order of their ends with the times.
    fn play(processors: &mut Processors, from: Time) -> Vec<(Time, TaskId)> {
        let mut ends = Vec::new();
        let mut done = Vec::new();
        let mut now = from;
        loop {
            processors.dispatch(now, |end| ends.push(end));
            let Some(next) = (0..ends.len()).min_by_key(|index| ends[*index].at) else { return done };
            let end = ends.remove(next);
            now = end.at;
            done.extend(processors.on_slice_end(end, now).map(|id| (now, id)));
        }
    }

    #[test]
    fn tasks_share_the_processors_fairly() {
        let mut processors = Processors::new(2, SLICE, 0);
        let tasks: Vec<_> = (0..4).map(|_| processors.add_task()).collect();
        tasks.iter().for_each(|id| processors.start(*id, 30_000, 0));
        let done = play(&mut processors, 0);
        // Each gets half of a processor: the first ends at most one slice before the last.
        assert_eq!(done.last().unwrap().0, 60_000);
        assert!(done[0].0 >= 60_000 - 2 * SLICE, "{done:?}");
        assert!(tasks.iter().all(|id| processors.ran(*id, 60_000) == 30_000));
        assert!(tasks.iter().all(|id| processors.delayed(*id, 60_000) <= 30_000));
    }

    #[test]
    fn a_task_that_slept_displaces_one_that_computes() {
        let mut processors = Processors::new(1, SLICE, 0);
        let [computes, sleeps] = [processors.add_task(), processors.add_task()];
        processors.start(computes, 1_000_000, 0);
        processors.dispatch(0, |_| {});
        let mut slices = Vec::new();
        processors.start(sleeps, 10, 8000);
        processors.dispatch(8000, |end| slices.push(end));
        assert_eq!(slices.iter().map(|end| end.at).collect::<Vec<_>>(), [8010]);
        assert_eq!(processors.on_slice_end(slices[0], 8010), Some(sleeps));
        assert_eq!((processors.ran(computes, 8010), processors.delayed(computes, 8010)), (8000, 10));
        assert_eq!((processors.idle(8010), processors.idle(8110)), (0, 100));
    }

    #[test]
    fn a_change_of_the_task_costs_time_and_a_stopped_task_keeps_its_work() {
        let mut processors = Processors::new(1, SLICE, 100);
        let [first, second] = [processors.add_task(), processors.add_task()];
        processors.start(first, 1000, 0);
        assert_eq!(play(&mut processors, 0), [(1100, first)]);
        processors.start(first, 1000, 2000);
        processors.start(second, 1000, 2000);
        processors.set_stopped(second, true, 2000);
        assert_eq!(play(&mut processors, 2000), [(3000, first)], "it ran last: its caches are warm");
        processors.set_stopped(second, false, 9000);
        assert_eq!(play(&mut processors, 9000), [(10_100, second)]);
    }
}
