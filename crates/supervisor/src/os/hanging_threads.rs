//! Threads that may wait for a file system that hangs, with a limit: such a thread exits when its file system answers, which may be
//! never.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Threads of one kind. While one hangs, the next work needs a thread of its own: their number has a limit.
#[derive(Debug)]
pub struct HangingThreads {
    /// The name of each thread.
    name: &'static str,
    /// By subject, such as an application. Each thread has a part of the count.
    running: BTreeMap<String, Arc<()>>,
}

/// How many threads may work for one subject. An option may lead to another file system meanwhile, so one that hangs is not the last.
const MAX_THREADS: usize = 4;

// === impl HangingThreads ===

impl HangingThreads {
    /// Without threads. Each new one gets this name.
    pub const fn new(name: &'static str) -> HangingThreads {
        HangingThreads { name, running: BTreeMap::new() }
    }

    /// Runs this on a thread. Returns `false` if too many former ones hang, or if there is no thread.
    pub fn start(&mut self, subject: &str, work: impl FnOnce() + Send + 'static) -> bool {
        self.running.retain(|_, running| Arc::strong_count(running) > 1);
        let running = self.running.entry(subject.to_owned()).or_default();
        if Arc::strong_count(running) > MAX_THREADS {
            return false;
        }
        let thread = Arc::clone(running);
        let work = move || {
            let _thread = thread;
            work();
        };
        std::thread::Builder::new().name(self.name.to_owned()).spawn(work).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    #[test]
    fn threads_that_hang_have_a_limit() {
        let mut threads = HangingThreads::new("hanging");
        let (release, hang) = channel::<()>();
        let hang = Arc::new(std::sync::Mutex::new(hang));
        let mut start = |subject: &str| {
            let hang = Arc::clone(&hang);
            threads.start(subject, move || {
                let _ = hang.lock().unwrap().recv();
            })
        };
        for _ in 0..MAX_THREADS {
            assert!(start("shop"));
        }
        assert!(!start("shop") && start("blog"), "each application for itself");
        drop(release);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !start("shop") {
            assert!(Instant::now() < deadline, "their file system answers again");
            std::thread::yield_now();
        }
    }
}
