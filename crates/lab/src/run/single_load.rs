//! One load on a server that runs already, without a lab: its outcomes and times.

use super::race::{self, Means, Position, Target};
use crate::load::connection::Endpoint;
use crate::plan::LoadPlan;
use crate::results::Run;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The name of the server in the result.
const NAME: &str = "server";

/// Sends a load and waits for all outcomes. `host` is the value of `Host`.
///
/// # Errors
/// The load generator cannot work: the kernel gives it no descriptors or not its cores.
pub fn run(
    endpoint: &Endpoint,
    host: &str,
    load: &LoadPlan,
    means: &Means,
    interrupted: &AtomicBool,
) -> Result<Run, String> {
    super::machine::raise_open_files();
    let target = Target { stack: NAME, endpoint, host, roots: &[], roles: &[] };
    let position = Position { round: 1, position: 1, started_after: Duration::ZERO };
    race::run(&target, load, means, position, interrupted, &mut |_| {}).map(|measured| measured.run)
}
