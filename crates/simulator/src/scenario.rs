//! The description of a simulation: the machine, the pages, the clients and the disturbances.

use std::time::Duration;

/// All that a simulation needs beside the policies.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its length.
    pub length: Duration,
    /// How many processors there are.
    pub cores: usize,
    /// How long each step of a request keeps a processor busy, beside the page.
    pub costs: Costs,
    /// The clients.
    pub clients: Vec<Clients>,
    /// How many requests can be in the waits of [`Page::waits_at_resource`] at a time.
    pub resource: usize,
    /// All that goes wrong, and when.
    pub disturbances: Vec<Disturbance>,
    /// A report of too few workers is sent after this time without an idle worker.
    pub report_after: Duration,
    /// Another seed is another sequence of random numbers.
    pub seed: u64,
}

/// How long each step keeps a processor busy.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The load generator sends a request and reads its answer.
    pub client: Duration,
    /// The router reads a request and queues it.
    pub request: Duration,
    /// The router sends an answer.
    pub answer: Duration,
    /// The router answers 503 by itself.
    pub refusal: Duration,
    /// The router wakes an idle worker.
    pub wake: Duration,
    /// A processor changes to another task, and fills its caches again.
    pub switch: Duration,
    /// A new worker is forked and starts.
    pub start: Duration,
    /// The longest time that a task runs while another one waits.
    pub slice: Duration,
}

/// Clients of one kind.
#[derive(Clone, Debug)]
pub struct Clients {
    /// When they send requests.
    pub arrivals: Arrivals,
    /// The pages that they request, each with its weight.
    pub pages: Vec<(u32, Page)>,
    /// The reaction of a client to a 503.
    pub retry: Retry,
    /// A client leaves the queue after this time, and counts that as an error; `None` waits without a limit.
    pub patience: Option<Duration>,
    /// They send requests from this time on.
    pub from: Duration,
    /// They send no requests from this time on.
    pub until: Duration,
}

/// When clients send requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Each client waits for its answer, and then for `think`, before its next request.
    Closed {
        /// How many clients there are.
        clients: usize,
        /// The mean time between an answer and the next request; exponentially distributed.
        think: Duration,
    },
    /// Requests come at a rate, whether or not earlier ones were answered.
    Open {
        /// How many come per second.
        per_second: f64,
        /// At random times, or evenly.
        is_random: bool,
    },
    /// All requests come at the same time.
    Burst {
        /// How many.
        requests: usize,
    },
}

/// The reaction of a client to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It sends no further request for this one. In a closed loop it thinks, and goes on with the next one.
    GiveUp,
    /// It sends the request again after this time. Zero is at once.
    After(Duration),
    /// The first pause, doubled after each error up to the longest.
    BackOff {
        /// The first pause.
        first: Duration,
        /// The longest pause.
        longest: Duration,
    },
}

/// The work of a worker for one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Page {
    /// How long it uses a processor.
    pub cpu: Duration,
    /// How long it waits for others, in all.
    pub wait: Duration,
    /// The number of waits. Between them it computes.
    pub waits: u32,
    /// Whether its times are exponentially distributed, or always the same.
    pub is_random: bool,
    /// Whether its waits need the scenario's resource.
    pub waits_at_resource: bool,
}

/// Something goes wrong for some time.
#[derive(Clone, Copy, Debug)]
pub struct Disturbance {
    /// Its beginning.
    pub from: Duration,
    /// Its end.
    pub until: Duration,
    /// Its kind.
    pub kind: DisturbanceKind,
}

/// The kind of a [`Disturbance`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DisturbanceKind {
    /// All workers are stopped, as by SIGSTOP.
    WorkersStop,
    /// Other processes compute on the same processors.
    Neighbour {
        /// How many.
        tasks: usize,
    },
    /// Waits that begin end when the disturbance does, at the earliest.
    WaitsHang,
    /// Pages compute this many times longer, as with a cold opcache.
    PagesSlow {
        /// How many times.
        factor: f64,
    },
    /// Each worker is replaced by a new one, and leaves after its request. Until its end, pages compute this many times
    /// longer, because the new opcache is cold. The policies are new, too: they know nothing of what was before.
    Deploy {
        /// How many times.
        factor: f64,
    },
}

// === impl Scenario ===

impl Scenario {
    /// These clients on two processors, without disturbances.
    pub fn new(length: Duration, clients: Vec<Clients>) -> Scenario {
        Scenario {
            length,
            cores: 2,
            costs: Costs::default(),
            clients,
            resource: usize::MAX,
            disturbances: Vec::new(),
            report_after: Duration::ZERO,
            seed: 1,
        }
    }
}

// === impl Costs ===

impl Default for Costs {
    fn default() -> Costs {
        let us = Duration::from_micros;
        Costs {
            client: us(8),
            request: us(8),
            answer: us(6),
            refusal: us(8),
            wake: us(3),
            switch: us(5),
            start: us(1000),
            slice: us(3000),
        }
    }
}

// === impl Clients ===

impl Clients {
    /// Clients that each wait for an answer before the next request.
    pub fn closed(clients: usize, page: Page) -> Clients {
        Clients::new(Arrivals::Closed { clients, think: Duration::ZERO }, page)
    }

    /// Requests at a rate, at random times.
    pub fn open(per_second: f64, page: Page) -> Clients {
        Clients::new(Arrivals::Open { per_second, is_random: true }, page)
    }

    /// Requests that all come at this time.
    pub fn burst(at: Duration, requests: usize, page: Page) -> Clients {
        Clients { from: at, ..Clients::new(Arrivals::Burst { requests }, page) }
    }

    /// Clients that request this page all the time, and give up after an error.
    pub fn new(arrivals: Arrivals, page: Page) -> Clients {
        Clients {
            arrivals,
            pages: vec![(1, page)],
            retry: Retry::GiveUp,
            patience: None,
            from: Duration::ZERO,
            until: Duration::MAX,
        }
    }

    /// How many of their requests there can be at a time: a very large number if that is not limited.
    pub fn most_at_a_time(&self) -> usize {
        match self.arrivals {
            Arrivals::Closed { clients, .. } => clients,
            Arrivals::Burst { .. } | Arrivals::Open { .. } => usize::MAX / 4,
        }
    }

    /// The same clients, which request these pages.
    pub fn with_pages(self, pages: Vec<(u32, Page)>) -> Clients {
        Clients { pages, ..self }
    }

    /// The same clients, which do this after an error.
    pub fn with_retry(self, retry: Retry) -> Clients {
        Clients { retry, ..self }
    }

    /// The same clients, from and until these times.
    pub fn between(self, from: Duration, until: Duration) -> Clients {
        Clients { from, until, ..self }
    }
}

// === impl Page ===

impl Page {
    /// It only computes.
    pub const fn computes(cpu: Duration) -> Page {
        Page { cpu, wait: Duration::ZERO, waits: 0, is_random: false, waits_at_resource: false }
    }

    /// It computes, waits once, and computes again.
    pub const fn waits(cpu: Duration, wait: Duration) -> Page {
        Page { cpu, wait, waits: 1, is_random: false, waits_at_resource: false }
    }

    /// The same page, with random times.
    pub const fn random(self) -> Page {
        Page { is_random: true, ..self }
    }

    /// The same page, which waits this many times, in all as long as before.
    pub const fn in_waits(self, waits: u32) -> Page {
        Page { waits, ..self }
    }

    /// The same page, which waits at the scenario's resource.
    pub const fn at_resource(self) -> Page {
        Page { waits_at_resource: true, ..self }
    }
}
