//! Deploys: an application whose release was swapped, or whose files changed, starts anew by itself.
//!
//! That is a change like any other, of the configuration in force, when no other change is under way. One that fails
//! is said once, and what runs goes on until the next deploy.

use crate::change::Origin;
use crate::generation::Generation;
use crate::resolution::difference;
use crate::shutdown::Stage;
use crate::supervise::Supervisor;
use crate::watch::{Notice, Watched};
use howdah_channel::places::Pin;
use howdah_config::Reload;
use std::path::PathBuf;
use std::time::Instant;

/// Why an application is to start anew.
#[derive(Clone, Debug)]
pub enum Cause {
    /// Its paths lead there now.
    Swap(Vec<Pin>),
    /// A file was written, at this time.
    Edit(PathBuf, Instant),
}

/// A reload under way.
#[derive(Debug)]
pub struct Reloading {
    /// The applications, each with its cause in words.
    applications: Vec<(String, String)>,
    since: Instant,
}

// === impl Reloading ===

impl Reloading {
    /// It is in force.
    pub fn tell_success(&self, now: Instant) {
        let took = (now - self.since).as_millis();
        for (name, cause) in &self.applications {
            tracing::info!("the application {name:?} was reloaded in {took} ms, because {cause}");
        }
    }

    /// What ran before goes on.
    fn tell_failure(&self, reason: &str) {
        for (name, cause) in &self.applications {
            tracing::error!(
                "the application {name:?} was not reloaded, although {cause}; what ran before goes on, until the next \
                 change: {reason}"
            );
        }
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// A deploy was seen.
    pub(crate) fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Swapped(swapped) => {
                let swaps = swapped.into_iter().map(|(name, led_to)| (name, Cause::Swap(led_to)));
                self.due_reloads.extend(swaps);
            }
            Notice::Lost { application, problem } => {
                tracing::warn!(
                    "it is not known where the paths of the application {application:?} lead; the release that runs \
                     goes on, and the next one is taken when they lead somewhere: {problem}"
                );
                self.go_astray([application]);
            }
            Notice::Edited { application, file, at } => {
                // A swap is due as long as it has not been carried out; so is an edit, and the last one counts.
                let due = self.due_reloads.entry(application).or_insert_with(|| Cause::Edit(file.clone(), at));
                if matches!(due, Cause::Edit(..)) {
                    *due = Cause::Edit(file, at);
                }
            }
        }
    }

    /// Begins the next reload that is due, if no change is under way. `false` if there is none to begin.
    pub(crate) fn next_reload(&mut self, now: Instant) -> bool {
        while self.change.is_none()
            && matches!(self.stage, Stage::Serving)
            && let Some((name, cause)) = self.due_reloads.pop_first()
        {
            let Some(words) = self.words_of(&name, &cause) else {
                self.tell_return(&name, &cause);
                continue;
            };
            let mut applications = vec![(name.clone(), words)];
            // Applications behind one link go together: their files are the same ones.
            let others: Vec<_> =
                self.due_reloads.keys().filter(|other| self.share_a_link(&name, other)).cloned().collect();
            for other in others {
                let Some(cause) = self.due_reloads.remove(&other) else { continue };
                match self.words_of(&other, &cause) {
                    Some(words) => applications.push((other, words)),
                    None => self.tell_return(&other, &cause),
                }
            }
            let names: Vec<String> = applications.iter().map(|(name, _)| name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let origin = Origin::Reload(Reloading { applications, since: now });
            let (document, configuration) = (self.current.document.clone(), self.current.configuration.clone());
            self.begin_change(document, configuration, origin, &names, now);
            return true;
        }
        false
    }

    /// Why it is to start anew, in words. `None` if there is no reason any more: it has meanwhile.
    fn words_of(&self, name: &str, cause: &Cause) -> Option<String> {
        let application = self.current.configuration.applications.get(name)?;
        let generation = self.generation_in_force(name)?;
        match (cause, application.reload) {
            (Cause::Swap(led_to), Reload::OnSwap | Reload::OnChange) => {
                let Pin { link, leads_to } = difference(&generation.deploy().led_to, led_to)?;
                Some(format!("{} now leads to {}", link.display(), leads_to.display()))
            }
            (Cause::Edit(file, at), Reload::OnChange) if *at > generation.born() => {
                Some(format!("{} has changed", file.display()))
            }
            _ => None,
        }
    }

    /// The paths of these applications do not lead to what runs.
    fn go_astray(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            if let Some(id) = self.generation_in_force(&name).map(Generation::id) {
                self.astray.insert(name, id);
            }
        }
    }

    /// A reload was refused.
    pub(crate) fn reload_failed(&mut self, reloading: &Reloading, reason: &str) {
        reloading.tell_failure(reason);
        self.go_astray(reloading.applications.iter().map(|(name, _)| name.clone()));
    }

    /// The paths of an application that need no reload may have led elsewhere, and lead back to what runs.
    fn tell_return(&mut self, name: &str, cause: &Cause) {
        let in_force = self.generation_in_force(name).map(Generation::id);
        if matches!(cause, Cause::Swap(_)) && self.astray.remove(name).is_some_and(|id| in_force == Some(id)) {
            tracing::info!("the paths of the application {name:?} lead again to what runs");
        }
    }

    fn share_a_link(&self, one: &str, other: &str) -> bool {
        let links = |name: &str| self.generation_in_force(name).map(|generation| &generation.deploy().places.pins);
        let (Some(ones), Some(others)) = (links(one), links(other)) else { return false };
        ones.iter().any(|pin| others.iter().any(|other| other.link == pin.link))
    }

    /// Has the applications of the configuration in force watched.
    pub(crate) fn watch_applications(&mut self) {
        let applications = self.current.configuration.applications.iter();
        let wanted = applications.filter(|(_, application)| application.reload != Reload::Never);
        let watched = wanted.filter_map(|(name, application)| {
            let led_to = self.generation_in_force(name)?.deploy().led_to.clone();
            Some(Watched { name: name.clone(), application: application.clone(), led_to })
        });
        self.watch.watch(watched.collect());
    }
}
