//! Plays a scenario: one event after the other.
//!
//! A request travels from a thread of the load generator to a thread of the router, which asks the admission policy,
//! then through the queue to a worker, and back through both threads. The router wakes an idle worker; a worker that
//! finishes takes the next request by itself.

mod agenda;
mod event_loop;
mod pool;
mod requests;
mod resource;

use crate::outcome::{Answer, Outcome, PERIOD, Period};
use crate::policy::{Admission, MEASURE_INTERVAL, Order, PoolView, QueueView, Sizing, Verdict};
use crate::processors::{Processors, TaskId, Time};
use crate::random::Random;
use crate::scenario::{Arrivals, Costs, DisturbanceKind, Scenario};
use agenda::{Agenda, Event, RequestId};
use event_loop::EventLoop;
use pool::{Pool, Running, WorkerState};
use requests::{Requests, nanoseconds};
use resource::Resource;
use std::collections::VecDeque;
use std::time::Duration;

/// The interval in which the router looks for requests that have waited for too long.
const SWEEP_INTERVAL: Duration = Duration::from_millis(10);
/// The interval in which the router repeats that requests wait.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);
/// How long a worker that wakes looks for a request.
const LOOK: Duration = Duration::from_micros(1);
/// The work of a neighbour: more than any simulation lasts.
const ENDLESS: Time = Time::MAX / 4;

/// Plays a scenario with these policies.
pub fn run(scenario: &Scenario, sizing: &mut dyn Sizing, admission: &mut dyn Admission) -> Outcome {
    let mut simulation = Simulation::new(scenario, sizing, admission);
    simulation.begin();
    let end = nanoseconds(scenario.length);
    while let Some((now, event)) = simulation.agenda.next().filter(|(at, _)| *at <= end) {
        simulation.now = now;
        simulation.handle(event);
        let agenda = &mut simulation.agenda;
        simulation.processors.dispatch(now, |slice| agenda.add(slice.at, Event::Slice(slice)));
    }
    simulation.outcome.waiting = simulation.queue.len();
    simulation.outcome
}

struct Simulation<'s> {
    scenario: &'s Scenario,
    sizing: &'s mut dyn Sizing,
    admission: &'s mut dyn Admission,
    now: Time,
    agenda: Agenda,
    processors: Processors,
    load_threads: Vec<EventLoop<LoadItem>>,
    router_threads: Vec<EventLoop<RouterItem>>,
    /// The tasks of the noisy neighbours.
    neighbours: Vec<TaskId>,
    requests: Requests,
    /// The requests that wait for a worker.
    queue: VecDeque<RequestId>,
    held: usize,
    pool: Pool,
    resource: Resource,
    /// The end of the disturbance in which waits do not end.
    waits_hang_until: Time,
    /// How many times longer pages compute.
    slowness: f64,
    /// When the sizing policy decides.
    decides_at: Time,
    /// Whether a report that requests wait is due.
    reports: bool,
    /// Whether requests waited at the last check.
    wanted_workers: bool,
    period: Period,
    /// 1 or -1: the number of workers grew or shrank last.
    direction: i8,
    outcome: Outcome,
}

/// The load generator's work.
#[derive(Debug)]
enum LoadItem {
    Send(RequestId),
    Receive { request: RequestId, is_ok: bool },
}

/// The router's work.
#[derive(Debug)]
enum RouterItem {
    Request(RequestId),
    Answer(RequestId),
    Refusal(RequestId),
}

// === impl Simulation ===

impl<'s> Simulation<'s> {
    fn new(scenario: &'s Scenario, sizing: &'s mut dyn Sizing, admission: &'s mut dyn Admission) -> Simulation<'s> {
        let Scenario { cores, costs, seed, .. } = scenario;
        let mut processors = Processors::new(*cores, nanoseconds(costs.slice), nanoseconds(costs.switch));
        let load_threads = (0..*cores).map(|_| EventLoop::new(processors.add_task())).collect();
        let router_threads = (0..*cores).map(|_| EventLoop::new(processors.add_task())).collect();
        Simulation {
            scenario,
            sizing,
            admission,
            now: 0,
            agenda: Agenda::default(),
            processors,
            load_threads,
            router_threads,
            neighbours: Vec::new(),
            requests: Requests::new(scenario.clients.clone(), Random::new(*seed)),
            queue: VecDeque::new(),
            held: 0,
            pool: Pool::default(),
            resource: Resource::new(scenario.resource),
            waits_hang_until: 0,
            slowness: 1.0,
            decides_at: 0,
            reports: false,
            wanted_workers: false,
            period: Period::default(),
            direction: 0,
            outcome: Outcome::default(),
        }
    }

    fn begin(&mut self) {
        for _ in 0..self.sizing.at_start() {
            self.pool.start(nanoseconds(self.costs().start), &mut self.processors, 0);
        }
        for (group, clients) in self.scenario.clients.iter().enumerate() {
            let from = nanoseconds(clients.from);
            let at_once = match clients.arrivals {
                Arrivals::Closed { clients, .. } => clients,
                Arrivals::Burst { requests } => requests,
                Arrivals::Open { .. } => {
                    self.agenda.add(from, Event::Arrival { group });
                    0
                }
            };
            for _ in 0..at_once {
                let request = self.requests.add(group);
                self.agenda.add(from, Event::Send(request));
            }
        }
        for (index, disturbance) in self.scenario.disturbances.iter().enumerate() {
            self.agenda.add(nanoseconds(disturbance.from), Event::Disturbance { index, begins: true });
            self.agenda.add(nanoseconds(disturbance.until), Event::Disturbance { index, begins: false });
        }
        for (interval, event) in [
            (Duration::ZERO, Event::Decide),
            (SWEEP_INTERVAL, Event::Sweep),
            (MEASURE_INTERVAL, Event::Measure),
            (PERIOD, Event::PeriodEnd),
        ] {
            self.agenda.add(nanoseconds(interval), event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Slice(end) => {
                if let Some(task) = self.processors.on_slice_end(end, self.now) {
                    self.on_task_done(task);
                }
            }
            Event::Arrival { group } => self.on_arrival(group),
            Event::Send(request) => self.push_to_load(LoadItem::Send(request), request),
            Event::WaitOver { index, number } => self.on_wait_over(index, number),
            Event::HoldOver(request) => {
                self.held -= 1;
                self.decide_about(request);
            }
            Event::Refusal(request) => {
                self.push_to_router(RouterItem::Refusal(request), request, self.costs().refusal);
            }
            Event::Sweep => {
                self.end_waits();
                self.agenda.add(self.now + nanoseconds(SWEEP_INTERVAL), Event::Sweep);
            }
            Event::Measure => {
                self.admission.measure(self.queue_view(), Duration::from_nanos(self.now));
                self.report_demand();
                self.agenda.add(self.now + nanoseconds(MEASURE_INTERVAL), Event::Measure);
            }
            Event::Report => self.on_report(),
            Event::Decide => self.size(),
            Event::Disturbance { index, begins } => self.disturb(index, begins),
            Event::PeriodEnd => {
                let counts = self.pool.counts();
                self.period.workers = counts.serving + counts.starting;
                self.outcome.periods.push(std::mem::take(&mut self.period));
                self.agenda.add(self.now + nanoseconds(PERIOD), Event::PeriodEnd);
            }
        }
    }

    // Tasks

    fn on_task_done(&mut self, task: TaskId) {
        let threads = self.load_threads.len();
        if task < threads {
            let batch = self.load_threads[task].take_batch();
            batch.iter().for_each(|item| self.on_load_item(item));
            self.load_threads[task].go_on(batch, &mut self.processors, self.now);
        } else if task < 2 * threads {
            let batch = self.router_threads[task - threads].take_batch();
            batch.iter().for_each(|item| self.on_router_item(item));
            self.router_threads[task - threads].go_on(batch, &mut self.processors, self.now);
        } else if let Some(index) = self.pool.index_of(task) {
            self.on_worker_done(index);
        }
    }

    fn push_to_load(&mut self, item: LoadItem, request: RequestId) {
        let work = nanoseconds(self.costs().client) / 2;
        let thread = request % self.load_threads.len();
        self.load_threads[thread].push(item, work, &mut self.processors, self.now);
    }

    fn push_to_router(&mut self, item: RouterItem, request: RequestId, work: Duration) {
        let thread = self.router_thread_of(request);
        self.router_threads[thread].push(item, nanoseconds(work), &mut self.processors, self.now);
    }

    /// Not always the thread of the load generator with the same number.
    fn router_thread_of(&self, request: RequestId) -> usize {
        request / 2 % self.router_threads.len()
    }

    // Clients

    fn on_arrival(&mut self, group: usize) {
        if self.now >= nanoseconds(self.scenario.clients[group].until) {
            return;
        }
        let request = self.requests.add(group);
        self.push_to_load(LoadItem::Send(request), request);
        if let Some(pause) = self.requests.pause_between(group) {
            self.agenda.add(self.now + nanoseconds(pause), Event::Arrival { group });
        }
    }

    fn on_load_item(&mut self, item: &LoadItem) {
        let next = match *item {
            LoadItem::Send(request) => {
                self.requests.get(request).sent = self.now;
                self.push_to_router(RouterItem::Request(request), request, self.costs().request);
                return;
            }
            LoadItem::Receive { request, is_ok: true } => {
                let at = Duration::from_nanos(self.now);
                let took = Duration::from_nanos(self.now - self.requests.get(request).sent);
                self.outcome.answers.push(Answer { at, took });
                self.period.ok += 1;
                (request, self.requests.on_answered(request, self.now))
            }
            LoadItem::Receive { request, is_ok: false } => (request, self.requests.on_failed(request, self.now)),
        };
        match next {
            (request, Some(at)) if at <= self.now => self.push_to_load(LoadItem::Send(request), request),
            (request, Some(at)) => self.agenda.add(at, Event::Send(request)),
            (_, None) => {}
        }
    }

    // The router and its queue

    fn on_router_item(&mut self, item: &RouterItem) {
        match *item {
            RouterItem::Request(request) => self.decide_about(request),
            RouterItem::Answer(request) => self.push_to_load(LoadItem::Receive { request, is_ok: true }, request),
            RouterItem::Refusal(request) => {
                self.period.rejected += 1;
                self.push_to_load(LoadItem::Receive { request, is_ok: false }, request);
            }
        }
    }

    fn decide_about(&mut self, request: RequestId) {
        let now = Duration::from_nanos(self.now);
        let arrived = *self.requests.get(request).arrived.get_or_insert(self.now);
        let queue = self.queue_view();
        self.admission.measure(queue, now);
        match self.admission.admit(queue, Duration::from_nanos(self.now - arrived), now) {
            Verdict::Queue { limit } => {
                let entry = self.requests.get(request);
                (entry.queued, entry.limit) = (self.now, limit);
                self.queue.push_back(request);
                if self.wake_worker() {
                    let thread = self.router_thread_of(request);
                    let wake = nanoseconds(self.costs().wake);
                    self.router_threads[thread].add_debt(wake);
                }
                self.report_demand();
            }
            Verdict::Hold { pause } => {
                self.held += 1;
                self.agenda.add(self.now + nanoseconds(pause).max(1), Event::HoldOver(request));
            }
            Verdict::Refuse { pause } => {
                self.admission.on_rejected(now);
                self.agenda.add(self.now + nanoseconds(pause), Event::Refusal(request));
            }
        }
    }

    /// Answers requests that have waited for too long, and forgets those of clients that left.
    fn end_waits(&mut self) {
        let now = self.now;
        let (mut late, mut left) = (Vec::new(), Vec::new());
        let (requests, admission) = (&mut self.requests, &*self.admission);
        self.queue.retain(|id| {
            let entry = *requests.get(*id);
            if now - entry.queued >= nanoseconds(admission.longest_wait(entry.limit)) {
                late.push(*id);
                return false;
            }
            let is_gone = requests.patience(*id).is_some_and(|patience| now - entry.sent >= nanoseconds(patience));
            if is_gone {
                left.push(*id);
            }
            !is_gone
        });
        for id in late {
            self.admission.on_rejected(Duration::from_nanos(now));
            self.push_to_router(RouterItem::Refusal(id), id, self.costs().refusal);
        }
        for id in left {
            self.admission.on_left(Duration::from_nanos(now));
            self.period.left += 1;
            self.push_to_load(LoadItem::Receive { request: id, is_ok: false }, id);
        }
    }

    fn queue_view(&self) -> QueueView {
        QueueView {
            waiting: self.queue.len(),
            held: self.held,
            workers: self.pool.counts().serving,
            idle: self.pool.idle(),
        }
    }

    // Workers

    fn wake_worker(&mut self) -> bool {
        let Some(task) = self.pool.wake() else { return false };
        self.processors.start(task, nanoseconds(LOOK), self.now);
        true
    }

    /// The worker's task has done its work.
    fn on_worker_done(&mut self, index: usize) {
        match self.pool.worker(index).state {
            WorkerState::Vacant | WorkerState::Idle => {}
            WorkerState::Starting => {
                self.pool.on_started(index, &self.processors, self.now);
                self.take_request(index);
            }
            WorkerState::Waking => self.take_request(index),
            WorkerState::Busy(running) if running.waits_left > 0 => {
                self.pool.set_running(index, Running { computes: false, ..running });
                if !running.waits_at_resource || self.resource.acquire(index) {
                    self.wait(index, running);
                }
            }
            WorkerState::Busy(running) => {
                let request = running.request;
                self.pool.on_finished(index, self.now);
                self.admission.on_finished(Duration::from_nanos(self.now));
                self.push_to_router(RouterItem::Answer(request), request, self.costs().answer);
                self.take_request(index);
            }
        }
    }

    fn take_request(&mut self, index: usize) {
        if self.pool.exit_if_leaving(index) {
            return;
        }
        let Some(request) = self.queue.pop_front() else { return self.pool.set_idle(index) };
        let page = self.requests.get(request).page;
        let parts = u64::from(page.waits) + 1;
        let running = Running {
            request,
            began: self.now,
            waits_left: page.waits,
            computes: true,
            cpu: (nanoseconds(page.cpu.mul_f64(self.slowness)) / parts).max(1),
            wait: nanoseconds(page.wait) / u64::from(page.waits.max(1)),
            waits_at_resource: page.waits_at_resource,
        };
        self.compute(index, running);
        // More requests wait: the next worker looks for them.
        if !self.queue.is_empty() {
            self.wake_worker();
        }
    }

    fn compute(&mut self, index: usize, running: Running) {
        self.pool.set_running(index, running);
        self.processors.start(self.pool.worker(index).task, running.cpu, self.now);
    }

    fn wait(&mut self, index: usize, running: Running) {
        let over = (self.now + running.wait).max(self.waits_hang_until);
        self.agenda.add(over, Event::WaitOver { index, number: self.pool.worker(index).number });
    }

    fn on_wait_over(&mut self, index: usize, number: u64) {
        let WorkerState::Busy(running) = self.pool.worker(index).state else { return };
        if self.pool.worker(index).number != number {
            return;
        }
        if running.waits_at_resource
            && let Some(next) = self.resource.release()
            && let WorkerState::Busy(waiting) = self.pool.worker(next).state
        {
            self.wait(next, waiting);
        }
        self.compute(index, Running { computes: true, waits_left: running.waits_left - 1, ..running });
    }

    // The number of workers

    fn wants_workers(&self) -> bool {
        self.pool.idle() == 0 && !self.queue.is_empty()
    }

    fn report_demand(&mut self) {
        if !self.reports && self.wants_workers() {
            self.reports = true;
            self.wanted_workers = true;
            self.agenda.add(self.now + nanoseconds(self.scenario.report_after), Event::Report);
        }
    }

    fn on_report(&mut self) {
        let wants = self.wants_workers();
        if !wants && !self.wanted_workers {
            self.reports = false;
            return;
        }
        self.wanted_workers = wants;
        self.agenda.add(self.now + nanoseconds(REPORT_INTERVAL), Event::Report);
        if !wants {
            return;
        }
        let due = self.sizing.on_workers_wanted(self.queue.len(), Duration::from_nanos(self.now));
        if let Some(due) = due.map(|due| nanoseconds(due).max(self.now)).filter(|due| *due < self.decides_at) {
            self.decides_at = due;
            self.agenda.add(due, Event::Decide);
        }
    }

    fn size(&mut self) {
        // An earlier decision has replaced this one.
        if self.decides_at != self.now {
            return;
        }
        let counts = self.pool.counts();
        let workers = self.pool.views(&self.processors, self.now);
        let pool = PoolView {
            cores: self.scenario.cores,
            workers: &workers,
            starting: counts.starting,
            leaving: counts.leaving,
            finished: self.pool.finished(),
            idle_processors: Duration::from_nanos(self.processors.idle(self.now)),
        };
        let Order { start, retire, decide_again_in } = self.sizing.decide(&pool, Duration::from_nanos(self.now));
        for _ in 0..start {
            self.pool.start(nanoseconds(self.costs().start), &mut self.processors, self.now);
        }
        let retired = (0..retire).take_while(|_| self.pool.retire()).count();
        let direction = (start as i64 - retired as i64).signum() as i8;
        if direction != 0 {
            self.outcome.turns += usize::from(direction == -self.direction);
            self.direction = direction;
        }
        let all = counts.serving + counts.starting + counts.leaving + start;
        self.outcome.most_workers = self.outcome.most_workers.max(all);
        self.decides_at = self.now + nanoseconds(decide_again_in).max(1);
        self.agenda.add(self.decides_at, Event::Decide);
    }

    // Disturbances

    fn disturb(&mut self, index: usize, begins: bool) {
        let disturbance = self.scenario.disturbances[index];
        match disturbance.kind {
            DisturbanceKind::WorkersStop => {
                for task in self.pool.tasks() {
                    self.processors.set_stopped(task, begins, self.now);
                }
            }
            DisturbanceKind::Neighbour { tasks } if begins => {
                for _ in 0..tasks {
                    let task = self.processors.add_task();
                    self.processors.start(task, ENDLESS, self.now);
                    self.neighbours.push(task);
                }
            }
            DisturbanceKind::Neighbour { tasks } => {
                for task in self.neighbours.drain(..tasks) {
                    self.processors.cancel(task, self.now);
                }
            }
            DisturbanceKind::WaitsHang if begins => self.waits_hang_until = nanoseconds(disturbance.until),
            DisturbanceKind::WaitsHang => {}
            DisturbanceKind::PagesSlow { factor } => self.slowness = if begins { factor } else { 1.0 },
            DisturbanceKind::Deploy { factor } if begins => {
                self.slowness = factor;
                self.admission.on_deploy(Duration::from_nanos(self.now));
                let workers = self.pool.counts().serving;
                // The old workers finish their requests, and take no others.
                while self.pool.retire() {}
                for _ in 0..workers {
                    self.pool.start(nanoseconds(self.costs().start), &mut self.processors, self.now);
                }
            }
            DisturbanceKind::Deploy { .. } => self.slowness = 1.0,
        }
    }

    fn costs(&self) -> Costs {
        self.scenario.costs
    }
}

#[cfg(test)]
mod tests;
