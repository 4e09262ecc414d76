//! Whether the paths of applications lead elsewhere. They are resolved twice a second: links on network file systems
//! and in bind mounts do not notify any process when they are swapped.
//!
//! A path that leads nowhere is probably a deploy that is not finished: it is resolved again, and reported as lost
//! after some seconds. When it leads somewhere again, that is reported too, even if it leads where it led before.
//!
//! File systems may hang. Each application therefore has one thread that resolves its paths, one question at a time: an
//! application whose file system hangs delays no deploy of another one. It is followed again when its file system
//! answers, or after a restart of the application, which gets a thread of its own, unless those of several former generations
//! hang. A thread that hangs exits when its file system answers.

use super::messages::{DeployNotice, WatchedApplication};
use crate::os::hanging_threads::HangingThreads;
use crate::plan::option_error::OptionError;
use crate::plan::resolution::resolve;
use howdah_protocol::messages::generation_paths::PinnedLink;
use howdah_protocol::test_time::divided;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// The time between two rounds of questions.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long one round waits for answers, so that applications behind one link are reported together. Later answers are
/// read in the next round.
const ROUND_TIMEOUT: Duration = Duration::from_millis(250);
/// A path that leads nowhere for this time is lost: no deploy takes that long between two links, and no healthy file
/// system takes that long for an answer.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// Where the paths lead.
type Resolved = Result<Vec<PinnedLink>, OptionError>;
/// The number of the application that was asked, and its answer.
type ResolverAnswer = (u64, Resolved);

/// An application, and what is known of its paths.
struct Followed {
    watched: WatchedApplication,
    /// Where the paths led when they were last resolved. Each deploy is reported once.
    last: Vec<PinnedLink>,
    trouble: Option<Trouble>,
    resolver: Resolver,
}

/// It is not known where the paths lead.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trouble {
    since: Instant,
    is_reported: bool,
}

/// The thread that resolves the paths of one application.
struct Resolver {
    /// Distinguishes this thread's answers from those of other applications, and of former generations.
    number: u64,
    /// `None` before the thread is started.
    questions: Option<Sender<()>>,
    /// When the open question was asked.
    asked: Option<Instant>,
    /// Since when no thread could be started.
    without_thread: Option<Instant>,
}

/// The news of an application after a round.
#[derive(Debug, PartialEq)]
enum Finding {
    /// The paths lead there now.
    Elsewhere(Vec<PinnedLink>),
    /// It has not been known for a while where the paths lead: the option, and a sentence.
    Lost(String),
}

/// The findings of a round.
#[derive(Default)]
struct News {
    /// The applications whose paths lead elsewhere, with their last answers.
    swapped: BTreeMap<String, Vec<PinnedLink>>,
    lost: Vec<DeployNotice>,
}

/// Runs until the supervisor ends.
pub fn run(orders: &Receiver<Vec<WatchedApplication>>, notices: &UnboundedSender<DeployNotice>) {
    let mut all: Vec<Followed> = Vec::new();
    let (sender, answers) = channel();
    let mut threads = HangingThreads::new("resolve");
    let mut last_number = 0;
    let mut next_round = Instant::now();
    loop {
        let order = match all.is_empty() {
            true => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => orders.recv_timeout(next_round.saturating_duration_since(Instant::now())),
        };
        match order {
            Ok(applications) => all = follow(all, applications, &mut last_number),
            Err(RecvTimeoutError::Timeout) => {
                if round(&mut all, &mut threads, &sender, &answers)
                    .into_iter()
                    .any(|notice| notices.send(notice).is_err())
                {
                    return;
                }
                next_round = Instant::now() + INTERVAL;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A generation that is followed already keeps its state. A new generation has found its paths, so it has no trouble.
fn follow(mut all: Vec<Followed>, applications: Vec<WatchedApplication>, last_number: &mut u64) -> Vec<Followed> {
    let follow_one = |watched: WatchedApplication| match all.iter().position(|followed| followed.watched == watched) {
        Some(index) => all.swap_remove(index),
        None => {
            *last_number += 1;
            Followed::new(watched, *last_number)
        }
    };
    applications.into_iter().map(follow_one).collect()
}

/// Asks for all applications, and waits a moment for the answers.
///
/// A link may be swapped between the answers for two applications behind it. After a swap all applications are therefore
/// asked again, until no further swap is found: what one swap moved is reported together.
fn round(
    all: &mut [Followed],
    threads: &mut HangingThreads,
    sender: &Sender<ResolverAnswer>,
    answers: &Receiver<ResolverAnswer>,
) -> Vec<DeployNotice> {
    let deadline = Instant::now() + ROUND_TIMEOUT;
    let mut news = News::default();
    while let Ok(answer) = answers.try_recv() {
        news.add(accept(all, answer));
    }
    loop {
        let began = Instant::now();
        for followed in all.iter_mut() {
            news.add(followed.check_timeout(began).map(|finding| (followed.watched.name.clone(), finding)));
            followed.resolver.ask(&followed.watched, threads, sender, began);
        }
        let mut found_swap = false;
        // A question of an earlier round is not waited for.
        while all.iter().any(|followed| followed.resolver.asked == Some(began))
            && let Ok(answer) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            found_swap |= news.add(accept(all, answer));
        }
        if !found_swap || Instant::now() >= deadline {
            return news.into_notices();
        }
    }
}

/// Takes an answer. It may be one for a generation that is not followed any more.
fn accept(all: &mut [Followed], (number, resolved): ResolverAnswer) -> Option<(String, Finding)> {
    let followed = all.iter_mut().find(|followed| followed.resolver.number == number)?;
    followed.resolver.asked = None;
    let finding = followed.judge(resolved, Instant::now())?;
    Some((followed.watched.name.clone(), finding))
}

// === impl News ===

impl News {
    /// Returns whether paths lead elsewhere.
    fn add(&mut self, found: Option<(String, Finding)>) -> bool {
        match found {
            Some((application, Finding::Elsewhere(led_to))) => {
                self.swapped.insert(application, led_to);
                true
            }
            Some((application, Finding::Lost(problem))) => {
                self.lost.push(DeployNotice::Lost { application, problem });
                false
            }
            None => false,
        }
    }

    fn into_notices(self) -> Vec<DeployNotice> {
        let is_any_swapped = !self.swapped.is_empty();
        let swapped = is_any_swapped.then(|| DeployNotice::Swapped(self.swapped.into_iter().collect()));
        self.lost.into_iter().chain(swapped).collect()
    }
}

// === impl Followed ===

impl Followed {
    fn new(watched: WatchedApplication, number: u64) -> Followed {
        let last = watched.led_to.clone();
        Followed { watched, last, trouble: None, resolver: Resolver::new(number, None) }
    }

    /// Whether the open question has had no answer for too long, or nothing could be asked. Reported once.
    fn check_timeout(&mut self, now: Instant) -> Option<Finding> {
        let asked = self.resolver.asked.or(self.resolver.without_thread)?;
        if now.saturating_duration_since(asked) < divided(LOST_AFTER)
            || self.trouble.is_some_and(|trouble| trouble.is_reported)
        {
            return None;
        }
        self.trouble = Some(Trouble { since: asked, is_reported: true });
        let (name, seconds) = (&self.watched.name, divided(LOST_AFTER).as_secs());
        Some(Finding::Lost(format!(
            "applications/{name}: the file system of its paths has not answered for {seconds} s"
        )))
    }

    /// Compares an answer with the last one.
    fn judge(&mut self, resolved: Resolved, now: Instant) -> Option<Finding> {
        match resolved {
            Ok(led_to) => {
                let had_trouble = self.trouble.take().is_some();
                if led_to == self.last && !had_trouble {
                    return None;
                }
                self.last.clone_from(&led_to);
                Some(Finding::Elsewhere(led_to))
            }
            Err(OptionError { option, problem }) => {
                let trouble = self.trouble.get_or_insert(Trouble { since: now, is_reported: false });
                if now.saturating_duration_since(trouble.since) < divided(LOST_AFTER) || trouble.is_reported {
                    return None;
                }
                trouble.is_reported = true;
                Some(Finding::Lost(format!("applications/{}{option}: {problem}", self.watched.name)))
            }
        }
    }
}

// === impl Resolver ===

impl Resolver {
    fn new(number: u64, questions: Option<Sender<()>>) -> Resolver {
        Resolver { number, questions, asked: None, without_thread: None }
    }

    /// Asks where the paths lead, unless a question is open. If no thread can be started, or the threads of too many former
    /// generations hang, the next round tries again.
    fn ask(
        &mut self,
        watched: &WatchedApplication,
        threads: &mut HangingThreads,
        answers: &Sender<ResolverAnswer>,
        now: Instant,
    ) {
        if self.asked.is_some() {
            return;
        }
        if self.questions.is_none() {
            self.questions = start_thread(self.number, watched, threads, answers.clone());
            self.without_thread = self.questions.is_none().then(|| self.without_thread.unwrap_or(now));
        }
        if self.questions.as_ref().is_some_and(|questions| questions.send(()).is_ok()) {
            self.asked = Some(now);
        }
    }
}

/// The thread exits when its [`Resolver`] is dropped: at once, or when its file system answers.
fn start_thread(
    number: u64,
    watched: &WatchedApplication,
    threads: &mut HangingThreads,
    answers: Sender<ResolverAnswer>,
) -> Option<Sender<()>> {
    let (sender, questions) = channel();
    let application = watched.application.clone();
    let resolve_each = move || {
        for () in questions {
            let resolved = resolve(&application).map(|resolution| resolution.led_to);
            if answers.send((number, resolved)).is_err() {
                return;
            }
        }
    };
    threads.start(&watched.name, resolve_each).then_some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;
    use std::path::Path;
    use std::sync::LazyLock;

    fn leads(to: &str) -> Resolved {
        Ok(vec![PinnedLink { link: "/srv/current".into(), leads_to: Path::new("/srv").join(to) }])
    }

    fn nowhere() -> Resolved {
        Err(OptionError::new("/root", "it cannot be found"))
    }

    fn watched() -> WatchedApplication {
        let text = r#"{"applications": {"x": {"type": "php", "root": "/srv/current"}}}"#;
        let application = Configuration::parse(text).unwrap().applications["x"].as_php().unwrap().clone();
        static MADE: LazyLock<Instant> = LazyLock::new(Instant::now);
        let (made, led_to) = (*MADE, leads("1").unwrap());
        WatchedApplication { name: "x".to_owned(), generation: 1, made, application, led_to }
    }

    fn threads() -> HangingThreads {
        HangingThreads::new("resolve")
    }

    fn elsewhere(to: &str) -> Option<Finding> {
        Some(Finding::Elsewhere(leads(to).unwrap()))
    }

    fn lost() -> Option<Finding> {
        Some(Finding::Lost("applications/x/root: it cannot be found".to_owned()))
    }

    #[test]
    fn paths_that_stay_lost_are_reported_once_and_so_is_their_return() {
        let began = Instant::now();
        let mut followed = Followed::new(watched(), 1);
        let mut answer = |seconds, resolved| followed.judge(resolved, began + Duration::from_secs(seconds));
        assert_eq!(answer(0, leads("1")), None);
        assert_eq!(answer(1, nowhere()), None);
        assert_eq!(answer(5, nowhere()), None);
        assert_eq!(answer(5, leads("1")), elsewhere("1"), "a reader that took it for a deploy must know");
        assert_eq!(answer(6, leads("1")), None);

        assert_eq!(answer(10, nowhere()), None);
        assert_eq!(answer(15, nowhere()), lost());
        assert_eq!(answer(20, nowhere()), None);
        assert_eq!(answer(21, leads("1")), elsewhere("1"));
        assert_eq!(answer(22, leads("1")), None);

        assert_eq!(answer(23, leads("2")), elsewhere("2"));
        assert_eq!(answer(24, nowhere()), None);
        assert_eq!(answer(25, leads("3")), elsewhere("3"), "a deploy in two steps");
        assert_eq!(answer(26, leads("3")), None);
    }

    /// An application whose file system has not answered since this moment.
    fn hanging(since: Instant) -> Followed {
        let mut followed = Followed::new(watched(), 1);
        followed.resolver.asked = Some(since);
        followed
    }

    #[test]
    fn a_file_system_that_hangs_is_reported_once_and_asked_once() {
        let began = Instant::now();
        let (sender, _answers) = channel();
        let mut followed = hanging(began);
        let mut reported = Vec::new();
        for second in 0..100 {
            let now = began + Duration::from_secs(second);
            reported.extend(followed.check_timeout(now).map(|_| second));
            followed.resolver.ask(&followed.watched, &mut threads(), &sender, now);
        }
        assert_eq!(reported, [5]);
        assert!(followed.resolver.questions.is_none(), "no thread was started, as no question was asked");
        assert_eq!(accept(std::slice::from_mut(&mut followed), (2, leads("2"))), None, "a former generation's answer");
        let mut answer = |resolved| accept(std::slice::from_mut(&mut followed), (1, resolved)).map(|(_, found)| found);
        assert_eq!(answer(nowhere()), None, "the trouble is reported already");
        assert_eq!(answer(leads("1")), elsewhere("1"));
        assert_eq!(answer(leads("1")), None);
    }

    #[test]
    fn the_threads_of_former_generations_that_hang_have_a_limit() {
        let (mut threads, (sender, _answers)) = (threads(), channel());
        let (release, hang) = channel::<()>();
        let hang = std::sync::Arc::new(std::sync::Mutex::new(hang));
        let mut former = 0;
        while threads.start("x", {
            let hang = std::sync::Arc::clone(&hang);
            move || {
                let _ = hang.lock().unwrap().recv();
            }
        }) {
            former += 1;
            assert!(former < 10);
        }
        let (began, mut followed) = (Instant::now(), Followed::new(watched(), 1));
        let mut reported = Vec::new();
        for second in 0..100 {
            let now = began + Duration::from_secs(second);
            reported.extend(followed.check_timeout(now).map(|_| second));
            followed.resolver.ask(&followed.watched, &mut threads, &sender, now);
        }
        assert_eq!((reported, followed.resolver.asked), (vec![5], None));
        drop(release);
        while followed.resolver.asked.is_none() {
            assert!(began.elapsed() < Duration::from_secs(10), "a thread is started when one of them ends");
            followed.resolver.ask(&followed.watched, &mut threads, &sender, Instant::now());
        }
        assert_eq!(followed.resolver.without_thread, None);
    }

    #[test]
    fn a_file_system_that_hangs_delays_no_other_application() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let mut other = watched();
        let text = serde_json::json!({"applications": {"x": {"type": "php", "root": root}}});
        other.application =
            Configuration::parse(&text.to_string()).unwrap().applications["x"].as_php().unwrap().clone();
        let (sender, answers) = channel();
        let mut all = [hanging(Instant::now()), Followed::new(WatchedApplication { name: "y".to_owned(), ..other }, 2)];
        let mut notices = Vec::new();
        while notices.is_empty() {
            notices = round(&mut all, &mut threads(), &sender, &answers);
        }
        let [DeployNotice::Swapped(swapped)] = &notices[..] else { panic!("{notices:?}") };
        assert_eq!(swapped[..], [("y".to_owned(), vec![PinnedLink { link: root.clone(), leads_to: root }])]);
        assert!(all[0].resolver.asked.is_some() && all[1].resolver.asked.is_none());
    }

    /// An application whose resolver answers as written, its last answer again and again.
    fn scripted(name: &str, number: u64, script: &'static [&str], answers: &Sender<ResolverAnswer>) -> Followed {
        let mut followed = Followed::new(WatchedApplication { name: name.to_owned(), ..watched() }, number);
        let (sender, questions) = channel();
        followed.resolver = Resolver::new(number, Some(sender));
        let answers = answers.clone();
        let answer_each = move || {
            for (question, ()) in questions.into_iter().enumerate() {
                let to = script.get(question).or(script.last()).expect("a script is not empty");
                if answers.send((number, leads(to))).is_err() {
                    return;
                }
            }
        };
        std::thread::spawn(answer_each);
        followed
    }

    #[test]
    fn applications_behind_one_link_are_reported_together_although_it_was_swapped_between_their_answers() {
        let (sender, answers) = channel();
        let mut all = [scripted("x", 1, &["2"], &sender), scripted("y", 2, &["1", "2"], &sender)];
        let notices = round(&mut all, &mut threads(), &sender, &answers);
        let swapped = |name: &str| (name.to_owned(), leads("2").unwrap());
        assert_eq!(notices, [DeployNotice::Swapped(vec![swapped("x"), swapped("y")])]);
        assert_eq!(round(&mut all, &mut threads(), &sender, &answers), []);
    }

    #[test]
    fn an_application_that_is_swapped_twice_in_one_round_is_reported_once() {
        let (sender, answers) = channel();
        let mut all = [scripted("x", 1, &["2", "3"], &sender)];
        let swapped = vec![("x".to_owned(), leads("3").unwrap())];
        assert_eq!(round(&mut all, &mut threads(), &sender, &answers), [DeployNotice::Swapped(swapped)]);
    }

    #[test]
    fn a_new_generation_is_followed_from_the_start() {
        let in_trouble = || {
            let trouble = Some(Trouble { since: Instant::now(), is_reported: true });
            vec![Followed { trouble, ..hanging(Instant::now()) }]
        };
        let same = follow(in_trouble(), vec![watched()], &mut 1);
        assert!(same[0].trouble.is_some() && same[0].resolver.asked.is_some());
        let new = follow(in_trouble(), vec![WatchedApplication { generation: 2, ..watched() }], &mut 1);
        assert!(new[0].trouble.is_none() && new[0].resolver.asked.is_none() && new[0].resolver.number == 2);
    }

    #[test]
    fn a_late_answer_is_read_in_the_next_round() {
        let mut all = [hanging(Instant::now())];
        let (sender, answers) = channel();
        sender.send((1, leads("2"))).unwrap();
        let notices = round(&mut all, &mut threads(), &sender, &answers);
        assert!(
            notices.iter().any(|notice| matches!(notice, DeployNotice::Swapped(swapped)
                if swapped[..] == [("x".to_owned(), leads("2").unwrap())])),
            "{notices:?}"
        );
    }
}
