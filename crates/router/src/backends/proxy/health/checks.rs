//! The checks of a configuration's servers, each a task of one thread.

use crate::backends::proxy::health::check::CheckedServer;
use crate::backends::proxy::health::states::HealthStates;
use crate::backends::proxy::tls::TlsBySettings;
use crate::backends::proxy::tls::handshake::ServerTls;
use crate::report::spawn_essential;
use howdah_config::Configuration;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::task::AbortHandle;

/// The checks that run on a thread.
#[derive(Default)]
pub struct HealthChecks {
    running: RefCell<Vec<RunningCheck>>,
}

struct RunningCheck {
    server: Rc<CheckedServer>,
    task: AbortHandle,
}

// === impl HealthChecks ===

impl HealthChecks {
    /// Checks the servers of this configuration. A check that it has, too, goes on.
    pub fn update(&self, configuration: &Configuration, states: &HealthStates, tls: &TlsBySettings) {
        let mut before = self.running.take();
        let mut running = Vec::new();
        for (name, upstream) in &configuration.upstreams {
            let Some(check) = &upstream.health_check else { continue };
            for server in upstream.servers.iter().filter(|server| server.weight > 0.0) {
                let server = CheckedServer {
                    endpoint: server.endpoint.clone(),
                    tls: ServerTls::of(&server.endpoint, &upstream.proxy, tls.of(&upstream.proxy)),
                    check: check.clone(),
                    health: states.of(name, &server.endpoint),
                };
                running.push(match before.iter().position(|known| *known.server == server) {
                    Some(index) => before.swap_remove(index),
                    None => RunningCheck::start(server),
                });
            }
        }
        self.running.replace(running);
    }

    /// Ends all checks.
    pub fn stop(&self) {
        self.running.take();
    }
}

// === impl RunningCheck ===

impl RunningCheck {
    fn start(server: CheckedServer) -> RunningCheck {
        let server = Rc::new(server);
        let checked = Rc::clone(&server);
        RunningCheck { server, task: spawn_essential(async move { checked.run().await }).abort_handle() }
    }
}

impl Drop for RunningCheck {
    fn drop(&mut self) {
        self.task.abort();
    }
}
