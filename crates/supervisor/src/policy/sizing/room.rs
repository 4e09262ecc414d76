//! How many workers the memory has room for.
//!
//! New workers will use more memory later, and workers that leave still use theirs: both are counted.

use super::sample::{Memory, Sample};

/// The room at the last measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Up to this number of workers may be started; `None` if the memory was never measured.
    pub allows: Option<usize>,
    /// Workers beyond this number are retired.
    pub keeps: Option<usize>,
}

// === impl Room ===

impl Room {
    /// Records a measurement. The workers may use `bound` bytes together.
    pub fn record(&mut self, memory: Memory, sample: &Sample, bound: Option<u64>) {
        let all = sample.demand.all + sample.leaving;
        // It is not known how much of their memory the young workers use already: to start more workers, they count as
        // if they used nothing; to keep them, as if they used all of it.
        self.allows = Some(room_for(memory.room_for_more, memory.worker, all.saturating_sub(sample.young), bound));
        self.keeps = Some(room_for(memory.room, memory.worker, all, bound));
    }
}

/// How many workers of this size there is room for, beside `settled` workers that use all that they will. At least one,
/// or no request would ever be answered.
fn room_for(room: i64, worker: u64, settled: usize, bound: Option<u64>) -> usize {
    let worker = i64::try_from(worker.max(1)).unwrap_or(i64::MAX);
    let by_room = (settled as i64).saturating_add(room.div_euclid(worker)).max(1) as usize;
    let by_bound = bound.map_or(usize::MAX, |bound| (bound / worker as u64) as usize);
    by_room.min(by_bound).max(1)
}
