//! The disk of request bodies: all together leave a part of their file system free, but no more than half of the space that
//! they find.
//!
//! Beyond that, the bodies give way that have held the most bytes for the longest time (bytes × seconds). A client that keeps
//! many large bodies open, with a byte now and then, loses them to others, which send theirs and are gone. A single body has no
//! other limit. A complete body counts until its file is closed; while its request waits for a worker, it may have to give way,
//! and not while a worker has it. A request that its worker refuses waits again.
//!
//! A body that gives way ends with 503, on its own event loop: until then its bytes count as free.

use crate::report::Throttle;
use crate::resources::disk_space::{DiskSpace, is_time_to_look};
use crate::response::failure::Failure;
use rustix::fs::fstat;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::select;
use tokio::sync::Notify;
use tokio::task::yield_now;

/// The disk that a body takes until its files are closed.
#[derive(Debug)]
pub struct BodyOnDisk {
    all: &'static AllOnDisk,
    /// The setting of its folder.
    setting: &'static str,
    /// Its number and its bytes, if it has a file.
    joined: Option<(u64, Arc<Held>)>,
    /// Whether bodies have to give way to this one.
    needs_room: bool,
}

/// For the request of a body, which waits for a worker: whether the body has to give way.
#[derive(Clone)]
pub struct DiskNotice {
    setting: &'static str,
    /// `None` for a body without a file, which takes no disk.
    held: Option<Arc<Held>>,
}

/// All bodies with a file.
#[derive(Debug, Default)]
struct AllOnDisk {
    held: Mutex<BTreeMap<u64, Arc<Held>>>,
    next_number: AtomicU64,
    /// By all of them, in bytes: the free space is looked at when these have grown.
    written: AtomicU64,
}

/// The bytes of one body.
#[derive(Debug)]
struct Held {
    device: u64,
    since: Instant,
    bytes: AtomicU64,
    /// The least that each of its files counts.
    of_a_file: u64,
    gives_way: AtomicBool,
    /// A worker has it: it stays, unless the worker refuses it.
    is_used: AtomicBool,
    /// Wakes the task that reads the body, or waits for a worker. Also when its files are closed.
    wake: Notify,
}

/// The answer to the request of a body that gives way.
const GIVES_WAY: Failure = Failure::Unavailable { retry_after: 10 };

static ALL: LazyLock<AllOnDisk> = LazyLock::new(AllOnDisk::default);
static GAVE_WAY: LazyLock<Throttle> = LazyLock::new(|| Throttle::new(Duration::from_secs(60)));

// === impl BodyOnDisk ===

impl BodyOnDisk {
    /// A body without a file. The setting names the folder of its files.
    pub fn new(setting: &'static str) -> BodyOnDisk {
        BodyOnDisk::among(&ALL, setting)
    }

    fn among(all: &'static AllOnDisk, setting: &'static str) -> BodyOnDisk {
        BodyOnDisk { all, setting, joined: None, needs_room: false }
    }

    /// Counts a new file of the body, and makes room if there is little.
    pub fn add_file(&mut self, file: &File) {
        let all = self.all;
        let space = self.joined.is_none().then(|| DiskSpace::of(file)).flatten();
        let (number, held) =
            self.joined.get_or_insert_with(|| all.join(file, space.map_or(0, |space| space.of_a_file)));
        let bytes = held.of_a_file;
        if let Some(space) = space {
            self.needs_room = all.make_room(space, *number, Instant::now());
        }
        self.count(file, bytes);
    }

    /// Counts bytes that are written to this file of the body, and makes room if there is little.
    pub fn count(&mut self, file: &File, bytes: u64) {
        let Some((number, held)) = &self.joined else { return };
        held.bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = self.all.written.fetch_add(bytes, Ordering::Relaxed);
        if is_time_to_look(before, before + bytes)
            && let Some(space) = DiskSpace::of(file)
        {
            self.needs_room = self.all.make_room(space, *number, Instant::now());
        }
    }

    /// Waits for the next part of the body.
    ///
    /// # Errors
    /// 503 when the body has to give way to others.
    pub async fn next<T>(&mut self, part: impl Future<Output = T>) -> Result<T, Failure> {
        if std::mem::take(&mut self.needs_room) {
            // Bodies of this event loop end before this one grows.
            yield_now().await;
        }
        self.notice().unless_it_gives_way(part).await
    }

    /// For its request, which waits for a worker.
    pub fn notice(&self) -> DiskNotice {
        DiskNotice { setting: self.setting, held: self.joined.as_ref().map(|(_, held)| Arc::clone(held)) }
    }
}

impl Drop for BodyOnDisk {
    fn drop(&mut self) {
        if let Some((number, held)) = &self.joined {
            self.all.held().remove(number);
            held.wake.notify_one();
        }
    }
}

// === impl DiskNotice ===

impl DiskNotice {
    /// Of a request without a body on the disk.
    pub const NONE: DiskNotice = DiskNotice { setting: "", held: None };

    /// Waits for something. From now on, the body may have to give way, also if a worker has had it.
    ///
    /// # Errors
    /// 503 when the body has to give way to others before.
    pub async fn unless_it_gives_way<T>(&self, something: impl Future<Output = T>) -> Result<T, Failure> {
        let Some(held) = &self.held else { return Ok(something.await) };
        held.is_used.store(false, Ordering::Relaxed);
        select! {
            biased;
            () = held.wake.notified() => {
                self.log();
                Err(GIVES_WAY)
            }
            something = something => Ok(something),
        }
    }

    /// Waits until the files of the body are closed (`None`), or it has to give way: the failure of its request.
    pub async fn gives_way_or_ends(&self) -> Option<Failure> {
        let held = self.held.as_ref()?;
        held.wake.notified().await;
        let gives_way = held.gives_way.load(Ordering::Relaxed);
        gives_way.then_some(GIVES_WAY)
    }

    /// A worker has the request: the body does not give way until it waits again.
    pub fn keep(&self) {
        if let Some(held) = &self.held {
            held.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Logs that the request of the body is answered 503.
    pub fn log(&self) {
        if let Some(held) = &self.held
            && GAVE_WAY.is_due()
        {
            let (setting, bytes, seconds) = (self.setting, held.bytes(), held.since.elapsed().as_secs());
            tracing::error!(
                bytes,
                seconds,
                "the disk of temporary files is nearly full: answering 503 to the requests whose unfinished or waiting \
                 bodies take the most for longest; free some space, or choose a larger disk: see {setting}"
            );
        }
    }
}

// === impl AllOnDisk ===

impl AllOnDisk {
    fn join(&self, file: &File, of_a_file: u64) -> (u64, Arc<Held>) {
        self.add(Held {
            device: fstat(file).map_or(0, |stat| stat.st_dev),
            since: Instant::now(),
            bytes: AtomicU64::new(0),
            of_a_file,
            gives_way: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            wake: Notify::new(),
        })
    }

    fn add(&self, held: Held) -> (u64, Arc<Held>) {
        let (number, held) = (self.next_number.fetch_add(1, Ordering::Relaxed), Arc::new(held));
        self.held().insert(number, Arc::clone(&held));
        (number, held)
    }

    /// Has bodies give way if there is too little space for the one with this number, and returns whether there is.
    fn make_room(&self, space: DiskSpace, number: u64, now: Instant) -> bool {
        if space.free >= space.left_free() {
            return false;
        }
        let all = self.held();
        let Some(device) = all.get(&number).map(|held| held.device) else { return false };
        let may_give_way = |held: &&Arc<Held>| held.device == device && !held.is_used.load(Ordering::Relaxed);
        let mut held: Vec<_> = all.values().filter(may_give_way).collect();
        let found = space.free + held.iter().map(|held| held.bytes()).sum::<u64>();
        let missing = space.left_free().min(found / 2).saturating_sub(space.free);
        if missing == 0 {
            return false;
        }
        held.sort_by_cached_key(|held| (!held.gives_way.load(Ordering::Relaxed), Reverse(held.weight(now))));
        let mut freed = 0;
        for held in held {
            if freed >= missing {
                break;
            }
            held.give_way();
            freed += held.bytes();
        }
        true
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Held>>> {
        // The map is complete at any time.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Held ===

impl Held {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How much of the disk it has held for how long.
    fn weight(&self, now: Instant) -> u128 {
        u128::from(self.bytes()) * now.saturating_duration_since(self.since).as_micros()
    }

    fn give_way(&self) {
        if !self.gives_way.swap(true, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 192 * MIB;
    /// A file system of which a mebibyte is taken that should be free.
    const FULL: DiskSpace = DiskSpace { free: 11 * MIB, all: SIZE, of_a_file: 4096 };

    fn all() -> &'static AllOnDisk {
        Box::leak(Box::default())
    }

    /// A body that has held these bytes for this time.
    fn body(all: &'static AllOnDisk, bytes: u64, seconds: u64) -> BodyOnDisk {
        body_on(7, all, bytes, seconds)
    }

    fn body_on(device: u64, all: &'static AllOnDisk, bytes: u64, seconds: u64) -> BodyOnDisk {
        let since = Instant::now() - Duration::from_secs(seconds);
        let held = Held {
            device,
            since,
            bytes: bytes.into(),
            of_a_file: FULL.of_a_file,
            gives_way: false.into(),
            is_used: false.into(),
            wake: Notify::new(),
        };
        BodyOnDisk { joined: Some(all.add(held)), ..BodyOnDisk::among(all, "a setting") }
    }

    fn number(body: &BodyOnDisk) -> u64 {
        body.joined.as_ref().unwrap().0
    }

    fn gives_way(body: &BodyOnDisk) -> bool {
        body.joined.as_ref().unwrap().1.gives_way.load(Ordering::Relaxed)
    }

    /// Which of these bodies give way when the last one grows.
    fn give_way(space: DiskSpace, bodies: &[(u64, u64)]) -> Vec<usize> {
        let all = all();
        let bodies: Vec<_> = bodies.iter().map(|(bytes, seconds)| body(all, *bytes, *seconds)).collect();
        all.make_room(space, number(bodies.last().unwrap()), Instant::now());
        (0..bodies.len()).filter(|n| gives_way(&bodies[*n])).collect()
    }

    #[test]
    fn the_body_gives_way_that_has_held_the_most_for_longest() {
        let upload = (5 * MIB, 5);
        // The free space, the bodies, of which the last one grows, and the ones that give way.
        let table: [(_, &[_], &[_]); 13] = [
            (12 * MIB, &[(90 * MIB, 900), (90 * MIB, 900)], &[]),
            (11 * MIB, &[(8 * MIB, 3), (8 * MIB, 4), upload], &[1]),
            (11 * MIB, &[(8 * MIB, 5), (2 * MIB, 5), upload], &[0]),
            (11 * MIB, &[(20 * MIB, 2), upload], &[0]),
            (11 * MIB, &[(2 * MIB, 20), (2 * MIB, 30), (20 * MIB, 1), upload], &[1]),
            (6 * MIB, &[(2 * MIB, 20), (2 * MIB, 30), (2 * MIB, 40), (2 * MIB, 50), upload], &[2, 3]),
            (6 * MIB, &[(1, 3), (8 * MIB, 30), upload], &[1]),
            // The one that grows has the most itself.
            (11 * MIB, &[(8 * MIB, 1), (90 * MIB, 9)], &[1]),
            (0, &[(180 * MIB, 90)], &[0]),
            // Something else has the disk, of which they find 11, 10 and 0 MiB.
            (6 * MIB, &[upload], &[]),
            (5 * MIB, &[(MIB, 90), (MIB, 80), (3 * MIB, 5)], &[]),
            (4 * MIB, &[(MIB, 90), (MIB, 10), (4 * MIB, 5)], &[0]),
            (0, &[(0, 5)], &[]),
        ];
        for (free, bodies, expected) in table {
            assert_eq!(give_way(DiskSpace { free, ..FULL }, bodies), expected, "{free}, {bodies:?}");
        }
    }

    #[test]
    fn bodies_that_are_about_to_end_count_as_free() {
        let all = all();
        let mut bodies: Vec<_> = (0..3).map(|n| body(all, 8 * MIB, 10 - n)).collect();
        for _ in 0..3 {
            all.make_room(FULL, number(&bodies[2]), Instant::now());
            assert_eq!(bodies.iter().filter(|body| gives_way(body)).count(), 1);
        }
        bodies.remove(0);
        all.make_room(FULL, number(&bodies[1]), Instant::now());
        assert!(gives_way(&bodies[0]) && !gives_way(&bodies[1]), "the first one has ended, and it was not enough");
    }

    #[test]
    fn bodies_on_other_disks_stay() {
        let all = all();
        let bodies = [body_on(8, all, 90 * MIB, 99), body(all, 18 * MIB, 9), body(all, MIB, 1)];
        all.make_room(FULL, number(&bodies[2]), Instant::now());
        assert_eq!(bodies.each_ref().map(gives_way), [false, true, false]);
    }

    #[test]
    fn a_body_that_a_worker_has_stays() {
        let all = all();
        let bodies: Vec<_> = (0..3).map(|n| body(all, 8 * MIB, 10 - n)).collect();
        bodies[0].notice().keep();
        all.make_room(FULL, number(&bodies[2]), Instant::now());
        assert_eq!(bodies.iter().map(gives_way).collect::<Vec<_>>(), [false, true, false]);
    }

    #[tokio::test]
    async fn a_body_that_a_worker_refuses_gives_way_as_others_do() {
        let all = all();
        let (refused, small) = (body(all, 16 * MIB, 9), body(all, MIB, 1));
        let notice = refused.notice();
        for _ in 0..2 {
            notice.keep();
            all.make_room(FULL, number(&small), Instant::now());
            assert!(!gives_way(&refused), "a worker has it");
            assert_eq!(notice.unless_it_gives_way(async { 7 }).await, Ok(7));
        }
        all.make_room(FULL, number(&small), Instant::now());
        // It was chosen while a worker took it.
        notice.keep();
        assert_eq!(notice.unless_it_gives_way(async { 7 }).await, Err(GIVES_WAY));
    }

    #[test]
    fn a_file_counts_more_than_its_bytes() {
        let all = all();
        let file = tempfile::tempfile().unwrap();
        let mut body = BodyOnDisk::among(all, "a setting");
        (0..10).for_each(|_| body.add_file(&file));
        body.count(&file, 1);
        let bytes = body.joined.as_ref().unwrap().1.bytes();
        assert!(bytes > 10 * 4096, "{bytes}");
    }

    #[tokio::test]
    async fn a_request_that_waits_learns_that_its_body_gives_way_or_is_read() {
        let all = all();
        let (large, small) = (body(all, 8 * MIB, 9), body(all, 8 * MIB, 1));
        let (of_large, of_small) = (large.notice(), small.notice());
        all.make_room(FULL, number(&small), Instant::now());
        assert_eq!(of_large.gives_way_or_ends().await, Some(GIVES_WAY));
        drop(small);
        assert_eq!(of_small.gives_way_or_ends().await, None);
        assert_eq!(DiskNotice::NONE.gives_way_or_ends().await, None);
    }

    #[tokio::test]
    async fn a_body_ends_when_it_gives_way() {
        let all = all();
        let mut body = body(all, 8 * MIB, 9);
        assert_eq!(body.next(async { 7 }).await, Ok(7));
        all.make_room(DiskSpace { free: 0, ..FULL }, number(&body), Instant::now());
        assert_eq!(body.next(async { 7 }).await, Err(GIVES_WAY));
        drop(body);
        assert!(all.held().is_empty());
    }
}
