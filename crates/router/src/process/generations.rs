//! The generations of applications that the router knows: those that arrived and that no configuration has named yet,
//! and those in use. A generation is in use as long as something has it: the configuration, or a request.

use crate::backends::fastcgi::FastCgiGeneration;
use crate::backends::php::SharedGeneration;
use crate::backends::proxy::HttpGeneration;
use crate::backends::roadrunner::RoadRunnerGeneration;
use howdah_protocol::messages::router::{FastCgiServerLoad, RouterLoad};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

/// A generation of an application, whatever answers its requests.
pub trait Generation {
    /// Its number.
    fn id(&self) -> u64;
    /// The numbers of its requests.
    fn requests(&self) -> Requests;
    /// Whether a configuration names it, or is still to name it. If not, it has its last requests.
    fn set_current(&self, _is_current: bool) {}
}

/// The numbers of the requests of a generation.
pub struct Requests {
    /// How many it has, or wait.
    active: u64,
    /// How many wait.
    waiting: u64,
    /// How many were answered 503 by the queue, if it has one.
    rejected: Option<u64>,
}

/// The known generations of one kind.
pub struct KnownGenerations<G> {
    /// No configuration has named these yet.
    arriving: BTreeMap<u64, Arc<G>>,
    /// All that are in use, the arriving ones too.
    used: Vec<Weak<G>>,
}

/// The known generations of all kinds.
#[derive(Default)]
pub struct Generations {
    /// Of PHP applications.
    pub php: KnownGenerations<SharedGeneration>,
    /// Of HTTP applications.
    pub http: KnownGenerations<HttpGeneration>,
    /// Of RoadRunner applications.
    pub roadrunner: KnownGenerations<RoadRunnerGeneration>,
    /// Of FastCGI applications.
    pub fastcgi: KnownGenerations<FastCgiGeneration>,
}

// === impl Generations ===

impl Generations {
    /// Forgets a generation that no configuration will name.
    pub fn forget(&mut self, id: u64) {
        self.php.arriving.remove(&id);
        self.http.arriving.remove(&id);
        self.roadrunner.arriving.remove(&id);
        self.fastcgi.arriving.remove(&id);
    }

    /// Checks that each of the generations is known.
    ///
    /// # Errors
    /// Names the first one that is not.
    pub fn check_known(&self, named: &BTreeMap<String, u64>) -> io::Result<()> {
        let is_known = |id: u64| {
            self.php.find(id).is_some()
                || self.http.find(id).is_some()
                || self.roadrunner.find(id).is_some()
                || self.fastcgi.find(id).is_some()
        };
        match named.values().find(|id| !is_known(**id)) {
            Some(id) => Err(io::Error::other(format!("generation {id} is not known"))),
            None => Ok(()),
        }
    }

    /// A configuration has these generations now.
    pub fn configured(&mut self, named: &BTreeMap<String, u64>) {
        self.php.configured(named);
        self.http.configured(named);
        self.roadrunner.configured(named);
        self.fastcgi.configured(named);
    }

    /// Adds the numbers of all requests to the report, and servers that have connections or a trouble.
    pub fn add_to(&self, report: &mut RouterLoad) {
        self.php.add_to(report);
        self.http.add_to(report);
        self.roadrunner.add_to(report);
        self.fastcgi.add_to(report);
        for generation in self.fastcgi.used() {
            let mut servers = generation.load();
            servers.retain(|_, load| *load != FastCgiServerLoad::default());
            if !servers.is_empty() {
                report.fastcgi_servers.insert(generation.id, servers);
            }
        }
    }
}

// === impl KnownGenerations ===

impl<G: Generation> KnownGenerations<G> {
    /// A generation has arrived.
    pub fn add(&mut self, generation: G) {
        let generation = Arc::new(generation);
        self.used.push(Arc::downgrade(&generation));
        self.arriving.insert(generation.id(), generation);
    }

    /// Takes a generation that has arrived and that becomes a part of another one.
    pub fn take_arriving(&mut self, id: u64) -> Option<Arc<G>> {
        self.arriving.remove(&id)
    }

    /// The generations that no configuration has named yet.
    pub fn arriving(&self) -> impl Iterator<Item = &Arc<G>> {
        self.arriving.values()
    }

    /// All generations that are in use.
    pub fn used(&self) -> impl Iterator<Item = Arc<G>> {
        self.used.iter().filter_map(Weak::upgrade)
    }

    /// The generation with this number.
    pub fn find(&self, id: u64) -> Option<Arc<G>> {
        self.used().find(|generation| generation.id() == id)
    }

    /// The applications' generations that are of this kind, by application.
    pub fn of(&self, applications: &BTreeMap<String, u64>) -> BTreeMap<String, Arc<G>> {
        applications.iter().filter_map(|(name, id)| Some((name.clone(), self.find(*id)?))).collect()
    }

    fn configured(&mut self, named: &BTreeMap<String, u64>) {
        self.arriving.retain(|id, _| !named.values().any(|named| named == id));
        self.used.retain(|generation| generation.strong_count() > 0);
        for generation in self.used() {
            let id = generation.id();
            let is_named = named.values().any(|named| *named == id);
            generation.set_current(is_named || self.arriving.contains_key(&id));
        }
    }

    fn add_to(&self, report: &mut RouterLoad) {
        for generation in self.used() {
            let (id, requests) = (generation.id(), generation.requests());
            // The supervisor takes a missing number for 0.
            let entry = |number: u64| (number > 0).then_some((id, number));
            report.requests_active.extend(entry(requests.active));
            report.requests_waiting.extend(entry(requests.waiting));
            report.requests_rejected.extend(requests.rejected.and_then(entry));
        }
    }
}

impl<G> Default for KnownGenerations<G> {
    fn default() -> KnownGenerations<G> {
        KnownGenerations { arriving: BTreeMap::new(), used: Vec::new() }
    }
}

// === impl Generation ===

impl Generation for SharedGeneration {
    fn id(&self) -> u64 {
        self.id
    }

    fn requests(&self) -> Requests {
        let (active, waiting) = (self.active_requests(), self.waiting_requests());
        Requests { active, waiting, rejected: Some(self.rejected_requests()) }
    }
}

impl Generation for HttpGeneration {
    fn id(&self) -> u64 {
        self.id
    }

    fn requests(&self) -> Requests {
        Requests { active: self.active_requests(), waiting: self.waiting_requests(), rejected: None }
    }
}

impl Generation for RoadRunnerGeneration {
    fn id(&self) -> u64 {
        self.id
    }

    fn requests(&self) -> Requests {
        let (active, waiting) = (self.active_requests(), self.waiting_requests());
        Requests { active, waiting, rejected: Some(self.rejected_requests()) }
    }
}

impl Generation for FastCgiGeneration {
    fn id(&self) -> u64 {
        self.id
    }

    fn requests(&self) -> Requests {
        let (active, waiting) = (self.active_requests(), self.waiting_requests());
        Requests { active, waiting, rejected: Some(self.rejected_requests()) }
    }

    fn set_current(&self, is_current: bool) {
        self.set_current(is_current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Fake(u64, Cell<bool>);

    impl Generation for Fake {
        fn id(&self) -> u64 {
            self.0
        }

        fn requests(&self) -> Requests {
            Requests { active: self.0, waiting: 0, rejected: None }
        }

        fn set_current(&self, is_current: bool) {
            self.1.set(is_current);
        }
    }

    fn ids(generations: impl Iterator<Item = Arc<Fake>>) -> Vec<u64> {
        generations.map(|generation| generation.0).collect()
    }

    fn named(ids: &[u64]) -> BTreeMap<String, u64> {
        ids.iter().map(|id| (format!("application {id}"), *id)).collect()
    }

    #[test]
    fn a_generation_is_known_until_neither_a_configuration_nor_a_request_has_it() {
        let mut known = KnownGenerations::default();
        [1, 2, 3].into_iter().for_each(|id| known.add(Fake(id, Cell::new(true))));
        let configuration = known.of(&named(&[1, 3, 4]));
        assert_eq!(ids(configuration.values().cloned()), [1, 3]);
        known.configured(&named(&[1, 3, 4]));
        assert_eq!(ids(known.arriving().cloned()), [2]);
        assert_eq!(ids(known.used()), [1, 2, 3]);
        let request = known.find(3);
        known.configured(&named(&[1]));
        let current = known.used().map(|generation| (generation.0, generation.1.get()));
        assert_eq!(current.collect::<Vec<_>>(), [(1, true), (2, true), (3, false)]);
        let mut report = RouterLoad::default();
        known.add_to(&mut report);
        assert_eq!(report.requests_active, BTreeMap::from([(1, 1), (2, 2), (3, 3)]));
        assert!(report.requests_waiting.is_empty() && report.requests_rejected.is_empty(), "zeros are left out");
        drop(configuration);
        assert_eq!(ids(known.used()), [2, 3]);
        drop(request);
        drop(known.take_arriving(2));
        assert!(known.used().next().is_none());
        known.configured(&named(&[]));
        assert!(known.used.is_empty());
    }

    #[test]
    fn generations_that_did_not_arrive_are_named() {
        let error = Generations::default().check_known(&named(&[7])).unwrap_err();
        assert_eq!(error.to_string(), "generation 7 is not known");
    }
}
