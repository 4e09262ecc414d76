//! Whether the paths of applications lead elsewhere: looked at twice a second, as links on network file systems and in
//! bind mounts tell nobody that they were swapped.
//!
//! A path that leads nowhere is one whose deploy is not finished: it is looked at again, and told when it stays so. What
//! led nowhere for so long is told once more when it leads somewhere, even if that is where it led before.
//!
//! File systems may hang. So threads look that may not come back: one, and one more for each question that is open. An
//! application is asked after again, with growing pauses, as its links may have been turned to a file system that lives.

use super::{Notice, Watched};
use crate::resolution::resolve;
use howdah_channel::places::Pin;
use howdah_config::Application;
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
/// The longest pause between two questions, of which the first has no answer.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);
/// So many threads look at most: each may hang for as long as the machine runs.
const MOST_THREADS: usize = 64;

/// Where the paths led, or the option and a sentence.
type Led = Result<Vec<Pin>, (String, String)>;

/// Questions and their answers have a number.
type Question = (u64, Arc<Application>);
type Answer = (u64, Led);

struct Known {
    watched: Watched,
    application: Arc<Application>,
    /// Where the paths led when they were last seen: each deploy is told once.
    seen: Vec<Pin>,
    trouble: Option<Trouble>,
    asked: Option<Asked>,
}

/// A question that is open.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    at: Instant,
    /// After so long it is asked again.
    patience: Duration,
}

/// Why it is not known where the paths lead.
#[derive(Debug, PartialEq)]
enum Trouble {
    /// Nowhere, for so long already.
    Nowhere { since: Instant, told: bool },
    /// There is no answer; that was told.
    Hangs,
}

/// What a look has shown.
#[derive(Debug, PartialEq)]
enum Sight {
    /// The paths lead there now.
    Elsewhere(Vec<Pin>),
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
    loop {
        let order = match known.is_empty() {
            true => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => orders.recv_timeout(PAUSE),
        };
        match order {
            Ok(applications) => known = follow(known, applications),
            Err(RecvTimeoutError::Timeout) => {
                if look(&mut known, &mut lookers).into_iter().any(|notice| notices.send(notice).is_err()) {
                    return;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What was seen of an application that is still the same is not told again. One that has started anew has been found.
fn follow(mut known: Vec<Known>, applications: Vec<Watched>) -> Vec<Known> {
    let follow_one = |watched: Watched| match known.iter().position(|known| known.watched == watched) {
        Some(at) => known.swap_remove(at),
        None => Known::new(watched),
    };
    applications.into_iter().map(follow_one).collect()
}

fn look(known: &mut [Known], lookers: &mut Lookers) -> Vec<Notice> {
    let began = Instant::now();
    let (mut notices, mut swapped) = (Vec::new(), Vec::new());
    let mut tell = |known: &Known, sight: Sight| match sight {
        Sight::Elsewhere(led_to) => swapped.push((known.watched.name.clone(), led_to)),
        Sight::Lost(problem) => {
            notices.push(Notice::Lost { application: known.watched.name.clone(), problem });
        }
    };
    let may_ask_again = !lookers.all_may_hang();
    for known in known.iter_mut() {
        if let Some(sight) = known.overdue(began) {
            tell(known, sight);
        }
        known.ask(lookers, may_ask_again, began);
    }
    while known.iter().any(Known::is_waited_for)
        && let Some((number, led)) = lookers.next_answer(began + ROUND)
    {
        // Others are of questions that nobody asks any more.
        let of_this = |known: &&mut Known| known.asked.is_some_and(|asked| asked.number == number);
        if let Some(known) = known.iter_mut().find(of_this) {
            known.asked = None;
            if let Some(sight) = known.judge(led, Instant::now()) {
                tell(known, sight);
            }
        }
    }
    lookers.reinforce();
    if !swapped.is_empty() {
        notices.push(Notice::Swapped(swapped));
    }
    notices
}

// === impl Known ===

impl Known {
    fn new(watched: Watched) -> Known {
        let (application, seen) = (Arc::new(watched.application.clone()), watched.led_to.clone());
        Known { watched, application, seen, trouble: None, asked: None }
    }

    fn ask(&mut self, lookers: &mut Lookers, may_ask_again: bool, now: Instant) {
        let patience = match self.asked {
            None => LOST,
            Some(asked) if now.saturating_duration_since(asked.at) < asked.patience || !may_ask_again => return,
            Some(asked) => LONGEST_PATIENCE.min(asked.patience * 2),
        };
        self.asked = Some(Asked { number: lookers.ask(&self.application), at: now, patience });
    }

    /// Whether its answer may come at once.
    fn is_waited_for(&self) -> bool {
        self.asked.is_some() && self.trouble != Some(Trouble::Hangs)
    }

    /// There is no answer yet.
    fn overdue(&mut self, now: Instant) -> Option<Sight> {
        let asked = self.asked?;
        if now.saturating_duration_since(asked.at) < LOST || self.trouble == Some(Trouble::Hangs) {
            return None;
        }
        self.trouble = Some(Trouble::Hangs);
        let (name, seconds) = (&self.watched.name, LOST.as_secs());
        Some(Sight::Lost(format!("applications/{name}: the file system of its paths has not answered for {seconds} s")))
    }

    /// The answer.
    fn judge(&mut self, led: Led, now: Instant) -> Option<Sight> {
        match led {
            Ok(led_to) => {
                let was_told =
                    matches!(self.trouble.take(), Some(Trouble::Hangs | Trouble::Nowhere { told: true, .. }));
                if led_to == self.seen && !was_told {
                    return None;
                }
                self.seen.clone_from(&led_to);
                Some(Sight::Elsewhere(led_to))
            }
            Err((option, problem)) => {
                let (since, was_told) = match self.trouble {
                    Some(Trouble::Nowhere { since, told }) => (since, told),
                    // It is another trouble now, and known well.
                    Some(Trouble::Hangs) => (now - LOST, false),
                    None => (now, false),
                };
                let told = was_told || now.saturating_duration_since(since) >= LOST;
                self.trouble = Some(Trouble::Nowhere { since, told });
                (told && !was_told)
                    .then(|| Sight::Lost(format!("applications/{}{option}: {problem}", self.watched.name)))
            }
        }
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

    fn all_may_hang(&self) -> bool {
        self.open >= MOST_THREADS
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
        Ok(vec![Pin { link: "/srv/current".into(), leads_to: Path::new("/srv").join(to) }])
    }

    fn nowhere() -> Led {
        Err(("/root".to_owned(), "it cannot be found".to_owned()))
    }

    fn watched() -> Watched {
        let text = r#"{"applications": {"x": {"type": "php", "root": "/srv/current"}}}"#;
        let application = Configuration::parse(text).unwrap().applications.remove("x").unwrap();
        Watched { name: "x".to_owned(), application, led_to: leads("1").unwrap() }
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
        assert_eq!(look(5, leads("1")), None, "nobody heard that it was lost");

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
        let mut told = Vec::new();
        for second in 0..100 {
            told.extend(known.overdue(at(second)).map(|_| second));
            known.ask(&mut lookers, true, at(second));
        }
        assert_eq!(told, [5]);
        assert_eq!(lookers.open, 5, "asked at 0, 5, 15, 35 and 75");
        assert!(!known.is_waited_for(), "the others do not wait for it");

        known.ask(&mut lookers, false, at(1000));
        assert_eq!(lookers.open, 5, "no thread is left for it");

        known.asked = None;
        assert_eq!(known.judge(nowhere(), at(100)), lost(), "another trouble");
        assert_eq!(known.judge(leads("1"), at(101)), elsewhere("1"));
        known.ask(&mut lookers, true, at(101));
        assert!(known.is_waited_for());

        let other = Watched { led_to: leads("2").unwrap(), ..watched() };
        assert_eq!(follow(vec![known], vec![watched()])[0].asked.map(|asked| asked.at), Some(at(101)), "the same one");
        let known = follow(vec![Known { trouble: Some(Trouble::Hangs), ..Known::new(watched()) }], vec![other]);
        assert!(known[0].trouble.is_none() && known[0].asked.is_none(), "it has been found");
    }

    #[test]
    fn there_are_threads_for_all_that_hang_and_one_more() {
        let mut lookers = Lookers { open: 3, ..Lookers::new() };
        lookers.reinforce();
        assert_eq!(lookers.threads, 4);
        let mut lookers = Lookers { open: 1000, ..Lookers::new() };
        assert!(lookers.all_may_hang());
        lookers.reinforce();
        assert_eq!(lookers.threads, MOST_THREADS);
    }
}
