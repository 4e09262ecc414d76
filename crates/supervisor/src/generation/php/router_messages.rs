//! The messages that describe a generation to a router, with their descriptors: one for each pool, and one for each of its
//! workers.
//!
//! Only the kernel can fail, when there is no memory or no descriptor.

use super::worker_pool::WorkerPool;
use crate::os::files::memory_file::memory_file;
use crate::plan::php::application::PhpPlan;
use howdah_protocol::messages::router::{GenerationBoot, ToRouter};
use std::io;
use std::os::fd::OwnedFd;

/// The messages for these pools, of which the first has the number of the generation. `bells` are the eventfds of the
/// router's threads, which all pools share.
pub fn describe(plan: &PhpPlan, pools: &[WorkerPool], bells: &[OwnedFd]) -> io::Result<Vec<(ToRouter, Vec<OwnedFd>)>> {
    let numbers: Vec<_> = pools.iter().map(|pool| pool.id).collect();
    // In a file, because the paths may be long.
    let paths = serde_json::to_vec(&plan.release.paths)?;
    let mut messages = Vec::new();
    // The first pool is last: its message names the others.
    for (index, (pool, of_pool)) in pools.iter().zip(&plan.pools).enumerate().rev() {
        let [_, log] = plan.outputs.files()?;
        let boot = GenerationBoot {
            id: pool.id,
            pool_of: numbers.first().copied().filter(|_| index > 0),
            pools: if index == 0 { numbers[1..].to_vec() } else { Vec::new() },
            application: plan.name.clone(),
            geometry: pool.workers.control.geometry(),
            spare_workers: of_pool.policy.spare().map(|spare| spare as u32),
            timeout_ms: plan.limits.timeout.map(|timeout| timeout.as_millis() as u64),
            queue_timeout_ms: plan.limits.queue_timeout.as_millis() as u64,
            server_software: plan.environment.variables.get("SERVER_SOFTWARE").cloned(),
            has_log: log.is_some(),
        };
        let mut descriptors = vec![pool.workers.control.memfd().try_clone_to_owned()?, memory_file(&paths)?];
        descriptors.extend(clones(bells)?);
        descriptors.extend(log.map(OwnedFd::from));
        messages.push((ToRouter::AddGeneration(boot), descriptors));
        let started = |worker| (ToRouter::WorkerStarted { generation: pool.id, worker }, Vec::new());
        messages.extend(pool.workers.ids().map(started));
    }
    Ok(messages)
}

/// Descriptors of the same eventfds, for another process.
pub fn clones(bells: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
    bells.iter().map(OwnedFd::try_clone).collect()
}
