//! The shutdown, in stages: the router finishes its requests, the workers exit, then everything that is left is killed.
//!
//! A stage that takes too long ends with the kill of what it waits for.

use crate::control::changes::Changes;
use crate::control::runtime::Runtime;
use crate::control::stage::Stage;
use howdah_protocol::messages::router::ToRouter;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long requests may take to finish.
const DRAIN_GRACE: Duration = Duration::from_secs(30);
/// How long workers may take to exit when there are no requests any more.
const WORKER_GRACE: Duration = Duration::from_secs(10);
/// How long the kernel may take to end what was killed.
const KILL_GRACE: Duration = Duration::from_secs(3);

/// Finishes the requests in progress, then shuts down. Before howdah serves, and when requested twice, shuts down at once.
pub fn drain(changes: &mut Changes, runtime: &mut Runtime, now: Instant) {
    if !matches!(runtime.stage, Stage::Serving) {
        return quit(changes, runtime, now);
    }
    tracing::info!("shutting down; draining requests for up to {} s", DRAIN_GRACE.as_secs());
    runtime.stage = Stage::Draining(now + DRAIN_GRACE);
    // A change that the router switches to already is finished.
    changes.fail_unswitched("howdah is shutting down", runtime, now);
    runtime.router.cancel_start();
    runtime.exporter.drain();
    runtime.acme.stop(&mut runtime.certificates, now);
    runtime.listeners.block_new_connections(&[]);
    runtime.listeners.close();
    if runtime.router.is_running() {
        runtime.router.send(ToRouter::Drain, Vec::new());
    } else {
        router_drained(changes, runtime, now);
    }
}

/// The router is gone, and with it all requests: the workers are asked to exit.
pub fn router_drained(changes: &mut Changes, runtime: &mut Runtime, now: Instant) {
    if matches!(runtime.stage, Stage::Draining(_)) {
        runtime.stage = Stage::Stopping(now + WORKER_GRACE);
        changes.finish_switch();
        runtime.exporter.finish(now);
        runtime.generations.stop_all_but(&BTreeSet::new(), now);
    }
}

/// Kills everything.
pub fn quit(changes: &mut Changes, runtime: &mut Runtime, now: Instant) {
    if matches!(runtime.stage, Stage::Killing(_)) {
        return;
    }
    runtime.stage = Stage::Killing(now + KILL_GRACE);
    changes.finish_switch();
    runtime.router.cancel_start();
    runtime.exporter.stop();
    runtime.acme.kill(&mut runtime.certificates);
    runtime.listeners.close();
    runtime.router.kill();
    runtime.generations.kill_all();
}

/// Goes on to the next stage if one has taken too long.
pub fn on_time(changes: &mut Changes, runtime: &mut Runtime, now: Instant) {
    match runtime.stage {
        Stage::Draining(until) if until <= now => {
            tracing::warn!("requests did not finish in {} seconds; they are cut off", DRAIN_GRACE.as_secs());
            runtime.stage = Stage::Draining(now + KILL_GRACE);
            if runtime.router.is_running() {
                runtime.router.kill();
            } else {
                router_drained(changes, runtime, now);
            }
        }
        Stage::Stopping(until) if until <= now => {
            tracing::warn!("workers did not exit in {} seconds; killing them", WORKER_GRACE.as_secs());
            quit(changes, runtime, now);
        }
        _ => {}
    }
}

/// Whether the shutdown has ended all processes.
pub fn is_over(runtime: &Runtime) -> bool {
    matches!(runtime.stage, Stage::Stopping(_) | Stage::Killing(_))
        && !runtime.router.is_running()
        && !runtime.exporter.is_running()
        && !runtime.acme.is_running()
        && runtime.generations.are_over()
}
