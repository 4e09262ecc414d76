//! Deploys: an application whose release was swapped, or whose files changed, starts anew by itself.
//!
//! That is a change like any other, of the configuration in force, when no other change is under way. One that fails
//! is said once, and what runs goes on until the next deploy.

use crate::control::change::Origin;
use crate::control::stage::Stage;
use crate::control::watch::{DeployNotice, WatchedApplication};
use crate::event_loop::Supervisor;
use crate::plan::resolution::difference;
use howdah_config::Reload;
use howdah_protocol::generation_paths::PinnedLink;
use std::path::PathBuf;
use std::time::Instant;

/// Why an application may have to start anew: for one of these.
#[derive(Clone, Debug, Default)]
pub struct Due {
    /// Its paths lead there now.
    swap: Option<Vec<PinnedLink>>,
    /// A file was written, at this time.
    edit: Option<(PathBuf, Instant)>,
}

/// An application whose paths do not lead to what runs.
#[derive(Debug, Default)]
pub struct Astray {
    /// What runs.
    generation: u64,
    /// Where the paths led when a generation was refused. It is not tried again.
    refused: Option<Vec<PinnedLink>>,
    /// It was told that it is not known where they lead, and not yet that it is known again.
    is_lost: bool,
}

/// A reload under way.
#[derive(Debug)]
pub struct Reloading {
    applications: Vec<Reloaded>,
    since: Instant,
}

#[derive(Debug)]
struct Reloaded {
    name: String,
    /// Why, in words.
    cause: String,
    /// Whether the paths lead elsewhere.
    is_swap: bool,
}

// === impl Reloading ===

impl Reloading {
    /// It is in force.
    pub fn tell_success(&self, now: Instant) {
        let took = (now - self.since).as_millis();
        for Reloaded { name, cause, .. } in &self.applications {
            tracing::info!("the application {name:?} was reloaded in {took} ms, because {cause}");
        }
    }

    /// What ran before goes on.
    fn tell_failure(&self, reason: &str) {
        for Reloaded { name, cause, .. } in &self.applications {
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
    pub(crate) fn on_notice(&mut self, notice: DeployNotice) {
        match notice {
            DeployNotice::Swapped(swapped) => {
                for (name, led_to) in swapped {
                    self.due_reloads.entry(name).or_default().swap = Some(led_to);
                }
            }
            DeployNotice::Lost { application, problem } => {
                tracing::warn!(
                    "it is not known where the paths of the application {application:?} lead; the release that runs \
                     goes on, and the next one is taken when they lead somewhere: {problem}"
                );
                if let Some(due) = self.due_reloads.get_mut(&application) {
                    due.swap = None;
                }
                if let Some(astray) = self.astray(&application) {
                    astray.is_lost = true;
                }
            }
            DeployNotice::Edited { application, file, at } => {
                self.due_reloads.entry(application).or_default().edit = Some((file, at));
            }
        }
    }

    /// Begins the next reload that is due, if no change is under way. `false` if there is none to begin.
    pub(crate) fn next_reload(&mut self, now: Instant) -> bool {
        while self.change.is_none()
            && matches!(self.stage, Stage::Serving)
            && let Some((name, due)) = self.due_reloads.pop_first()
        {
            let Some(first) = self.consider(&name, due) else { continue };
            let mut applications = vec![first];
            // Applications behind one link go together: their files are the same ones.
            let others: Vec<_> =
                self.due_reloads.keys().filter(|other| self.share_a_link(&name, other)).cloned().collect();
            for other in others {
                let due = self.due_reloads.remove(&other).unwrap_or_default();
                applications.extend(self.consider(&other, due));
            }
            let names: Vec<String> = applications.iter().map(|reloaded| reloaded.name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let origin = Origin::Reload(Reloading { applications, since: now });
            let (document, configuration) = (self.current.document.clone(), self.current.configuration.clone());
            self.begin_change(document, configuration, origin, &names, now);
            return true;
        }
        false
    }

    /// Whether it is to start anew. `None` if there is no reason any more.
    fn consider(&mut self, name: &str, due: Due) -> Option<Reloaded> {
        let reload = self.current.configuration.applications.get(name)?.reload;
        if reload == Reload::Never {
            return None;
        }
        let swap = due.swap.and_then(|led_to| self.new_release(name, &led_to));
        let is_swap = swap.is_some();
        let born = self.generation_in_force(name)?.born();
        // What was written before is what runs.
        let edit = due.edit.filter(|(_, at)| reload == Reload::OnChange && *at > born);
        let cause = swap.or_else(|| edit.map(|(file, _)| format!("{} has changed", file.display())))?;
        Some(Reloaded { name: name.to_owned(), cause, is_swap })
    }

    /// What leads elsewhere, in words. `None` if that is what runs or what was refused: then whoever heard that the paths were
    /// lost, or that what they led to was refused, hears where they lead.
    fn new_release(&mut self, name: &str, led_to: &[PinnedLink]) -> Option<String> {
        let generation = self.generation_in_force(name)?;
        let id = generation.id();
        let Some(PinnedLink { link, leads_to }) = difference(&generation.release().led_to, led_to) else {
            if self.astray.remove(name).is_some_and(|astray| astray.generation == id) {
                tracing::info!("the paths of the application {name:?} lead again to what runs");
            }
            return None;
        };
        let words = format!("{} now leads to {}", link.display(), leads_to.display());
        let astray = self.astray.get_mut(name).filter(|astray| astray.generation == id);
        let Some(astray) = astray.filter(|astray| astray.refused.as_deref() == Some(led_to)) else {
            return Some(words);
        };
        if std::mem::take(&mut astray.is_lost) {
            tracing::warn!(
                "the paths of the application {name:?} lead again to the release that was refused: {words}; what runs \
                 goes on until they lead elsewhere, or until `howdah restart {name}`"
            );
        }
        None
    }

    /// The paths of this application do not lead to what runs.
    fn astray(&mut self, name: &str) -> Option<&mut Astray> {
        let generation = self.generation_in_force(name)?.id();
        let astray = self.astray.entry(name.to_owned()).or_default();
        if astray.generation != generation {
            *astray = Astray { generation, ..Astray::default() };
        }
        Some(astray)
    }

    /// A reload was refused, and what it had started.
    pub(crate) fn reload_failed(&mut self, reloading: &Reloading, started: &[u64], reason: &str) {
        reloading.tell_failure(reason);
        for Reloaded { name, .. } in reloading.applications.iter().filter(|reloaded| reloaded.is_swap) {
            let mut of_this = self.generations.iter().filter(|generation| generation.name() == name);
            let refused = of_this.find(|generation| started.contains(&generation.id()));
            let refused = refused.map(|generation| generation.release().led_to.clone());
            if let Some(astray) = self.astray(name) {
                (astray.refused, astray.is_lost) = (refused, false);
            }
        }
    }

    fn share_a_link(&self, one: &str, other: &str) -> bool {
        let links = |name: &str| self.generation_in_force(name).map(|generation| &generation.release().paths.pins);
        let (Some(ones), Some(others)) = (links(one), links(other)) else { return false };
        ones.iter().any(|pin| others.iter().any(|other| other.link == pin.link))
    }

    /// Has the applications of the configuration in force watched.
    pub(crate) fn watch_applications(&mut self) {
        let applications = self.current.configuration.applications.iter();
        let wanted = applications.filter(|(_, application)| application.reload != Reload::Never);
        let watched = wanted.filter_map(|(name, application)| {
            let generation = self.generation_in_force(name)?;
            let (application, led_to) = (application.clone(), generation.release().led_to.clone());
            Some(WatchedApplication { name: name.clone(), generation: generation.id(), application, led_to })
        });
        let watched: Vec<_> = watched.collect();
        self.astray.retain(|_, astray| watched.iter().any(|watched| watched.generation == astray.generation));
        self.watch.watch(watched);
    }
}
