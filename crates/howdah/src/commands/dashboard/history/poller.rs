//! Reads howdah every few seconds, and adds a sample and the marks of what has happened.
//!
//! A reading costs howdah one request for the status, one for the ETag of the configuration, and one for the workers of each
//! of a few applications: the others have their turn in the next readings.

use crate::commands::dashboard::calls::howdah::Howdah;
use crate::commands::dashboard::calls::now::{milliseconds, workers_path};
use crate::commands::dashboard::history::changes;
use crate::commands::dashboard::history::generations::Generations;
use crate::commands::dashboard::history::rates::{Counters, Workers, applications};
use crate::commands::dashboard::history::record::{Change, Mark, MarkKind, Record, Sample};
use crate::commands::dashboard::history::routes;
use crate::commands::dashboard::history::store::Store;
use crate::control_client::traffic;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The poller, with the results of its last reading.
#[derive(Debug)]
pub struct Poller<'d> {
    howdah: &'d Howdah,
    store: &'d Mutex<Store>,
    counters: Option<Counters>,
    workers: HashMap<String, Workers>,
    /// `None` if howdah does not count answers.
    answers: Option<traffic::Counters>,
    generations: Option<Generations>,
    /// The applications with a new generation since their workers were read.
    replaced: HashSet<String>,
    configuration: Option<Active>,
    /// The application after which the next turn begins.
    turn: Option<String>,
    /// Whether howdah answered.
    was_found: Option<bool>,
}

/// The configuration that was active.
#[derive(Debug)]
struct Active {
    etag: String,
    /// `None` if only its ETag is known, from the history.
    value: Option<Value>,
}

/// The time between two readings.
const PERIOD: Duration = Duration::from_secs(5);
/// How many applications' workers are read at a time.
const TURN: usize = 16;

// === impl Poller ===

impl<'d> Poller<'d> {
    /// Continues the history of a store.
    pub fn new(howdah: &'d Howdah, store: &'d Mutex<Store>) -> Poller<'d> {
        let last_etag = {
            let store = store.lock().unwrap_or_else(PoisonError::into_inner);
            store.marks(0).rev().find_map(|mark| mark.etag.clone())
        };
        Poller {
            howdah,
            store,
            counters: None,
            workers: HashMap::new(),
            answers: None,
            generations: None,
            replaced: HashSet::new(),
            configuration: last_etag.map(|etag| Active { etag, value: None }),
            turn: None,
            was_found: None,
        }
    }

    /// Reads without end.
    pub async fn run(mut self) {
        self.mark(MarkKind::Dashboard, None, "the dashboard was started".to_owned());
        let mut clock = tokio::time::interval(PERIOD);
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            self.step().await;
        }
    }

    async fn step(&mut self) {
        match self.read().await {
            Ok(()) => {
                if self.was_found == Some(false) {
                    self.mark(MarkKind::Found, None, "howdah answers again".to_owned());
                }
                self.was_found = Some(true);
            }
            Err(reason) => {
                if self.was_found != Some(false) {
                    self.mark(MarkKind::Lost, None, reason);
                }
                self.was_found = Some(false);
                // The next answer may come from another howdah, which counts from 0.
                self.counters = None;
                self.workers.clear();
                self.answers = None;
                self.generations = None;
            }
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        let status = self.howdah.read_json("/status").await?;
        let at = Instant::now();
        let changed = self.compare_configuration().await?;
        let counters = Counters::of(&status, at);
        let mut sample = self.counters.as_ref().map(|former| counters.sample(former, &status, seconds()));
        if self.counters.as_ref().is_some_and(|former| counters.are_of_another_router(former)) {
            self.mark(MarkKind::Router, None, "the router was replaced, or howdah was started again".to_owned());
        }
        self.counters = Some(counters);
        let generations = Generations::of(&status);
        let replaced = self.generations.as_ref().map(|former| generations.since(former)).unwrap_or_default();
        for new in replaced {
            self.replaced.insert(new.application.clone());
            // The mark of the configuration explains its generation.
            if !concern(&changed, &new.application) {
                self.add(Record::Mark(new.mark(seconds())));
            }
        }
        self.generations = Some(generations);
        self.workers.retain(|name, _| status.pointer("/applications").is_some_and(|all| all.get(name).is_some()));
        for name in self.next_turn(&status) {
            // An application that was removed meanwhile is left out.
            let Ok(processes) = self.howdah.read_json(&workers_path(&name)?).await else { continue };
            let workers = Workers::of(&processes, Instant::now());
            if let Some(former) = self.workers.get(&name) {
                if let Some(numbers) = sample.as_mut().and_then(|sample| sample.applications.get_mut(&name)) {
                    numbers.work = Some(workers.work_since(former));
                }
                let is_explained = self.replaced.remove(&name) || concern(&changed, &name);
                if workers.are_all_new(former) && !is_explained {
                    let text = "all workers are new, from the same release: recycled, or after deaths".to_owned();
                    self.mark(MarkKind::Workers, Some(name.clone()), text);
                }
            }
            self.workers.insert(name, workers);
        }
        self.read_answers(sample.as_mut()).await?;
        if let Some(sample) = sample {
            self.add(Record::Sample(sample));
        }
        Ok(())
    }

    /// A howdah that has no metrics answers 404.
    async fn read_answers(&mut self, sample: Option<&mut Sample>) -> Result<(), String> {
        let metrics = self.howdah.read("/metrics").await?;
        if metrics.rejection().is_some() {
            self.answers = None;
            return Ok(());
        }
        let counters = traffic::Counters::read(&metrics.body);
        if let (Some(former), Some(sample)) = (&self.answers, sample) {
            routes::add(sample, &counters.since(former));
        }
        self.answers = Some(counters);
        Ok(())
    }

    /// The names of the applications whose turn it is. A name without a path, the empty one, is left out.
    fn next_turn(&mut self, status: &Value) -> Vec<String> {
        let names: Vec<_> = applications(status).map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
        let first = self.turn.as_ref().map_or(0, |last| names.partition_point(|name| *name <= last));
        let turn: Vec<String> =
            names.iter().cycle().skip(first).take(names.len().min(TURN)).map(|name| (*name).clone()).collect();
        self.turn = turn.last().cloned();
        turn
    }

    /// Marks a change of the configuration, and returns what has changed. Each response about a part of it has the ETag of
    /// the whole.
    async fn compare_configuration(&mut self) -> Result<Vec<Change>, String> {
        let part = self.howdah.read("/config/listeners").await?;
        let known = self.configuration.as_ref().filter(|known| known.value.is_some());
        if known.is_some_and(|known| part.etag.as_ref() == Some(&known.etag)) {
            return Ok(Vec::new());
        }
        let whole = self.howdah.read("/config").await?.accepted(None)?;
        let value = whole.json()?;
        let Some(etag) = whole.etag else { return Ok(Vec::new()) };
        let former = self.configuration.replace(Active { etag: etag.clone(), value: Some(value.clone()) });
        let (text, changes) = match former {
            Some(former) if former.etag == etag => return Ok(Vec::new()),
            Some(Active { value: Some(before), .. }) => {
                ("the configuration was changed", changes::between(&before, &value))
            }
            Some(_) => ("the configuration was changed while the dashboard did not run", Vec::new()),
            None => ("the configuration when the history began", Vec::new()),
        };
        self.add(Record::Mark(Mark {
            time: seconds(),
            kind: MarkKind::Configuration,
            application: None,
            text: text.to_owned(),
            etag: Some(etag),
            changes: changes.clone(),
        }));
        Ok(changes)
    }

    fn mark(&self, kind: MarkKind, application: Option<String>, text: String) {
        self.add(Record::Mark(Mark { time: seconds(), kind, application, text, etag: None, changes: Vec::new() }));
    }

    fn add(&self, record: Record) {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).add(record);
    }
}

/// Whether a change explains the new workers of an application.
fn concern(changes: &[Change], name: &str) -> bool {
    let path = workers_path(name).unwrap_or_default();
    let segment = path.split('/').nth(3).unwrap_or_default();
    changes.iter().any(|change| {
        change.path.strip_prefix("applications/").is_some_and(|rest| rest.split('/').next() == Some(segment))
    })
}

/// The seconds since 1970.
pub fn seconds() -> u64 {
    milliseconds() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::dashboard::history::store::MAX_BYTES;
    use crate::control_client::connection::tests::api;
    use serde_json::json;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn store() -> Mutex<Store> {
        Mutex::new(Store::open(Err("none".to_owned()), MAX_BYTES, seconds()))
    }

    fn marks(store: &Mutex<Store>) -> Vec<(MarkKind, String)> {
        store.lock().unwrap().marks(0).map(|mark| (mark.kind, mark.text.clone())).collect()
    }

    #[test]
    fn all_applications_have_their_turn() {
        let howdah = Howdah::new(api(vec![]));
        let store = store();
        let mut poller = Poller::new(&howdah, &store);
        let names: serde_json::Map<String, Value> = (0..40).map(|number| (format!("{number:02}"), json!({}))).collect();
        let status = json!({ "applications": names });
        let turns = [(); 3].map(|()| poller.next_turn(&status));
        assert_eq!([turns[0][0].as_str(), turns[1][0].as_str(), turns[2][0].as_str()], ["00", "16", "32"]);
        assert_eq!(turns[2].last().unwrap(), "07");
        assert!(turns.iter().all(|turn| turn.len() == TURN));
        assert_eq!(poller.next_turn(&json!({ "applications": { "": {}, "only": {} } })), ["only"]);
        assert!(poller.next_turn(&json!({})).is_empty());
    }

    #[test]
    fn an_unreachable_howdah_is_one_mark() {
        let howdah = Howdah::new(api(vec![]));
        let store = store();
        let mut poller = Poller::new(&howdah, &store);
        run(async {
            poller.step().await;
            poller.step().await;
        });
        assert_eq!(marks(&store), [(MarkKind::Lost, "None.".to_owned())]);
    }

    #[test]
    fn readings_become_samples() {
        let howdah = Howdah::new(api(vec![
            (
                "/status",
                (200, r#"{"requests": {"total": 9}, "applications": {"shop": {"processes": {"running": 1}}}}"#),
            ),
            ("/status/applications/shop/processes", (200, r#"{"workers": [{"pid": 7, "requests": 3, "memory": 5}]}"#)),
            ("/config/listeners", (200, "{}")),
            ("/config", (200, "{}")),
        ]));
        let store = store();
        let mut poller = Poller::new(&howdah, &store);
        run(async {
            poller.step().await;
            poller.step().await;
        });
        let store = store.lock().unwrap();
        let samples: Vec<_> = store.samples(0).collect();
        assert_eq!(samples.len(), 1, "the first reading has nothing before it");
        let shop = &samples[0].applications["shop"];
        assert_eq!((shop.processes, shop.work.unwrap().memory, samples[0].requests), (1, 5, Some(0)));
    }

    #[test]
    fn a_change_explains_new_workers() {
        let change = |path: &str| vec![Change { path: path.to_owned(), before: None, after: None }];
        assert!(concern(&change("applications/my%20app/root"), "my app"));
        assert!(concern(&change("applications/my%20app"), "my app"));
        assert!(!concern(&change("applications/my"), "my app") && !concern(&change("routes/0"), "routes"));
    }
}
