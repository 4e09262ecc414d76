//! The end of the process when howdah shuts down: orders under way have no result, but their records leave the DNS.

use super::{AcmeControl, store_again};
use crate::control::processes::acme::on_demand::OnDemandNames;
use crate::store::certificates::Certificates;
use howdah_protocol::messages::acme::ToAcme;
use std::time::{Duration, Instant};

/// How long the commands may take to remove the records. Docker kills ten seconds after SIGTERM.
const REMOVAL_GRACE: Duration = Duration::from_secs(8);

// === impl AcmeControl ===

impl AcmeControl {
    /// Ends the process, because howdah shuts down. It removes the records of its orders before, if they have some.
    pub fn stop(&mut self, certificates: &mut Certificates, now: Instant) {
        self.forget_all(certificates);
        for removal in self.records.take_due(None) {
            self.send(ToAcme::RemoveRecord(Box::new(removal)), now);
        }
        match &mut self.process {
            Some(process) if !self.records.is_empty() => {
                process.send(ToAcme::Stop);
                self.stop_by = Some(now + REMOVAL_GRACE);
                self.wake_at = self.stop_by;
            }
            _ => self.kill(certificates),
        }
    }

    /// Kills the process, because howdah exits at once.
    pub fn kill(&mut self, certificates: &mut Certificates) {
        self.forget_all(certificates);
        self.kill_process();
        self.records.give_up();
    }

    /// Whether the process still runs.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills the process if its records are not removed in time.
    pub(super) fn stop_on_time(&mut self, certificates: &mut Certificates, now: Instant) {
        self.wake_at = self.stop_by;
        if self.stop_by.is_some_and(|by| by <= now) {
            tracing::warn!("records were not removed from the DNS in {} seconds", REMOVAL_GRACE.as_secs());
            self.kill(certificates);
        }
    }

    fn forget_all(&mut self, certificates: &mut Certificates) {
        if self.store_at.take().is_some() {
            store_again(certificates);
        }
        self.domains.clear();
        self.on_demand = OnDemandNames::new();
        self.answers.clear();
        self.idle_since = None;
        self.wake_at = None;
        self.stop_by = None;
    }
}
