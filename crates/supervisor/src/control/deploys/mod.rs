//! Deploys: an application whose release was swapped, or whose files changed, is reloaded.
//!
//! A reload is a change like any other, of the active configuration, when no other change is in progress. A reload that
//! fails is logged once, and what ran before goes on until the next deploy.

pub mod watch;

use crate::control::changes::change::{Deploy, DeployCause, DeployedApplication, Origin};
use crate::control::changes::{Changes, EndedDeploy};
use crate::control::deploys::watch::{DeployNotice, Watch, WatchedApplication, is_compiled};
use crate::control::runtime::Runtime;
use crate::generation::Generation;
use crate::plan::resolution::difference;
use howdah_config::Reload;
use howdah_protocol::messages::generation_paths::PinnedLink;
use howdah_protocol::plain_text::plain_and_short;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Instant;

/// The state of the applications' releases and files.
#[derive(Debug)]
pub struct Deploys {
    watch: Watch,
    /// The applications that may have to be reloaded, when it is their turn.
    due: BTreeMap<String, DueReload>,
    /// The scripts of each application that were written and are in no generation yet.
    written: BTreeMap<String, BTreeSet<PathBuf>>,
    /// The applications whose paths do not lead to what runs.
    unresolved: BTreeMap<String, Unresolved>,
}

/// Why an application may have to be reloaded: one of these.
#[derive(Clone, Debug)]
struct DueReload {
    /// Since when.
    since: Instant,
    /// Its paths lead there now.
    swap: Option<Vec<PinnedLink>>,
    /// This file was written, and others, the last one at this time.
    edit: Option<(PathBuf, Instant)>,
    /// Its logs are to be opened again.
    logs: bool,
    /// The log has a line that it waits for former generations.
    is_delayed: bool,
}

/// An application whose paths do not lead to what runs.
#[derive(Debug, Default)]
struct Unresolved {
    /// The generation that runs.
    generation: u64,
    /// Where the paths led when a new generation was rejected. It is not tried again.
    rejected: Option<Vec<PinnedLink>>,
    /// The log has a line that it is not known where they lead, and none yet that it is known again.
    is_lost: bool,
}

/// A reload waits while this number of former generations of its application still answer requests: deploys may be quicker than
/// requests that last for hours, and each generation has its processes.
const MAX_FORMER: usize = 32;
/// The number of scripts of an application that are compiled before a reload. While no reload succeeds, any number may be written.
const MAX_WRITTEN: usize = 1000;

// === impl DueReload ===

impl Default for DueReload {
    /// From now on, for no reason yet.
    fn default() -> DueReload {
        DueReload { since: Instant::now(), swap: None, edit: None, logs: false, is_delayed: false }
    }
}

// === impl Deploys ===

impl Deploys {
    /// Watches nothing yet.
    pub fn new() -> Deploys {
        Deploys { watch: Watch::new(), due: BTreeMap::new(), written: BTreeMap::new(), unresolved: BTreeMap::new() }
    }

    /// The next notice of the watching threads.
    pub fn poll_notice(&mut self, cx: &mut Context<'_>) -> Poll<DeployNotice> {
        self.watch.poll_notice(cx)
    }

    /// The watching threads have found something.
    pub fn on_notice(&mut self, notice: DeployNotice, changes: &Changes, runtime: &Runtime) {
        match notice {
            DeployNotice::Swapped(swapped) => {
                for (name, led_to) in swapped {
                    self.due.entry(name).or_default().swap = Some(led_to);
                }
            }
            DeployNotice::Lost { application, problem } => {
                tracing::warn!(
                    "it is not known where the paths of the application {application:?} lead; the release that runs \
                     goes on, and the next one is taken when they lead somewhere: {}",
                    plain_and_short(&problem)
                );
                if let Some(due) = self.due.get_mut(&application) {
                    due.swap = None;
                }
                if let Some(generation) = generation_of(&application, changes, runtime) {
                    self.unresolved(&application, generation.id()).is_lost = true;
                }
            }
            DeployNotice::Edited { application, files, at } => {
                let scripts = files.iter().filter(|file| is_compiled(file)).cloned();
                remember_written(self.written.entry(application.clone()).or_default(), scripts);
                self.due.entry(application).or_default().edit = files.into_iter().next().map(|file| (file, at));
            }
        }
    }

    /// The logs of this application are to be opened again: new processes do that.
    pub fn reopen_logs(&mut self, application: &str) {
        self.due.entry(application.to_owned()).or_default().logs = true;
    }

    /// Begins the next reload that is due. Returns `false` if no reload is due. No change must be in progress.
    pub fn begin_next(&mut self, changes: &mut Changes, runtime: &Runtime, now: Instant) -> bool {
        let former = runtime.generations.iter().filter(|generation| changes.is_former(generation.id()));
        let mut former_of: BTreeMap<&str, usize> = BTreeMap::new();
        former.for_each(|generation| *former_of.entry(generation.name()).or_default() += 1);
        let crowded = |name: &str| former_of.get(name).is_some_and(|count| *count >= MAX_FORMER);
        self.note_delays(crowded);
        while let Some((name, due)) = self.pop_next(crowded) {
            let Some(first) = self.consider(&name, due, changes, runtime) else { continue };
            let mut applications = vec![first];
            // Applications behind the same link are reloaded together, because they have the same files.
            let others =
                self.due.keys().filter(|other| !crowded(other) && share_a_link(&name, other, changes, runtime));
            let others: Vec<_> = others.cloned().collect();
            for other in others {
                let due = self.due.remove(&other).unwrap_or_default();
                applications.extend(self.consider(&other, due, changes, runtime));
            }
            let names: Vec<String> = applications.iter().map(|application| application.name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let origin = Origin::Deploy(Deploy { applications, since: now });
            let active = changes.active();
            let (document, configuration) = (active.document.clone(), active.configuration.clone());
            changes.begin(document, configuration, origin, &names, now);
            return true;
        }
        false
    }

    /// The application that has waited for the longest time: one whose releases change without a pause must not keep others
    /// from their reloads. An application with too many former generations waits.
    fn pop_next(&mut self, crowded: impl Fn(&str) -> bool) -> Option<(String, DueReload)> {
        let ready = self.due.iter().filter(|(name, _)| !crowded(name));
        let name = ready.min_by_key(|(_, due)| due.since).map(|(name, _)| name.clone())?;
        self.due.remove_entry(&name)
    }

    /// Reloads that wait for former generations are logged, once each.
    fn note_delays(&mut self, crowded: impl Fn(&str) -> bool) {
        for (name, due) in self.due.iter_mut().filter(|(name, due)| !due.is_delayed && crowded(name)) {
            due.is_delayed = true;
            tracing::warn!(
                "the reload of the application {name:?} waits: {MAX_FORMER} former generations still answer requests, which last \
                 longer than the time between deploys; limits/timeout ends them"
            );
        }
    }

    /// Whether the application is to be reloaded. `None` if there is no reason any more.
    fn consider(
        &mut self,
        name: &str,
        due: DueReload,
        changes: &Changes,
        runtime: &Runtime,
    ) -> Option<DeployedApplication> {
        let reload = changes.active().configuration.applications.get(name)?.reload();
        if reload == Reload::Never && !due.logs {
            return None;
        }
        let generation = generation_of(name, changes, runtime)?;
        let swap = due.swap.and_then(|led_to| self.new_release(generation, &led_to)).map(DeployCause::Swapped);
        // The generation has read what was written before its start.
        let edit = due.edit.filter(|(_, at)| reload == Reload::OnChange && *at > generation.born());
        let edit = || edit.map(|(file, _)| DeployCause::Edited(file));
        let cause = swap.or_else(edit).or_else(|| due.logs.then_some(DeployCause::LogsReopened))?;
        let written = self.written.get(name).cloned().unwrap_or_default();
        Some(DeployedApplication { name: name.to_owned(), cause, written })
    }

    /// The first link that leads elsewhere than the generation's. `None` if all lead to what runs, or to a release that
    /// was rejected. The log has a line then, if it has one that the paths were lost or their release rejected.
    fn new_release(&mut self, generation: &Generation, led_to: &[PinnedLink]) -> Option<PinnedLink> {
        let (id, name) = (generation.id(), generation.name());
        let Some(link) = difference(&generation.release().led_to, led_to) else {
            if self.unresolved.remove(name).is_some_and(|unresolved| unresolved.generation == id) {
                tracing::info!("the paths of the application {name:?} lead again to what runs");
            }
            return None;
        };
        let unresolved = self.unresolved.get_mut(name).filter(|unresolved| unresolved.generation == id);
        let Some(unresolved) = unresolved.filter(|unresolved| unresolved.rejected.as_deref() == Some(led_to)) else {
            return Some(link.clone());
        };
        if std::mem::take(&mut unresolved.is_lost) {
            let cause = DeployCause::Swapped(link.clone());
            tracing::warn!(
                "the paths of the application {name:?} lead again to the rejected release ({cause}); the running \
                 release stays until they lead elsewhere, or until `howdah restart {name}`"
            );
        }
        None
    }

    /// The paths of this application do not lead to this generation, which runs.
    fn unresolved(&mut self, name: &str, generation: u64) -> &mut Unresolved {
        let unresolved = self.unresolved.entry(name.to_owned()).or_default();
        if unresolved.generation != generation {
            *unresolved = Unresolved { generation, ..Unresolved::default() };
        }
        unresolved
    }

    /// A reload has ended.
    pub fn on_ended(&mut self, ended: EndedDeploy, changes: &Changes, runtime: &Runtime, now: Instant) {
        let EndedDeploy { deploy, failure, mut rejected } = ended;
        let took = (now - deploy.since).as_millis();
        for DeployedApplication { name, cause, written } in deploy.applications {
            let Some(reason) = &failure else {
                if let Some(pending) = self.written.get_mut(&name) {
                    // A file that was written again meanwhile is reported again.
                    pending.retain(|file| !written.contains(file));
                }
                tracing::info!("the application {name:?} was reloaded in {took} ms, because {cause}");
                continue;
            };
            tracing::error!(
                "the application {name:?} was not reloaded, although {cause}; what ran before goes on, until the next \
                 change: {reason}"
            );
            if matches!(cause, DeployCause::Swapped(_))
                && let Some(generation) = generation_of(&name, changes, runtime)
            {
                let unresolved = self.unresolved(&name, generation.id());
                (unresolved.rejected, unresolved.is_lost) = (rejected.remove(&name), false);
            }
        }
    }

    /// Watches the applications of the active configuration.
    pub fn watch(&mut self, changes: &Changes, runtime: &Runtime) {
        let applications = changes.active().configuration.applications.iter();
        let php = applications.filter_map(|(name, application)| Some((name, application.as_php()?)));
        let wanted = php.filter(|(_, application)| application.reload != Reload::Never);
        let watched = wanted.filter_map(|(name, application)| {
            let generation = generation_of(name, changes, runtime)?;
            let (application, led_to) = (application.clone(), generation.release().led_to.clone());
            Some(WatchedApplication {
                name: name.clone(),
                generation: generation.id(),
                made: generation.born(),
                application,
                led_to,
            })
        });
        let watched: Vec<_> = watched.collect();
        self.written.retain(|name, _| watched.iter().any(|watched| watched.name == *name));
        let is_watched = |generation: u64| watched.iter().any(|watched| watched.generation == generation);
        self.unresolved.retain(|_, unresolved| is_watched(unresolved.generation));
        self.watch.watch(watched);
    }
}

/// Adds scripts that were written, while there are fewer than [`MAX_WRITTEN`].
fn remember_written(written: &mut BTreeSet<PathBuf>, scripts: impl Iterator<Item = PathBuf>) {
    let room = MAX_WRITTEN.saturating_sub(written.len());
    written.extend(scripts.take(room));
}

/// The generation that serves this application.
fn generation_of<'a>(name: &str, changes: &Changes, runtime: &'a Runtime) -> Option<&'a Generation> {
    let id = changes.served(runtime.stage).generations.get(name)?;
    runtime.generations.get(*id)
}

fn share_a_link(one: &str, other: &str, changes: &Changes, runtime: &Runtime) -> bool {
    let links = |name: &str| Some(&generation_of(name, changes, runtime)?.release().paths.pins);
    let (Some(ones), Some(others)) = (links(one), links(other)) else { return false };
    ones.iter().any(|pin| others.iter().any(|other| other.link == pin.link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_application_that_waits_for_the_longest_time_is_next() {
        let mut deploys = Deploys::new();
        deploys.reopen_logs("shop");
        deploys.reopen_logs("aaa");
        deploys.reopen_logs("shop");
        let mut next = || deploys.pop_next(|_| false).map(|(name, _)| name);
        assert_eq!((next(), next(), next()), (Some("shop".to_owned()), Some("aaa".to_owned()), None));
    }

    #[test]
    fn the_number_of_scripts_that_wait_for_a_reload_is_bounded() {
        let mut written = BTreeSet::new();
        for hundred in 0..20 {
            remember_written(&mut written, (0..100).map(|n| PathBuf::from(format!("{hundred}-{n}.php"))));
        }
        assert_eq!(written.len(), MAX_WRITTEN);
    }

    #[test]
    fn an_application_with_too_many_former_generations_waits_and_others_do_not() {
        let mut deploys = Deploys::new();
        deploys.reopen_logs("shop");
        deploys.reopen_logs("aaa");
        let crowded = |name: &str| name == "shop";
        deploys.note_delays(crowded);
        assert!(deploys.due["shop"].is_delayed && !deploys.due["aaa"].is_delayed);
        let mut next = |crowded: fn(&str) -> bool| deploys.pop_next(crowded).map(|(name, _)| name);
        assert_eq!((next(crowded), next(crowded)), (Some("aaa".to_owned()), None));
        assert_eq!(next(|_| false), Some("shop".to_owned()));
    }
}
