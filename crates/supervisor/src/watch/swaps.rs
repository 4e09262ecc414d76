//! Whether the paths of applications lead elsewhere: looked at twice a second, as links on network file systems and in
//! bind mounts tell nobody that they were swapped.
//!
//! A path that leads nowhere is one whose deploy is not finished: it is looked at again, and told when it stays so.
//!
//! File systems may hang: a thread of its own looks, and when it does not come back, the application waits for it alone and
//! another one looks at the others.

use super::{Notice, Watched};
use crate::resolution::resolve;
use howdah_channel::places::Pin;
use howdah_config::Application;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(500);
/// No deploy takes so long between two links.
const LOST: Duration = Duration::from_secs(5);
/// After so long a file system hangs.
const PATIENCE: Duration = Duration::from_secs(5);

struct Known {
    watched: Watched,
    /// Where the paths led when they were last seen: each deploy is told once.
    seen: Vec<Pin>,
    /// Since when they have led nowhere, and whether that was told.
    lost: Option<(Instant, bool)>,
    /// Who has not come back from looking.
    hangs: Option<Looker>,
}

/// Where the paths led, or the option and a sentence.
type Led = Result<Vec<Pin>, (String, String)>;

/// A thread that looks where paths lead. It ends when nobody asks it any more.
struct Looker {
    asked: Sender<Application>,
    led: Receiver<Led>,
}

/// What a look has shown.
#[derive(Debug, PartialEq)]
enum Sight {
    /// The paths lead there now.
    Elsewhere(Vec<Pin>),
    /// They have led nowhere for a while: the option, and a sentence.
    Lost(String),
    /// They lead again to where they did before they were lost.
    Found,
}

/// Runs until the supervisor ends.
pub fn run(orders: &Receiver<Vec<Watched>>, notices: &UnboundedSender<Notice>) {
    let mut known: Vec<Known> = Vec::new();
    let mut looker = None;
    loop {
        let order = match known.is_empty() {
            true => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => orders.recv_timeout(PAUSE),
        };
        match order {
            Ok(applications) => known = follow(known, applications),
            Err(RecvTimeoutError::Timeout) => {
                let mut swapped = Vec::new();
                let mut seen = Vec::new();
                for known in &mut known {
                    match known.look(&mut looker, Instant::now()) {
                        Some(Sight::Elsewhere(led_to)) => swapped.push((known.watched.name.clone(), led_to)),
                        Some(Sight::Lost(problem)) => seen.push(Notice::Lost(known.watched.name.clone(), problem)),
                        Some(Sight::Found) => seen.push(Notice::Found(known.watched.name.clone())),
                        None => {}
                    }
                }
                // Those of one look together: applications behind one link start anew together.
                if !swapped.is_empty() {
                    seen.push(Notice::Swapped(swapped));
                }
                if seen.into_iter().any(|notice| notices.send(notice).is_err()) {
                    return;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What was seen of an application that is still the same is not told again.
fn follow(mut known: Vec<Known>, applications: Vec<Watched>) -> Vec<Known> {
    let follow_one = |watched: Watched| {
        let same =
            |known: &Known| known.watched.name == watched.name && known.watched.application == watched.application;
        match known.iter().position(same).map(|at| known.swap_remove(at)) {
            Some(known) if known.watched == watched => known,
            before => Known {
                seen: watched.led_to.clone(),
                lost: None,
                hangs: before.and_then(|before| before.hangs),
                watched,
            },
        }
    };
    applications.into_iter().map(follow_one).collect()
}

// === impl Known ===

impl Known {
    fn look(&mut self, looker: &mut Option<Looker>, now: Instant) -> Option<Sight> {
        let led = match &self.hangs {
            Some(hanging) => match hanging.led.try_recv() {
                Err(TryRecvError::Empty) => return None,
                led => led.ok(),
            },
            None => {
                let asked = looker.take().or_else(Looker::start)?;
                match asked.look(&self.watched.application) {
                    Ok(led) => {
                        *looker = Some(asked);
                        Some(led)
                    }
                    Err(RecvTimeoutError::Disconnected) => None,
                    Err(RecvTimeoutError::Timeout) => {
                        self.hangs = Some(asked);
                        self.lost = Some((now, true));
                        let seconds = PATIENCE.as_secs();
                        return Some(Sight::Lost(format!(
                            "applications/{}: the file system of its paths has not answered for {seconds} s",
                            self.watched.name
                        )));
                    }
                }
            }
        };
        self.hangs = None;
        let led_to = match led? {
            Ok(led_to) => led_to,
            Err((option, problem)) => {
                let (since, was_told) = *self.lost.get_or_insert((now, false));
                if was_told || now.saturating_duration_since(since) < LOST {
                    return None;
                }
                self.lost = Some((since, true));
                return Some(Sight::Lost(format!("applications/{}{option}: {problem}", self.watched.name)));
            }
        };
        let was_told_lost = self.lost.take().is_some_and(|(_, was_told)| was_told);
        if led_to == self.seen {
            return was_told_lost.then_some(Sight::Found);
        }
        self.seen.clone_from(&led_to);
        Some(Sight::Elsewhere(led_to))
    }
}

// === impl Looker ===

impl Looker {
    /// `None` if there can be no more threads: it is tried again at the next look.
    fn start() -> Option<Looker> {
        let (asked, questions) = channel::<Application>();
        let (answers, led) = channel();
        let look = move || {
            for application in questions {
                if answers.send(resolve(&application).map(|resolution| resolution.led_to)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("look".to_owned()).spawn(look).ok()?;
        Some(Looker { asked, led })
    }

    fn look(&self, application: &Application) -> Result<Led, RecvTimeoutError> {
        self.asked.send(application.clone()).map_err(|_| RecvTimeoutError::Disconnected)?;
        self.led.recv_timeout(PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_that_stays_lost_is_told_once_and_so_is_its_return() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        for release in ["1", "2"] {
            std::fs::create_dir(folder.join(release)).unwrap();
        }
        let current = folder.join("current");
        let swap = |release: &str| {
            let _ = std::fs::remove_file(&current);
            symlink(folder.join(release), &current).unwrap();
        };
        swap("1");
        let text = serde_json::json!({"applications": {"x": {"type": "php", "root": current}}}).to_string();
        let application = Configuration::parse(&text).unwrap().applications.remove("x").unwrap();
        let led_to = resolve(&application).unwrap().led_to;
        let watched = Watched { name: "x".to_owned(), application, led_to };
        let mut known = follow(Vec::new(), vec![watched.clone()]).remove(0);
        let began = Instant::now();
        let mut looker = None;
        let mut look_at = |known: &mut Known, seconds| known.look(&mut looker, began + Duration::from_secs(seconds));

        assert_eq!(look_at(&mut known, 0), None);
        swap("nothing");
        assert_eq!(look_at(&mut known, 1), None);
        assert_eq!(look_at(&mut known, 5), None);
        swap("1");
        assert_eq!(look_at(&mut known, 6), None, "what was not told lost is not told found");

        swap("nothing");
        assert_eq!(look_at(&mut known, 10), None);
        // A change of something else does not begin it anew.
        let mut known = follow(vec![known], vec![watched]).remove(0);
        let Some(Sight::Lost(problem)) = look_at(&mut known, 15) else { panic!("not told") };
        assert!(problem.starts_with("applications/x/root: "), "{problem}");
        assert_eq!(look_at(&mut known, 20), None);
        swap("1");
        assert_eq!(look_at(&mut known, 21), Some(Sight::Found));
        assert_eq!(look_at(&mut known, 22), None);
        swap("nothing");
        assert_eq!(look_at(&mut known, 30), None);
        assert!(matches!(look_at(&mut known, 36), Some(Sight::Lost(_))));
        swap("2");
        assert!(matches!(look_at(&mut known, 37), Some(Sight::Elsewhere(_))));
        assert_eq!(look_at(&mut known, 38), None);
    }
}
