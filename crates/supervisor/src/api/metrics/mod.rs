//! `GET /metrics`: the numbers of howdah, for Prometheus.
//!
//! The requests are in memory that the router counts in: to read it costs the router nothing. The router is only asked
//! for its load, and if it does not answer, all other numbers are sent without it. The [`costly`] numbers are at most
//! ten seconds old.

mod costly;

use crate::control::Control;
use crate::generation::process_report::ReportedState;
use crate::generation::tally::{DEATHS, OpcacheTally, ProcessTally, SIZING_STEPS};
use costly::CostlyNumbers;
use howdah_config::UpstreamServer;
use howdah_metrics::exposition::{Exposition, Format};
use howdah_metrics::families::{self as family, Family};
use howdah_metrics::layout::{Phase, Scalar};
use howdah_metrics::totals::SumRow;
use howdah_protocol::messages::exporter::Outcome;
use howdah_system_log::log::Log;
use howdah_telemetry::logs;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// The memory from one text to the next.
#[derive(Debug)]
pub struct MetricsMemory {
    started: SystemTime,
    costly: CostlyNumbers,
    /// How many lines of the supervisor no log daemon gets.
    own_lines_lost: u64,
    /// How long the last text took.
    last_took: Duration,
}

const STATES: [ReportedState; 6] = [
    ReportedState::Starting,
    ReportedState::Idle,
    ReportedState::Busy,
    ReportedState::Finishing,
    ReportedState::Leaving,
    ReportedState::Ready,
];

/// The exposition. `is_up`: the router has reported its load just now.
pub fn text(control: &Control, memory: &mut MetricsMemory, format: Format, is_up: bool) -> Vec<u8> {
    let began = Instant::now();
    memory.costly.update(control, began);
    let mut out = Exposition::new(format);
    add_howdah(&mut out, control, memory, is_up);
    add_requests(&mut out, control);
    add_load(&mut out, control);
    add_connections(&mut out, control);
    add_applications(&mut out, control, memory);
    add_upstreams(&mut out, control);
    add_telemetry(&mut out, control);
    add_lost_lines(&mut out, control, memory);
    memory.costly.add_processes(&mut out);
    gauge(&mut out, &family::SCRAPE_TIME, memory.last_took.as_secs_f64());
    memory.last_took = began.elapsed();
    out.finish()
}

// === impl MetricsMemory ===

impl Default for MetricsMemory {
    fn default() -> MetricsMemory {
        MetricsMemory {
            started: SystemTime::now(),
            costly: CostlyNumbers::default(),
            own_lines_lost: 0,
            last_took: Duration::ZERO,
        }
    }
}

fn add_howdah(out: &mut Exposition, control: &Control, memory: &MetricsMemory, is_up: bool) {
    out.family(&family::BUILD);
    out.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let started = memory.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    gauge(out, &family::START_TIME, started.as_secs_f64());
    gauge(out, &family::CONFIGURATION_VERSION, control.served().version as f64);
    gauge(out, &family::ROUTER_UP, f64::from(u8::from(is_up)));
    out.family(&family::ROUTER_STARTS);
    out.sample(&[], control.runtime.router.starts());
}

fn add_requests(out: &mut Exposition, control: &Control) {
    let totals = control.runtime.router.totals();
    let sums = totals.read();
    let rows: Vec<_> = totals.rows(&sums).collect();
    out.family(&family::REQUESTS);
    for row in &rows {
        let [application, route, responder] = of_row(row);
        for (method, status, count) in row.requests() {
            out.sample(&[application, route, responder, ("method", method), ("status", status)], count);
        }
    }
    let times: [(&'static Family, Phase); 5] = [
        (&family::WHOLE_TIME, Phase::Whole),
        (&family::FIRST_BYTE_TIME, Phase::FirstByte),
        (&family::QUEUE_TIME, Phase::Queue),
        (&family::PHP_TIME, Phase::Php),
        (&family::CPU_TIME, Phase::Cpu),
    ];
    for (family, phase) in times {
        out.family(family);
        for row in &rows {
            if let Some(words) = row.histogram(phase) {
                out.histogram(&of_row(row), words);
            }
        }
    }
    out.family(&family::BODY_BYTES);
    rows.iter().for_each(|row| out.sample(&of_row(row), row.body_bytes()));
    out.family(&family::REFUSED);
    for row in &rows {
        for (cause, count) in row.refused() {
            let [application, route, responder] = of_row(row);
            out.sample(&[application, route, responder, ("cause", cause)], count);
        }
    }
}

fn of_row<'r>(row: &SumRow<'r>) -> [(&'static str, &'r str); 3] {
    [("application", row.application), ("route", row.route), ("responder", row.responder)]
}

/// The labels of an application, of one of its worker scripts if it has several, and further ones.
fn of_pool<'l>(
    (application, script): (&'l str, Option<&'l str>),
    others: &[(&'static str, &'l str)],
) -> Vec<(&'static str, &'l str)> {
    let script = script.map(|script| (family::OPTIONAL_LABEL, script));
    std::iter::once(("application", application)).chain(script).chain(others.iter().copied()).collect()
}

/// The requests that run and wait now, of all generations of an application.
fn add_load(out: &mut Exposition, control: &Control) {
    let load = control.runtime.router.load();
    for (family, numbers) in
        [(&family::REQUESTS_ACTIVE, &load.requests_active), (&family::QUEUE_LENGTH, &load.requests_waiting)]
    {
        let mut by_application = BTreeMap::<(&str, Option<&str>), u64>::new();
        for generation in control.runtime.generations.iter() {
            let pools: Vec<_> = match generation.as_php() {
                Some(php) => php.pools().map(|pool| (pool.id, pool.script)).collect(),
                None => vec![(generation.id(), None)],
            };
            for (id, script) in pools {
                let number = numbers.get(&id).copied().unwrap_or_default();
                *by_application.entry((generation.name(), script)).or_default() += number;
            }
        }
        out.family(family);
        by_application.into_iter().for_each(|(pool, number)| out.sample(&of_pool(pool, &[]), number));
    }
}

fn add_connections(out: &mut Exposition, control: &Control) {
    let router = &control.runtime.router;
    let (totals, load) = (router.totals(), router.load());
    for (family, scalar) in
        [(&family::CONNECTIONS_ACCEPTED, Scalar::Accepted), (&family::CONNECTIONS_CLOSED, Scalar::Closed)]
    {
        out.family(family);
        out.sample(&[], totals.scalar(scalar));
    }
    let open = load.connections_accepted.saturating_sub(load.connections_closed);
    out.family(&family::CONNECTIONS);
    out.sample(&[("state", "active")], load.connections_active);
    out.sample(&[("state", "idle")], open.saturating_sub(load.connections_active));
    out.family(&family::TLS_HANDSHAKES);
    out.sample(&[("version", "TLSv1.2")], totals.scalar(Scalar::Tls12));
    out.sample(&[("version", "TLSv1.3")], totals.scalar(Scalar::Tls13));
    for (family, scalar) in [(&family::TLS_RESUMED, Scalar::TlsResumed), (&family::TLS_FAILURES, Scalar::TlsFailed)] {
        out.family(family);
        out.sample(&[], totals.scalar(scalar));
    }
    out.family(&family::CERTIFICATE_EXPIRY);
    for (name, expires_at) in control.runtime.certificates.expiries() {
        out.sample(&[("certificate", name)], expires_at);
    }
}

fn add_applications(out: &mut Exposition, control: &Control, memory: &MetricsMemory) {
    let served = control.served();
    out.family(&family::APPLICATION_UP);
    served.generations.keys().for_each(|name| out.sample(&[("application", name)], 1));
    let drained = &served.configuration.drained;
    served.failures.keys().chain(drained).for_each(|name| out.sample(&[("application", name)], 0));
    out.family(&family::APPLICATION_DRAINED);
    for name in served.configuration.applications.keys() {
        out.sample(&[("application", name)], u8::from(drained.contains(name)));
    }
    let mut states = BTreeMap::<(&str, Option<&str>), [u64; STATES.len()]>::new();
    let mut wanted = BTreeMap::<(&str, Option<&str>), usize>::new();
    for generation in control.runtime.generations.iter() {
        let drains = !served.has_generation(generation.id());
        states.entry((generation.name(), None)).or_default();
        for (script, state) in generation.process_states(drains) {
            let counts = states.entry((generation.name(), script)).or_default();
            let index = STATES.iter().position(|known| *known == state);
            index.into_iter().for_each(|index| counts[index] += 1);
        }
        match generation.as_php().filter(|_| !drains) {
            Some(php) => wanted.extend(php.pools().map(|pool| ((generation.name(), pool.script), pool.wanted))),
            None if !drains => {
                wanted.insert((generation.name(), None), generation.processes());
            }
            None => {}
        }
    }
    out.family(&family::WORKERS);
    for (pool, counts) in &states {
        for (state, count) in STATES.iter().zip(counts) {
            out.sample(&of_pool(*pool, &[("state", state.name())]), count);
        }
    }
    out.family(&family::WORKERS_WANTED);
    wanted.iter().for_each(|(pool, count)| out.sample(&of_pool(*pool, &[]), count));
    let tallies = control.runtime.generations.tallies();
    let mut each = |family, number: &dyn Fn(&ProcessTally) -> f64| {
        out.family(family);
        tallies.iter().for_each(|(name, tally)| out.sample(&[("application", name)], number(tally)));
    };
    each(&family::WORKER_STARTS, &|tally| tally.starts as f64);
    each(&family::APPLICATION_REQUESTS, &|tally| tally.requests as f64);
    each(&family::APPLICATION_CPU, &|tally| tally.cpu.as_secs_f64());
    each(&family::APPLICATION_BUSY, &|tally| tally.busy.as_secs_f64());
    out.family(&family::WORKER_DEATHS);
    for (name, tally) in &tallies {
        for (cause, count) in DEATHS.iter().zip(tally.deaths) {
            out.sample(&[("application", name), ("cause", cause)], count);
        }
    }
    out.family(&family::SIZING_DECISIONS);
    for (name, tally) in &tallies {
        for (reason, count) in SIZING_STEPS.iter().zip(tally.steps) {
            out.sample(&[("application", name), ("reason", reason)], count);
        }
    }
    memory.costly.add_applications(out);
    add_opcache(out, control, &tallies);
}

/// The numbers that PHP workers report of opcache: its state is that of the generation that serves.
fn add_opcache(out: &mut Exposition, control: &Control, tallies: &BTreeMap<String, ProcessTally>) {
    let served = control.served();
    let generations = control.runtime.generations.iter().filter(|generation| served.has_generation(generation.id()));
    let reports =
        generations.filter_map(|generation| Some((generation.name(), generation.as_php()?.opcache_report()?)));
    let reports: Vec<_> = reports.collect();
    out.family(&family::OPCACHE_MEMORY);
    for (name, report) in &reports {
        let states = [("used", report.used_bytes), ("free", report.free_bytes), ("wasted", report.wasted_bytes)];
        for (state, bytes) in states {
            out.sample(&[("application", name), ("state", state)], bytes);
        }
    }
    out.family(&family::OPCACHE_SCRIPTS);
    reports.iter().for_each(|(name, report)| out.sample(&[("application", name)], report.scripts));
    let reported = || tallies.iter().filter(|(_, tally)| tally.opcache != OpcacheTally::default());
    let mut each = |family, number: &dyn Fn(&OpcacheTally) -> u64| {
        out.family(family);
        reported().for_each(|(name, tally)| out.sample(&[("application", name)], number(&tally.opcache)));
    };
    each(&family::OPCACHE_HITS, &|opcache| opcache.hits);
    each(&family::OPCACHE_MISSES, &|opcache| opcache.misses);
    each(&family::OPCACHE_RESTARTS, &|opcache| opcache.restarts);
}

fn add_upstreams(out: &mut Exposition, control: &Control) {
    let troubles = &control.runtime.router.load().upstream_troubles;
    let upstreams = &control.served().configuration.upstreams;
    let servers =
        || upstreams.iter().flat_map(|(name, upstream)| upstream.servers.iter().map(move |server| (name, server)));
    // A server that drains has the weight 0, too.
    let is_drained = |server: &UpstreamServer| server.weight == 0.0;
    out.family(&family::UPSTREAM_UP);
    for (name, server) in servers() {
        let address = server.endpoint.to_string();
        let in_trouble = troubles.get(name).is_some_and(|servers| servers.contains_key(&address));
        let is_up = !is_drained(server) && !in_trouble;
        out.sample(&[("upstream", name), ("server", &address)], u8::from(is_up));
    }
    out.family(&family::UPSTREAM_DRAINED);
    for (name, server) in servers() {
        let address = server.endpoint.to_string();
        out.sample(&[("upstream", name), ("server", &address)], u8::from(is_drained(server)));
    }
}

/// Only with `settings/telemetry`, or if there was any.
fn add_telemetry(out: &mut Exposition, control: &Control) {
    let (totals, tally) = (control.runtime.router.totals(), control.runtime.exporter.tally());
    let recorded = totals.scalar(Scalar::Spans);
    if recorded == 0 && control.served().configuration.settings.telemetry.is_none() {
        return;
    }
    out.family(&family::SPANS_RECORDED);
    out.sample(&[], recorded);
    let mut outcomes = |family, found: Outcome, lost| {
        out.family(family);
        for (outcome, number) in [("sent", found.sent), ("dropped", found.dropped), ("lost", lost)] {
            out.sample(&[("outcome", outcome)], number);
        }
    };
    outcomes(&family::SPANS, tally.spans, totals.scalar(Scalar::SpansLost));
    // The lines of routers, and of the supervisor.
    let (own, own_lost) = logs::counts();
    outcomes(&family::LOG_RECORDS, tally.logs, totals.scalar(Scalar::LogRecordsLost) + own_lost);
    out.family(&family::LOG_RECORDS_RECORDED);
    out.sample(&[], totals.scalar(Scalar::LogRecords) + own);
}

fn add_lost_lines(out: &mut Exposition, control: &Control, memory: &mut MetricsMemory) {
    let totals = control.runtime.router.totals();
    memory.own_lines_lost += Log::Error.take_lost();
    out.family(&family::SYSTEM_LOG_LOST);
    out.sample(&[("log", Log::Access.id())], totals.scalar(Scalar::AccessLinesLost));
    out.sample(&[("log", Log::Error.id())], totals.scalar(Scalar::OwnLinesLost) + memory.own_lines_lost);
}

fn gauge(out: &mut Exposition, family: &'static Family, value: f64) {
    out.family(family);
    out.sample(&[], value);
}
