//! The processes and sockets that run, and what the router must know of them.

use crate::control::active::ActiveConfiguration;
use crate::control::processes::acme::AcmeControl;
use crate::control::processes::exporter::ExporterHandle;
use crate::control::processes::hand_over::{HandOver, Known};
use crate::control::processes::router::RouterHandle;
use crate::control::stage::Stage;
use crate::generation::generations::Generations;
use crate::os::files::memory_file::memory_file;
use crate::os::listen::Listeners;
use crate::store::certificates::{self, Certificates};
use howdah_config::Configuration;
use howdah_protocol::messages::router::ToRouter;
use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

/// The processes and sockets.
#[derive(Debug)]
pub struct Runtime {
    /// Where the supervisor is in its life.
    pub stage: Stage,
    /// All generations.
    pub generations: Generations,
    /// The router.
    pub router: RouterHandle,
    /// The process of the metrics listener.
    pub exporter: ExporterHandle,
    /// The listening sockets of the applications.
    pub listeners: Listeners,
    /// The certificates that the router serves.
    pub certificates: Certificates,
    /// How howdah obtains certificates by itself.
    pub acme: AcmeControl,
}

// === impl Runtime ===

impl Runtime {
    /// Starts a router with this configuration.
    ///
    /// # Errors
    /// When that fails. There is no router then.
    pub fn start_router(&mut self, active: &ActiveConfiguration, now: Instant) -> io::Result<()> {
        self.router.add_names(names(&active.configuration));
        let mut hand_over = self.hand_over(Known::default(), active)?;
        hand_over.messages.extend(self.acme.answers().for_new_router());
        hand_over.messages.extend(self.acme.on_demand_for_new_router(&self.certificates));
        self.router.start(hand_over, now)
    }

    /// Sends the router, if there is one, this configuration and what of it the router does not know yet.
    ///
    /// # Errors
    /// When that cannot be sent: the router goes on as before, or is about to be replaced.
    pub fn configure_router(&mut self, active: &ActiveConfiguration) -> io::Result<()> {
        if !self.router.is_running() {
            return Ok(());
        }
        self.router.add_names(names(&active.configuration));
        let hand_over = self.hand_over(self.router.known(), active)?;
        self.router.configure(hand_over)
    }

    /// Sends the router, if there is one, the certificates of this configuration, which it serves already.
    ///
    /// # Errors
    /// When that cannot be sent: the router goes on with the former ones.
    pub fn send_certificates(&mut self, active: &ActiveConfiguration) -> io::Result<()> {
        if self.router.is_running() {
            let certificates = self.certificates.for_router(certificates::used(&active.configuration));
            self.router.send(ToRouter::ReplaceCertificates, vec![memory_file(certificates.as_bytes())?]);
        }
        Ok(())
    }

    /// Has the router warm up these generations, which no configuration names yet. While howdah boots there is no router
    /// yet; one is started for it.
    ///
    /// # Errors
    /// When that cannot be sent.
    pub fn order_warm_up(&mut self, generations: &BTreeSet<u64>, now: Instant) -> io::Result<()> {
        let mut hand_over = HandOver::to(self.router.known());
        for generation in self.generations.iter().filter(|generation| generations.contains(&generation.id())) {
            hand_over.add_warm_up(generation)?;
        }
        if !self.router.is_running() && matches!(self.stage, Stage::Booting) {
            return self.router.start_for_warm_up(hand_over, now);
        }
        self.router.hand_over(hand_over)
    }

    /// Whether there is a router for a warm-up, or one can be started for it.
    pub fn can_warm_up(&self) -> bool {
        self.router.is_running() || matches!(self.stage, Stage::Booting)
    }

    /// Kills the generations that a failed change had started.
    pub fn discard(&mut self, started: &[u64]) {
        for generation in self.generations.iter_mut().filter(|generation| started.contains(&generation.id())) {
            generation.kill();
            self.router.send(ToRouter::DropGeneration { generation: generation.id() }, Vec::new());
        }
    }

    fn hand_over(&self, known: Known, active: &ActiveConfiguration) -> io::Result<HandOver> {
        let mut hand_over = HandOver::to(known);
        hand_over.add_configuration(active, &self.generations, &self.listeners, &self.certificates)?;
        Ok(hand_over)
    }
}

/// The names that the router counts with.
fn names(configuration: &Configuration) -> impl Iterator<Item = &str> {
    let steps = configuration.routes.iter().flat_map(|(_, route)| route.steps());
    configuration.applications.keys().map(String::as_str).chain(steps.map(|step| step.path.as_str()))
}
