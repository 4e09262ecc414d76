//! The processors.

use std::sync::LazyLock;
use std::thread::available_parallelism;

static PROCESSORS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// The number of processors that howdah may use: its affinity and its control group count.
pub fn processors() -> usize {
    *PROCESSORS
}
