//! Warnings about a configuration that has become active: its parts that may surprise the operator.

use crate::control::active::ActiveConfiguration;
use crate::control::runtime::Runtime;
use crate::generation::Generation;
use howdah_config::{Configuration, Settings};

/// Logs the warnings, and remembers what they depend on.
#[derive(Debug)]
pub struct ConfigurationWarnings {
    /// The user settings with which howdah started: the router keeps its user.
    user_settings: UserSettings,
    /// The operator chooses the users of applications, and can change them.
    has_users: bool,
    /// Several applications run, and one of them has the router's user.
    shares_router_user: bool,
}

/// The settings about the user, which are read only when howdah starts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UserSettings {
    user: Option<String>,
    group: Option<String>,
}

/// The target of a configuration's own warnings. They are all different, and there are only as many as an operator has
/// caused: the log does not limit them.
pub const CONFIGURATION_WARNINGS: &str = "howdah_supervisor::configuration_warnings";

// === impl ConfigurationWarnings ===

impl ConfigurationWarnings {
    /// Of a howdah that starts with these settings. `has_users`: the operator chooses the users of applications.
    pub fn new(settings: &Settings, has_users: bool) -> ConfigurationWarnings {
        ConfigurationWarnings { user_settings: UserSettings::of(settings), has_users, shares_router_user: false }
    }

    /// Logs the warnings of the configuration that is active: those that its text has only if it is new, and not at each deploy.
    pub fn log(&mut self, active: &ActiveConfiguration, runtime: &Runtime, is_new: bool) {
        if is_new {
            self.log_configuration(&active.configuration, runtime);
        }
        self.log_shared_user(active, runtime);
    }

    fn log_configuration(&self, configuration: &Configuration, runtime: &Runtime) {
        configuration.warnings.iter().for_each(|warning| tracing::warn!(target: CONFIGURATION_WARNINGS, "{warning}"));
        let threads = runtime.router.threads();
        if configuration.settings.listen_threads.is_some_and(|wanted| wanted != u32::from(threads)) {
            tracing::warn!("settings/listen_threads: {threads} threads run; restart howdah to change their number");
        }
        if self.user_settings != UserSettings::of(&configuration.settings) {
            tracing::warn!("settings/user, settings/group: the router keeps its user; restart howdah to change it");
        }
    }

    /// Warns if several applications run and one of them has the router's user, once it does: a single application can
    /// harm only itself.
    fn log_shared_user(&mut self, active: &ActiveConfiguration, runtime: &Runtime) {
        let shares_user = |(_, id): &(&String, &u64)| {
            // No process of howdah runs the code of a FastCGI application.
            let runs_here = |generation: &&Generation| generation.as_fastcgi().is_none();
            let generation = runtime.generations.get(**id).filter(runs_here);
            generation.is_some_and(|generation| runtime.router.has_user_of(generation.account()))
        };
        let names = active.generations.iter().filter(shares_user).map(|(name, _)| format!("{name:?}"));
        let names: Vec<_> = names.filter(|_| active.generations.len() > 1).collect();
        let shared_before = std::mem::replace(&mut self.shares_router_user, !names.is_empty());
        if self.shares_router_user && !shared_before && self.has_users {
            tracing::warn!(
                "the router has the user of {}, whose code can stop it: run `adduser --system --group --no-create-home \
                 howdah` and restart howdah, which gives the router its own user (see docs/isolation.md); or set another \
                 \"user\"",
                names.join(", ")
            );
        }
    }
}

// === impl UserSettings ===

impl UserSettings {
    /// The user settings of a configuration.
    fn of(settings: &Settings) -> UserSettings {
        UserSettings { user: settings.user.clone(), group: settings.group.clone() }
    }
}
