//! The memory of large heads of responses: while they come from a worker, and, in HTTP/1 and FastCGI, while they wait for their clients.
//!
//! hyper writes a head as a whole into its buffer, and a client may read nothing: without a limit for all, two thousand
//! clients of a script that sends 880 KB of headers would take 2 GB. (HTTP/2 and HTTP/3 count theirs for each connection.)
//! A head takes no more than an eighth of what is free, so that one script leaves room for the heads of others.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of one head. Dropping it frees the memory.
#[derive(Debug)]
pub struct LargeHead {
    bytes: usize,
    all: &'static AtomicUsize,
}

/// The head must be dropped: its request is answered 502.
#[derive(Debug)]
pub struct NoRoom;

/// Heads up to this length are not counted.
pub const SMALL_HEAD: usize = 16 * 1024;
/// The most that all of them take together.
const MOST: usize = 256 * 1024 * 1024;
/// One takes this part of the free memory, at most.
const PART_OF_FREE: usize = 8;

static ALL: AtomicUsize = AtomicUsize::new(0);

// === impl LargeHead ===

impl LargeHead {
    /// Takes the memory of a head of this size, if it is large.
    ///
    /// # Errors
    /// When there is no room for it; the log has the reason.
    pub fn hold(bytes: usize) -> Result<Option<LargeHead>, NoRoom> {
        if bytes <= SMALL_HEAD {
            return Ok(None);
        }
        let mut head = LargeHead { bytes: 0, all: &ALL };
        head.grow_to(bytes)?;
        Ok(Some(head))
    }

    /// The head has become longer.
    ///
    /// # Errors
    /// When there is no room for it; the log has the reason.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if self.try_grow_to(bytes) {
            return Ok(());
        }
        tracing::warn!(
            bytes,
            "the heads of responses that clients do not read take all of their memory: answered 502; a script should send fewer headers"
        );
        Err(NoRoom)
    }

    fn try_grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        // It may be a little too much when several threads do this at once.
        let free = MOST.saturating_sub(self.all.load(Ordering::Relaxed));
        if more > free || bytes > (free + self.bytes) / PART_OF_FREE {
            return false;
        }
        self.all.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        true
    }
}

impl Drop for LargeHead {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_heads_of_one_script_leave_room_for_others() {
        static USED: AtomicUsize = AtomicUsize::new(0);
        let hold = |bytes| {
            let mut head = LargeHead { bytes: 0, all: &USED };
            head.try_grow_to(bytes).then_some(head)
        };
        let greedy: Vec<_> = (0..10_000).map_while(|_| hold(900_000)).collect();
        assert!((285..295).contains(&greedy.len()), "{}", greedy.len());
        let others: Vec<_> = (0..100).map_while(|_| hold(20_000)).collect();
        assert_eq!(others.len(), 100);
        let mut growing = hold(20_000).unwrap();
        assert!(growing.try_grow_to(400_000) && !growing.try_grow_to(900_000));
        drop((greedy, others, growing));
        assert_eq!(USED.load(Ordering::Relaxed), 0);
    }
}
