//! Which names are asked for. Strangers choose them, so everything has a limit: the questions at a time, the names that are
//! allowed in a time, and all names. A name that is refused is not asked for again for a minute.
//!
//! The decisions are here; [`messages`](super::messages) sends and receives.

use crate::policy::pace::rate_limit::RateLimit;
use howdah_config::{AcmeIssuance, Configuration, OnDemand, is_domain_name};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The names that were asked for, and what is under way.
#[derive(Debug)]
pub struct OnDemandNames {
    settings: Option<(OnDemand, AcmeIssuance)>,
    questions: BTreeMap<u64, (String, Instant)>,
    /// The names that are not asked for before these times.
    refused: BTreeMap<String, Instant>,
    admissions: RateLimit,
    /// The names whose certificates are others than those of the router: new, or removed.
    changed: BTreeSet<String>,
    /// The names of handshakes that wait in vain.
    rejected: Vec<String>,
    /// Whether the router must get all certificates again.
    needs_all: bool,
    /// Since when the log has a line about a limit, or about a program that does not answer.
    complained: BTreeMap<Complaint, Instant>,
}

/// Something that is logged once a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Complaint {
    /// There are as many names as the configuration allows.
    Names,
    /// More names were allowed than authorities issue certificates for.
    Rate,
    /// The program has not answered.
    Program,
    /// There is no memory for the router's certificates.
    Memory,
}

const QUESTIONS_AT_ONCE: usize = 16;
/// The process has a shorter limit.
const QUESTION_PATIENCE: Duration = Duration::from_secs(30);
/// For how long a refusal counts.
const REFUSAL: Duration = Duration::from_secs(60);
/// The same after a question without an answer.
pub const NO_ANSWER: Duration = Duration::from_secs(10);
/// The same of a name that no authority issues a certificate for.
const HOPELESS: Duration = Duration::from_secs(60 * 60);
/// Let's Encrypt accepts 300 orders in three hours.
const ADMISSION_BURST: u32 = 20;
const ADMISSION_INTERVAL: Duration = Duration::from_secs(36);
/// By the rate of questions there are fewer.
const MAX_REFUSED: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

// === impl OnDemandNames ===

impl OnDemandNames {
    /// No names are allowed.
    pub fn new() -> OnDemandNames {
        OnDemandNames {
            settings: None,
            questions: BTreeMap::new(),
            refused: BTreeMap::new(),
            admissions: RateLimit::new(ADMISSION_INTERVAL),
            changed: BTreeSet::new(),
            rejected: Vec::new(),
            needs_all: false,
            complained: BTreeMap::new(),
        }
    }

    /// Takes over the settings of a configuration: all its listeners have the same ones. Returns whether they are others: what
    /// the program of the former ones answers does not count any more.
    pub fn update(&mut self, configuration: &Configuration) -> bool {
        let mut listeners = configuration.listeners.iter().filter_map(|listener| listener.tls.as_ref()?.acme.as_ref());
        let settings = listeners.find_map(|acme| Some((acme.on_demand.clone()?, acme.issuance.clone())));
        if settings == self.settings {
            return false;
        }
        self.refused.clear();
        self.rejected.extend(std::mem::take(&mut self.questions).into_values().map(|(name, _)| name));
        self.needs_all = true;
        self.settings = settings;
        true
    }

    /// How the certificates are obtained; `None` if no names are allowed.
    pub fn settings(&self) -> Option<(&OnDemand, &AcmeIssuance)> {
        self.settings.as_ref().map(|(on_demand, issuance)| (on_demand, issuance))
    }

    /// Whether a question is under way.
    pub fn is_asking(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Whether another question can be asked.
    pub fn has_room(&self) -> bool {
        self.questions.len() < QUESTIONS_AT_ONCE
    }

    /// Whether the program is to be asked for a name that a client wants; `names` is the number of names so far.
    pub fn is_worth_asking(&mut self, name: &str, names: usize, now: Instant) -> bool {
        let Some((on_demand, _)) = &self.settings else { return false };
        let limit = on_demand.names;
        // A name without a dot is never public.
        if !is_domain_name(name) || !name.contains('.') {
            return false;
        }
        if self.refused.get(name).is_some_and(|until| *until > now) {
            return false;
        }
        if self.refused.len() >= MAX_REFUSED {
            self.refused.retain(|_, until| *until > now);
        }
        if names >= limit as usize {
            if self.complains(Complaint::Names, now) {
                tracing::warn!(
                    "no certificate for {name}: there are {names} names on demand; raise \"on_demand/names\", or let the program \
                     refuse some"
                );
            }
            return false;
        }
        self.has_room() && self.refused.len() < MAX_REFUSED
    }

    /// Whether the program is asked for a name.
    pub fn is_asked(&self, name: &str) -> bool {
        self.questions.values().any(|(asked, _)| asked == name)
    }

    /// The program is asked. Returns its URL.
    pub fn on_question(&mut self, question: u64, name: &str, now: Instant) -> String {
        self.questions.insert(question, (name.to_owned(), now + QUESTION_PATIENCE));
        self.settings.as_ref().map(|(on_demand, _)| on_demand.ask.clone()).unwrap_or_default()
    }

    /// The name of a question that is answered.
    pub fn take_question(&mut self, question: u64) -> Option<String> {
        self.questions.remove(&question).map(|(name, _)| name)
    }

    /// The questions that have no answer in time, or none at all.
    pub fn questions_without_answer(&self, overdue_at: Option<Instant>) -> Vec<u64> {
        let is_over = |deadline: Instant| overdue_at.is_none_or(|now| deadline <= now);
        self.questions.iter().filter(|(_, (_, deadline))| is_over(*deadline)).map(|(number, _)| *number).collect()
    }

    /// When a question has no answer in time.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.questions.values().map(|(_, deadline)| *deadline).min()
    }

    /// Whether an allowed name gets a certificate now: authorities have their limits.
    pub fn admits(&mut self, name: &str, now: Instant) -> bool {
        let mut admissions = self.admissions;
        let is_admitted = admissions.spend(ADMISSION_BURST, now) <= now;
        if is_admitted {
            self.admissions = admissions;
        } else {
            self.refuse(name, REFUSAL, now);
            if self.complains(Complaint::Rate, now) {
                tracing::warn!(
                    "no certificate for {name} now: more than {ADMISSION_BURST} names were allowed at once; there is one more \
                     each {} s",
                    ADMISSION_INTERVAL.as_secs()
                );
            }
        }
        is_admitted
    }

    /// The program refuses a name.
    pub fn on_refusal(&mut self, name: &str, now: Instant) {
        self.refuse(name, REFUSAL, now);
    }

    /// The program has not answered.
    pub fn on_no_answer(&mut self, name: &str, now: Instant) {
        self.refuse(name, NO_ANSWER, now);
    }

    /// No authority issues a certificate for a name.
    pub fn on_hopeless(&mut self, name: &str, now: Instant) {
        self.refuse(name, HOPELESS, now);
    }

    fn refuse(&mut self, name: &str, pause: Duration, now: Instant) {
        self.refused.retain(|_, until| *until > now);
        if self.refused.len() < MAX_REFUSED {
            self.refused.insert(name.to_owned(), now + pause);
        }
        self.reject(name.to_owned());
    }

    /// Whether a line about this is due.
    pub fn complains(&mut self, complaint: Complaint, now: Instant) -> bool {
        let is_due = self.complained.get(&complaint).is_none_or(|at| now.saturating_duration_since(*at) >= MINUTE);
        if is_due {
            self.complained.insert(complaint, now);
        }
        is_due
    }

    // The router

    /// The router is notified that a handshake for this name waits in vain.
    pub fn reject(&mut self, name: String) {
        self.rejected.push(name);
    }

    /// The names of handshakes that wait in vain.
    pub fn take_rejected(&mut self) -> Vec<String> {
        std::mem::take(&mut self.rejected)
    }

    /// The router does not know the certificate of this name, or that it has none any more.
    pub fn on_change(&mut self, name: &str) {
        self.changed.insert(name.to_owned());
    }

    /// The router must get all certificates again: it did not get the changes.
    pub fn replace_all(&mut self) {
        self.needs_all = true;
    }

    /// The names whose certificates the router does not know: `None` for all.
    pub fn take_changed(&mut self) -> Option<BTreeSet<String>> {
        let changed = std::mem::take(&mut self.changed);
        if std::mem::take(&mut self.needs_all) { None } else { Some(changed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(ask: &str, limit: u32) -> Configuration {
        let acme = format!(r#"{{"on_demand": {{"ask": "{ask}", "names": {limit}}}}}"#);
        let text =
            format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "tls": {{"acme": {acme}}}}}}}}}"#);
        Configuration::parse(&text).unwrap()
    }

    fn names(limit: u32) -> OnDemandNames {
        let mut names = OnDemandNames::new();
        assert!(names.update(&configuration("http://127.0.0.1:1/", limit)));
        names
    }

    #[test]
    fn an_answer_of_a_former_program_does_not_count() {
        let (mut names, now) = (names(10), Instant::now());
        assert_eq!(names.take_changed(), None, "all of the new settings");
        names.on_question(1, "shop.example", now);
        assert!(!names.update(&configuration("http://127.0.0.1:1/", 10)));
        assert!(names.is_asked("shop.example") && names.take_changed() == Some(BTreeSet::new()));
        assert!(names.update(&configuration("http://127.0.0.1:2/", 10)));
        assert_eq!((names.take_question(1), names.take_rejected()), (None, vec!["shop.example".to_owned()]));
        assert_eq!(names.take_changed(), None);
    }

    #[test]
    fn only_names_of_domains_are_worth_a_question() {
        let (mut names, now) = (names(10), Instant::now());
        for (name, expected) in [
            ("shop.example", true),
            ("localhost", false),
            ("192.0.2.1", false),
            ("*.shop.example", false),
            ("Shop.example", false),
            ("a b.example", false),
            ("", false),
        ] {
            assert_eq!(names.is_worth_asking(name, 0, now), expected, "{name}");
        }
        assert!(!OnDemandNames::new().is_worth_asking("shop.example", 0, now), "not without settings");
    }

    #[test]
    fn questions_and_names_have_a_limit() {
        let (mut names, now) = (names(10), Instant::now());
        assert!(!names.is_worth_asking("shop.example", 10, now));
        for number in 0..QUESTIONS_AT_ONCE {
            let name = format!("n{number}.example");
            assert!(names.is_worth_asking(&name, 9, now));
            assert_eq!(names.on_question(number as u64, &name, now), "http://127.0.0.1:1/");
            assert!(names.is_asked(&name));
        }
        assert!(!names.is_worth_asking("shop.example", 9, now));
        assert!(names.questions_without_answer(Some(now)).is_empty());
        assert_eq!(names.questions_without_answer(Some(now + QUESTION_PATIENCE)).len(), QUESTIONS_AT_ONCE);
        assert_eq!(names.take_question(0).as_deref(), Some("n0.example"));
        assert!(names.take_question(0).is_none() && names.is_worth_asking("shop.example", 9, now));
    }

    #[test]
    fn a_refusal_counts_for_a_time() {
        let (mut names, now) = (names(10), Instant::now());
        names.on_refusal("no.example", now);
        names.on_no_answer("later.example", now);
        names.on_hopeless("hopeless.example", now);
        let mut worth = |seconds| {
            let at = now + Duration::from_secs(seconds);
            ["no.example", "later.example", "hopeless.example"].map(|name| names.is_worth_asking(name, 0, at))
        };
        assert_eq!(worth(0), [false, false, false]);
        assert_eq!(worth(10), [false, true, false]);
        assert_eq!(worth(60), [true, true, false]);
        assert_eq!(worth(3600), [true, true, true]);
        for number in 0..2 * MAX_REFUSED {
            names.on_refusal(&format!("n{number}.example"), now);
        }
        assert!(names.refused.len() <= MAX_REFUSED && !names.is_worth_asking("other.example", 0, now));
        assert!(names.is_worth_asking("other.example", 0, now + MINUTE));
    }

    #[test]
    fn names_are_admitted_at_the_rate_of_authorities() {
        let (mut names, now) = (names(1000), Instant::now());
        let admitted = (0..100).filter(|number| names.admits(&format!("n{number}.example"), now)).count();
        assert_eq!(admitted, ADMISSION_BURST as usize);
        assert!(names.admits("later.example", now + ADMISSION_INTERVAL));
        assert!(!names.admits("soon.example", now + ADMISSION_INTERVAL));
    }
}
