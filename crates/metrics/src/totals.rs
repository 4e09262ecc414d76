//! The numbers of all threads, of the router that runs and of those before it.
//!
//! When a router is replaced, the numbers of its memory are added to the sums: a counter never goes backwards. A router
//! is not trusted: it can count wrongly, but a row whose names the supervisor does not know only adds to the row `other`,
//! so that the number of rows stays within what the configurations name.

use crate::histogram;
use crate::labels::{CAUSES, CLASSES, METHODS, NameId, RESPONDERS};
use crate::layout::{
    self, APPLICATION, BODY_BYTES, KEY_WORDS, NUMBERS, Phase, REFUSED, REQUESTS, RESPONDER, ROUTE, ROWS, ROWS_USED,
    SCALARS, Scalar,
};
use howdah_channel::Counters;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// The sums, and the names that they belong to.
#[derive(Debug, Default)]
pub struct Totals {
    /// The names that a configuration has had.
    names: BTreeMap<NameId, String>,
    /// Of routers that are gone.
    gone: Sums,
    /// Of the router that runs.
    current: Option<RouterMemory>,
}

/// The numbers at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    scalars: [u64; SCALARS],
    rows: BTreeMap<SumKey, Vec<u64>>,
}

type SumKey = (NameId, NameId, usize);

#[derive(Debug)]
struct RouterMemory {
    counters: Counters,
    threads: u16,
}

/// The numbers of one application, route and responder.
#[derive(Clone, Copy, Debug)]
pub struct SumRow<'s> {
    /// The application; empty for none.
    pub application: &'s str,
    /// The route; empty for none.
    pub route: &'s str,
    /// The responder.
    pub responder: &'static str,
    numbers: &'s [u64],
}

/// The label of rows without names of their own.
const OTHER: &str = "other";
const UNKNOWN: NameId = NameId(u64::MAX);

// === impl Totals ===

impl Totals {
    /// Adds names that rows can have.
    pub fn add_names<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        for name in names {
            self.names.entry(NameId::of(name)).or_insert_with(|| name.to_owned());
        }
    }

    /// Makes the memory for a new router with this number of threads. The numbers of the one before it stay.
    ///
    /// # Errors
    /// When there is no descriptor or no memory for it.
    pub fn begin_router(&mut self, threads: u16) -> io::Result<OwnedFd> {
        self.end_router();
        let memory = Counters::create(layout::words(threads))?;
        let counters = Counters::map(&memory, layout::words(threads))?;
        self.current = Some(RouterMemory { counters, threads });
        Ok(memory)
    }

    /// The router is dead.
    pub fn end_router(&mut self) {
        if let Some(memory) = self.current.take() {
            memory.add_to(&mut self.gone, &self.names);
        }
    }

    /// One of the numbers without labels of a request, now.
    pub fn scalar(&self, scalar: Scalar) -> u64 {
        let current = self.current.as_ref().map_or(0, |memory| memory.scalar(scalar as usize));
        self.gone.scalars[scalar as usize].wrapping_add(current)
    }

    /// The sums of now.
    pub fn read(&self) -> Sums {
        let mut sums = self.gone.clone();
        if let Some(memory) = &self.current {
            memory.add_to(&mut sums, &self.names);
        }
        sums
    }

    /// The rows of these sums, with their names.
    pub fn rows<'s>(&'s self, sums: &'s Sums) -> impl Iterator<Item = SumRow<'s>> {
        let name = |id: NameId| match id {
            NameId::NONE => "",
            id => self.names.get(&id).map_or(OTHER, String::as_str),
        };
        sums.rows.iter().map(move |((application, route, responder), numbers)| SumRow {
            application: name(*application),
            route: name(*route),
            responder: RESPONDERS[*responder],
            numbers,
        })
    }
}

// === impl SumRow ===

impl SumRow<'_> {
    /// The requests, by method and class of status. Only combinations that have come.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let numbers = &self.numbers[REQUESTS..REFUSED];
        let label = |index: usize| (METHODS[index / CLASSES.len()], CLASSES[index % CLASSES.len()]);
        let labelled = numbers.iter().enumerate().filter(|(_, count)| **count > 0);
        labelled.map(move |(index, count)| (label(index).0, label(index).1, *count))
    }

    /// The refused requests by cause. Only causes that have come.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let numbers = &self.numbers[REFUSED..BODY_BYTES];
        CAUSES.into_iter().zip(numbers.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// The bytes of the bodies of all responses.
    pub fn body_bytes(&self) -> u64 {
        self.numbers[BODY_BYTES]
    }

    /// A histogram: its buckets, then the sum in nanoseconds. `None` if it has no entry.
    pub fn histogram(&self, phase: Phase) -> Option<&[u64]> {
        let begin = layout::histogram_of(phase);
        let words = &self.numbers[begin..begin + histogram::WORDS];
        words[..histogram::BUCKETS].iter().any(|count| *count > 0).then_some(words)
    }
}

// === impl RouterMemory ===

impl RouterMemory {
    fn threads(&self) -> std::ops::Range<usize> {
        0..usize::from(self.threads.max(1))
    }

    fn scalar(&self, scalar: usize) -> u64 {
        let numbers = self.threads().map(|thread| self.counters.get(layout::block(thread) + scalar));
        numbers.fold(0, u64::wrapping_add)
    }

    fn add_to(&self, sums: &mut Sums, names: &BTreeMap<NameId, String>) {
        for (scalar, sum) in sums.scalars.iter_mut().enumerate() {
            *sum = sum.wrapping_add(self.scalar(scalar));
        }
        for thread in self.threads() {
            let block = layout::block(thread);
            let used = usize::try_from(self.counters.get(block + ROWS_USED)).unwrap_or(ROWS).min(ROWS);
            (0..used).for_each(|row| self.add_row(layout::key(thread, row), sums, names));
        }
    }

    fn add_row(&self, key: usize, sums: &mut Sums, names: &BTreeMap<NameId, String>) {
        let known = |id| match NameId(id) {
            id if id == NameId::NONE || names.contains_key(&id) => id,
            _ => UNKNOWN,
        };
        let application = known(self.counters.get(key + APPLICATION));
        let route = known(self.counters.get(key + ROUTE));
        let responder = usize::try_from(self.counters.get(key + RESPONDER)).unwrap_or(0);
        let responder = if responder < RESPONDERS.len() { responder } else { 0 };
        let row = sums.rows.entry((application, route, responder)).or_insert_with(|| vec![0; NUMBERS]);
        for (index, sum) in row.iter_mut().enumerate() {
            *sum = sum.wrapping_add(self.counters.get(key + KEY_WORDS + index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::protobuf::decode;
    use crate::exposition::{Exposition, Format};
    use crate::families;
    use crate::labels::{Cause, Method, Responder};
    use crate::layout::PHASES;
    use crate::recorder::{Recorder, RowKey};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn key(application: &str, route: &str) -> RowKey {
        RowKey { application: NameId::of(application), route: NameId::of(route), responder: Responder::Application }
    }

    /// A router's recorders, one for each thread.
    fn recorders(totals: &mut Totals, threads: u16) -> Vec<Recorder> {
        let memory = totals.begin_router(threads).expect("memory");
        let counters = Arc::new(Counters::map(&memory, layout::words(threads)).expect("memory"));
        (0..threads).map(|thread| Recorder::new(Arc::clone(&counters), thread)).collect()
    }

    fn requests(totals: &Totals) -> Vec<(String, String, &'static str, &'static str, u64)> {
        let sums = totals.read();
        let rows = totals.rows(&sums);
        let each = rows.flat_map(|row| {
            let (application, route) = (row.application.to_owned(), row.route.to_owned());
            let each = row
                .requests()
                .map(move |(method, class, count)| (application.clone(), route.clone(), method, class, count));
            each.collect::<Vec<_>>()
        });
        each.collect()
    }

    #[test]
    fn the_numbers_of_all_threads_and_of_dead_routers_are_added() {
        let mut totals = Totals::default();
        totals.add_names(["shop", "routes/0"]);
        for expected in 1..=3 {
            for recorder in recorders(&mut totals, 2) {
                recorder.count(Scalar::Accepted);
                let row = recorder.request(key("shop", "routes/0"), Method::Post, 404);
                recorder.refused(row, Cause::Limit);
                recorder.body_bytes(row, 10);
                recorder.time(row, Phase::Php, Duration::from_millis(3));
            }
            let sums = totals.read();
            let row = totals.rows(&sums).next().expect("a row");
            assert_eq!(row.requests().collect::<Vec<_>>(), [("POST", "4xx", 2 * expected)]);
            assert_eq!(row.refused().collect::<Vec<_>>(), [("limit", 2 * expected)]);
            assert_eq!((row.body_bytes(), totals.scalar(Scalar::Accepted)), (20 * expected, 2 * expected));
            let histogram = row.histogram(Phase::Php).expect("entries");
            let (bucket, _) = histogram::bucket(Duration::from_millis(3));
            assert_eq!((histogram[bucket], histogram::sum(histogram)), (2 * expected, 6_000_000 * expected));
            assert_eq!(row.histogram(Phase::Queue), None);
        }
        let before = totals.read();
        totals.end_router();
        assert_eq!(totals.read(), before);
    }

    #[test]
    fn a_row_that_no_configuration_names_is_another_one() {
        let mut totals = Totals::default();
        totals.add_names(["shop"]);
        let recorders = recorders(&mut totals, 1);
        for n in 0..5 {
            recorders[0].request(key("shop", &format!("hostile {n}")), Method::Get, 200);
        }
        assert_eq!(requests(&totals), [("shop".into(), "other".into(), "GET", "2xx", 5)]);
    }

    #[test]
    fn more_rows_than_there_is_room_for_share_the_last_one() {
        let mut totals = Totals::default();
        let names: Vec<_> = (0..2 * ROWS).map(|n| format!("routes/{n}")).collect();
        totals.add_names(names.iter().map(String::as_str));
        totals.add_names(["shop"]);
        let recorders = recorders(&mut totals, 1);
        for name in names.iter().chain(&names) {
            recorders[0].request(key("shop", name), Method::Get, 200);
        }
        let found = requests(&totals);
        assert_eq!(found.iter().map(|row| row.4).sum::<u64>(), 4 * ROWS as u64, "each request is counted once");
        assert_eq!(found.len(), ROWS);
        let other = found.iter().find(|row| row.1 == "other").expect("the last row");
        assert_eq!(other.4, 2 * (ROWS as u64 + 1));
    }

    #[test]
    fn a_hostile_memory_is_read_without_harm() {
        let mut totals = Totals::default();
        totals.add_names(["shop"]);
        let memory = totals.begin_router(1).expect("memory");
        let counters = Counters::map(&memory, layout::words(1)).expect("memory");
        (0..counters.len()).for_each(|word| counters.set(word, u64::MAX - word as u64));
        let sums = totals.read();
        assert_eq!(totals.rows(&sums).count(), 1);
    }

    #[test]
    fn a_hundred_applications_are_read_within_milliseconds() {
        let mut totals = Totals::default();
        let names: Vec<_> = (0..100).map(|n| format!("application {n}")).collect();
        totals.add_names(names.iter().map(String::as_str).chain(["routes/0"]));
        let recorders = recorders(&mut totals, 4);
        for name in &names {
            for recorder in &recorders {
                let row = recorder.request(key(name, "routes/0"), Method::Get, 200);
                PHASES.into_iter().for_each(|phase| recorder.time(row, phase, Duration::from_millis(7)));
            }
        }
        let read = |format| {
            let began = Instant::now();
            let sums = totals.read();
            let mut text = Exposition::new(format);
            for (family, phase) in [(&families::PHP_TIME, Phase::Php), (&families::QUEUE_TIME, Phase::Queue)] {
                text.family(family);
                for row in totals.rows(&sums) {
                    let labels = [("application", row.application), ("route", row.route), ("responder", row.responder)];
                    text.histogram(&labels, row.histogram(phase).expect("entries"));
                }
            }
            let written = text.finish();
            let took = began.elapsed();
            match format {
                Format::Protobuf => {
                    assert_eq!(decode(&written).iter().map(|family| family.metric.len()).sum::<usize>(), 200)
                }
                _ => assert_eq!(written.split(|byte| *byte == b'\n').count(), 2 * (3 + 100 * 17) + 2),
            }
            took
        };
        for format in [Format::OpenMetrics, Format::Protobuf] {
            let fastest = (0..10).map(|_| read(format)).min().expect("rounds");
            assert!(fastest < Duration::from_millis(50), "{fastest:?}, in a build with assertions");
            println!("{format:?}: {fastest:?}");
        }
    }
}
