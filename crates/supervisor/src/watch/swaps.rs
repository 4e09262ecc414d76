//! Whether the paths of applications lead elsewhere: looked at twice a second, as links on network file systems and in
//! bind mounts tell nobody that they were swapped.
//!
//! A path that leads nowhere is one whose deploy is not finished: it is looked at again.

use super::{Notice, Watched};
use crate::resolution::resolve;
use howdah_channel::places::Pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(500);

struct Known {
    watched: Watched,
    /// Where the paths led when they were last seen: each deploy is told once.
    seen: Vec<Pin>,
}

/// Runs until the supervisor ends.
pub fn run(orders: &Receiver<Vec<Watched>>, notices: &UnboundedSender<Notice>) {
    let mut known: Vec<Known> = Vec::new();
    loop {
        let order = match known.is_empty() {
            true => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => orders.recv_timeout(PAUSE),
        };
        match order {
            Ok(applications) => known = follow(known, applications),
            Err(RecvTimeoutError::Timeout) => {
                let swapped: Vec<_> = known.iter_mut().filter_map(Known::look).collect();
                if !swapped.is_empty() && notices.send(Notice::Swapped(swapped)).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What was seen of an application that is still the same is not told again.
fn follow(known: Vec<Known>, applications: Vec<Watched>) -> Vec<Known> {
    let follow_one = |watched: Watched| {
        let same = known.iter().find(|known| known.watched == watched);
        let seen = same.map_or_else(|| watched.led_to.clone(), |known| known.seen.clone());
        Known { watched, seen }
    };
    applications.into_iter().map(follow_one).collect()
}

// === impl Known ===

impl Known {
    fn look(&mut self) -> Option<(String, Vec<Pin>)> {
        let led_to = resolve(&self.watched.application).ok()?.led_to;
        if led_to == self.seen {
            return None;
        }
        self.seen.clone_from(&led_to);
        Some((self.watched.name.clone(), led_to))
    }
}
