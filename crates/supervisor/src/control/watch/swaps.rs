//! Whether the paths of applications lead elsewhere: looked at twice a second, as links on network file systems and in
//! bind mounts tell nobody that they were swapped.
//!
//! A path that leads nowhere is one whose deploy is not finished: it is looked at again, and told when it stays so. Once
//! it leads somewhere that is told, even if it is where it led before.
//!
//! File systems may hang. So threads look that may not come back: one, and one more for each question that is open. An
//! application is asked after again, with growing pauses, as its links may have been turned to a file system that lives.

use super::{Notice, Watched};
use crate::plan::resolution::resolve;
use howdah_config::Application;
use howdah_protocol::generation_paths::PinnedLink;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(500);
/// For so long answers are waited for, so that applications behind one link are told together; later ones are read at the
/// next look.
const ROUND: Duration = Duration::from_millis(250);
/// No deploy takes so long between two links, and no file system that is well for an answer.
const LOST: Duration = Duration::from_secs(5);
/// What has no answer is asked again after [`LOST`], then after twice as long, and so on, but after ten minutes at most...
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);
/// ...and so often: for three hours. Each question may cost a thread for as long as the machine runs.
const MOST_QUESTIONS: u32 = 24;
/// So many threads look at most; the last half is for first questions.
const MOST_THREADS: usize = 512;

/// Where the paths led, or the option and a sentence.
type Led = Result<Vec<PinnedLink>, (String, String)>;

/// Questions and their answers have a number.
type Question = (u64, Arc<Application>);
type Answer = (u64, Led);

struct Known {
    watched: Watched,
    application: Arc<Application>,
    /// Where the paths led when they were last seen: each deploy is told once.
    seen: Vec<PinnedLink>,
    trouble: Option<Trouble>,
    asked: Option<Asked>,
}

/// A question that is open.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Asked {
    number: u64,
    at: Instant,
    /// With the ones before, which are still open, too.
    times: u32,
}

/// It is not known where the paths lead.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trouble {
    since: Instant,
    told: bool,
}

/// What a look has shown.
#[derive(Debug, PartialEq)]
enum Sight {
    /// The paths lead there now.
    Elsewhere(Vec<PinnedLink>),
    /// It is not known where the paths lead, for a while: the option, and a sentence.
    Lost(String),
}

/// The threads that look.
struct Lookers {
    questions: Sender<Question>,
    asked: Arc<Mutex<Receiver<Question>>>,
    answer: Sender<Answer>,
    answers: Receiver<Answer>,
    threads: usize,
    /// How many questions have no answer yet.
    open: usize,
    last: u64,
}

/// Runs until the supervisor ends.
pub fn run(orders: &Receiver<Vec<Watched>>, notices: &UnboundedSender<Notice>) {
    let mut known: Vec<Known> = Vec::new();
    let mut lookers = Lookers::new();
    let mut next_look = Instant::now();
    loop {
        let order = match known.is_empty() {
            true => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => orders.recv_timeout(next_look.saturating_duration_since(Instant::now())),
        };
        match order {
            Ok(applications) => known = follow(known, applications),
            Err(RecvTimeoutError::Timeout) => {
                if look(&mut known, &mut lookers).into_iter().any(|notice| notices.send(notice).is_err()) {
                    return;
                }
                next_look = Instant::now() + PAUSE;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What was seen of a generation is not told again. An application that has started anew has been found.
fn follow(mut known: Vec<Known>, applications: Vec<Watched>) -> Vec<Known> {
    let follow_one = |watched: Watched| match known.iter().position(|known| known.watched == watched) {
        Some(at) => known.swap_remove(at),
        None => Known::new(watched),
    };
    applications.into_iter().map(follow_one).collect()
}

fn look(known: &mut [Known], lookers: &mut Lookers) -> Vec<Notice> {
    let began = Instant::now();
    let mut sights = Vec::new();
    while let Some(answer) = lookers.next_answer(began) {
        sights.extend(take(known, answer));
    }
    for known in known.iter_mut() {
        sights.extend(known.overdue(began).map(|sight| (known.watched.name.clone(), sight)));
        known.ask(lookers, began);
    }
    while known.iter().any(Known::is_waited_for)
        && let Some(answer) = lookers.next_answer(began + ROUND)
    {
        sights.extend(take(known, answer));
    }
    lookers.reinforce();
    let (mut notices, mut swapped) = (Vec::new(), Vec::new());
    for (application, sight) in sights {
        match sight {
            Sight::Elsewhere(led_to) => swapped.push((application, led_to)),
            Sight::Lost(problem) => notices.push(Notice::Lost { application, problem }),
        }
    }
    if !swapped.is_empty() {
        notices.push(Notice::Swapped(swapped));
    }
    notices
}

/// An answer may be to a question that nobody asks any more.
fn take(known: &mut [Known], (number, led): Answer) -> Option<(String, Sight)> {
    let known = known.iter_mut().find(|known| known.asked.is_some_and(|asked| asked.number == number))?;
    known.asked = None;
    let sight = known.judge(led, Instant::now())?;
    Some((known.watched.name.clone(), sight))
}

// === impl Known ===

impl Known {
    fn new(watched: Watched) -> Known {
        let (application, seen) = (Arc::new(watched.application.clone()), watched.led_to.clone());
        Known { watched, application, seen, trouble: None, asked: None }
    }

    fn ask(&mut self, lookers: &mut Lookers, now: Instant) {
        let times = self.asked.map_or(0, |asked| asked.times);
        if let Some(asked) = self.asked
            && (now.saturating_duration_since(asked.at) < asked.patience()
                || times >= MOST_QUESTIONS
                || lookers.open >= MOST_THREADS / 2)
        {
            return;
        }
        self.asked = Some(Asked { number: lookers.ask(&self.application), at: now, times: times + 1 });
    }

    /// Whether its answer may come at once.
    fn is_waited_for(&self) -> bool {
        self.asked.is_some_and(|asked| asked.times == 1)
    }

    /// There is no answer yet.
    fn overdue(&mut self, now: Instant) -> Option<Sight> {
        let asked = self.asked?;
        if now.saturating_duration_since(asked.at) < LOST || self.trouble.is_some_and(|trouble| trouble.told) {
            return None;
        }
        self.trouble = Some(Trouble { since: asked.at, told: true });
        let (name, seconds) = (&self.watched.name, LOST.as_secs());
        Some(Sight::Lost(format!("applications/{name}: the file system of its paths has not answered for {seconds} s")))
    }

    /// The answer.
    fn judge(&mut self, led: Led, now: Instant) -> Option<Sight> {
        match led {
            Ok(led_to) => {
                let had_trouble = self.trouble.take().is_some();
                if led_to == self.seen && !had_trouble {
                    return None;
                }
                self.seen.clone_from(&led_to);
                Some(Sight::Elsewhere(led_to))
            }
            Err((option, problem)) => {
                let trouble = self.trouble.get_or_insert(Trouble { since: now, told: false });
                if now.saturating_duration_since(trouble.since) < LOST || trouble.told {
                    return None;
                }
                trouble.told = true;
                Some(Sight::Lost(format!("applications/{}{option}: {problem}", self.watched.name)))
            }
        }
    }
}

// === impl Asked ===

impl Asked {
    /// After so long it is asked again.
    fn patience(&self) -> Duration {
        let doublings = (self.times - 1).min(u32::BITS - 1);
        LOST.saturating_mul(1 << doublings).min(LONGEST_PATIENCE)
    }
}

// === impl Lookers ===

impl Lookers {
    fn new() -> Lookers {
        let (questions, asked) = channel();
        let (answer, answers) = channel();
        Lookers { questions, asked: Arc::new(Mutex::new(asked)), answer, answers, threads: 0, open: 0, last: 0 }
    }

    /// Asks where the paths lead; the answer has this number.
    fn ask(&mut self, application: &Arc<Application>) -> u64 {
        self.last += 1;
        self.open += 1;
        // We have the other end.
        let _ = self.questions.send((self.last, application.clone()));
        if self.threads == 0 {
            self.reinforce();
        }
        self.last
    }

    fn next_answer(&mut self, until: Instant) -> Option<Answer> {
        let answer = self.answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
        self.open -= 1;
        Some(answer)
    }

    /// Each open question may have cost a thread: there is one more than that. What cannot be started is tried again.
    fn reinforce(&mut self) {
        while self.threads <= self.open.min(MOST_THREADS - 1) {
            let (asked, answer) = (self.asked.clone(), self.answer.clone());
            let look = move || {
                let next = || asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok((number, application)) = next() {
                    let led = resolve(&application).map(|resolution| resolution.led_to);
                    if answer.send((number, led)).is_err() {
                        return;
                    }
                }
            };
            if std::thread::Builder::new().name("look".to_owned()).spawn(look).is_err() {
                return;
            }
            self.threads += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;
    use std::path::Path;

    fn leads(to: &str) -> Led {
        Ok(vec![PinnedLink { link: "/srv/current".into(), leads_to: Path::new("/srv").join(to) }])
    }

    fn nowhere() -> Led {
        Err(("/root".to_owned(), "it cannot be found".to_owned()))
    }

    fn watched() -> Watched {
        let text = r#"{"applications": {"x": {"type": "php", "root": "/srv/current"}}}"#;
        let application = Configuration::parse(text).unwrap().applications.remove("x").unwrap();
        Watched { name: "x".to_owned(), generation: 1, application, led_to: leads("1").unwrap() }
    }

    fn elsewhere(to: &str) -> Option<Sight> {
        Some(Sight::Elsewhere(leads(to).unwrap()))
    }

    fn lost() -> Option<Sight> {
        Some(Sight::Lost("applications/x/root: it cannot be found".to_owned()))
    }

    #[test]
    fn what_stays_lost_is_told_once_and_so_is_its_return() {
        let began = Instant::now();
        let mut known = Known::new(watched());
        let mut look = |seconds, led| known.judge(led, began + Duration::from_secs(seconds));
        assert_eq!(look(0, leads("1")), None);
        assert_eq!(look(1, nowhere()), None);
        assert_eq!(look(5, nowhere()), None);
        assert_eq!(look(5, leads("1")), elsewhere("1"), "who took it for a deploy has to know");
        assert_eq!(look(6, leads("1")), None);

        assert_eq!(look(10, nowhere()), None);
        assert_eq!(look(15, nowhere()), lost());
        assert_eq!(look(20, nowhere()), None);
        assert_eq!(look(21, leads("1")), elsewhere("1"));
        assert_eq!(look(22, leads("1")), None);

        assert_eq!(look(23, leads("2")), elsewhere("2"));
        assert_eq!(look(24, nowhere()), None);
        assert_eq!(look(25, leads("3")), elsewhere("3"), "a deploy in two steps");
        assert_eq!(look(26, leads("3")), None);
    }

    #[test]
    fn what_hangs_is_told_once_and_asked_after_again() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        // Nobody answers here.
        let mut lookers = Lookers { threads: 1, ..Lookers::new() };
        let mut known = Known::new(watched());
        let (mut told, mut asked) = (Vec::new(), Vec::new());
        for second in 0..100_000 {
            let open = lookers.open;
            told.extend(known.overdue(at(second)).map(|_| second));
            known.ask(&mut lookers, at(second));
            asked.extend((lookers.open > open).then_some(second));
        }
        assert_eq!(told, [5]);
        assert_eq!(asked[..9], [0, 5, 15, 35, 75, 155, 315, 635, 1235]);
        assert_eq!(asked.len(), MOST_QUESTIONS as usize);
        assert!(!known.is_waited_for(), "the others do not wait for it");

        let number = known.asked.unwrap().number;
        assert_eq!(take(std::slice::from_mut(&mut known), (number - 1, leads("2"))), None, "that was asked long ago");
        let mut answer = |led| {
            known.asked = Some(Asked { number: 1, at: began, times: 3 });
            take(std::slice::from_mut(&mut known), (1, led)).map(|(_, sight)| sight)
        };
        assert_eq!(answer(nowhere()), None, "it has been told that it is in trouble");
        assert_eq!(answer(leads("1")), elsewhere("1"));
        assert_eq!(answer(leads("1")), None, "slow, but no trouble");
    }

    #[test]
    fn what_has_started_anew_is_looked_at_anew() {
        let in_trouble = || {
            let trouble = Some(Trouble { since: Instant::now(), told: true });
            let asked = Some(Asked { number: 1, at: Instant::now(), times: 3 });
            vec![Known { trouble, asked, ..Known::new(watched()) }]
        };
        let same = follow(in_trouble(), vec![watched()]);
        assert!(same[0].trouble.is_some() && same[0].asked.is_some());
        let anew = follow(in_trouble(), vec![Watched { generation: 2, ..watched() }]);
        assert!(anew[0].trouble.is_none() && anew[0].asked.is_none());
    }

    #[test]
    fn an_answer_that_comes_late_is_read_though_nobody_waits_for_it() {
        let mut lookers = Lookers { threads: 1, open: 3, ..Lookers::new() };
        let asked = Some(Asked { number: 3, at: Instant::now(), times: 3 });
        let trouble = Some(Trouble { since: Instant::now(), told: true });
        let mut known = [Known { asked, trouble, ..Known::new(watched()) }];
        lookers.answer.send((3, leads("2"))).unwrap();
        let notices = look(&mut known, &mut lookers);
        let [Notice::Swapped(swapped)] = &notices[..] else { panic!("{notices:?}") };
        assert_eq!(swapped[..], [("x".to_owned(), leads("2").unwrap())]);
    }

    #[test]
    fn there_are_threads_for_all_that_hang_and_one_more() {
        let mut lookers = Lookers { open: 3, ..Lookers::new() };
        lookers.reinforce();
        assert_eq!(lookers.threads, 4);

        let mut lookers = Lookers { open: MOST_THREADS / 2, threads: MOST_THREADS, ..Lookers::new() };
        let hangs = Asked { number: 1, at: Instant::now(), times: 1 };
        Known { asked: Some(hangs), ..Known::new(watched()) }.ask(&mut lookers, Instant::now() + LOST);
        assert_eq!(lookers.open, MOST_THREADS / 2, "the other half is for others");
        Known::new(watched()).ask(&mut lookers, Instant::now());
        assert_eq!(lookers.open, MOST_THREADS / 2 + 1);
    }
}
