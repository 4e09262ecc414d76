//! How large this worker has become, and by which requests.
//!
//! What a worker shares with nobody is looked at after each 15th and 16th short request, and after each long one: the
//! difference between two looks with one request in between is that request's doing. From these the rest is inferred.
//! A look is one system call, on a descriptor that is kept; without /proc nothing is known, and nothing said.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A worker's size, from its birth on.
#[derive(Debug)]
pub struct Growth {
    statm: Option<File>,
    /// Bytes of a page.
    page: u64,
    history: History,
}

/// What the looks have shown. Pure.
#[derive(Debug, Default)]
struct History {
    /// Bytes at birth, and at the last look.
    born: u64,
    now: u64,
    /// Requests, all of them.
    requests: u64,
    /// Requests since the last look, and for how long they ran.
    unseen: u32,
    busy: Duration,
    paths: Table,
    scripts: Table,
    /// The growth that is told next, in bytes.
    tell_at: u64,
}

/// Requests by name. It has few rows: those that grew least, and then were asked for least, make room.
#[derive(Debug, Default)]
struct Table {
    rows: Vec<Row>,
    /// Where the last request was entered.
    last: usize,
}

#[derive(Debug)]
struct Row {
    hash: u64,
    name: Box<[u8]>,
    requests: u64,
    /// Bytes that were seen to be this one's doing.
    grew: i64,
}

/// Short requests are looked at twice in so many.
const ROUND: u64 = 16;
/// A request, or several, that ran for so long are looked at at once: a look takes less than one in a hundred of it.
const LONG: Duration = Duration::from_micros(200);
/// A growth that an operator hears of, and then again when it has doubled.
const FIRST_TOLD: u64 = 32 << 20;
/// A growth that is not worth a word when a worker ends.
const LITTLE: u64 = 8 << 20;
const ROWS: usize = 32;
/// The longest part of a name that is kept, in bytes.
const NAME: usize = 200;

// === impl Growth ===

impl Growth {
    /// Looks for the first time.
    pub fn begin() -> Growth {
        let page = rustix::param::page_size() as u64;
        let mut growth = Growth { statm: File::open("/proc/self/statm").ok(), page, history: History::default() };
        let born = growth.look().unwrap_or(0);
        growth.history = History { born, now: born, tell_at: FIRST_TOLD, ..History::default() };
        growth
    }

    /// How much larger it was at the last look than at its birth, in bytes. What the prototype left to it is not counted:
    /// the worker shares it with the others until it writes there.
    pub fn grown(&self) -> u64 {
        self.history.grown()
    }

    /// A request of this path and script has ended, which began then. `true` after a look.
    pub fn after(&mut self, path: &[u8], script: &[u8], began: Duration, now: Duration) -> bool {
        if !self.history.enter(path, script, now.saturating_sub(began)) {
            return false;
        }
        let Some(private_bytes) = self.look() else { return false };
        self.history.look(private_bytes);
        true
    }

    /// What there is to tell of a worker that goes on.
    pub fn news(&mut self) -> Option<String> {
        self.history.news()
    }

    /// What there is to tell of a worker that ends; `always`, or if it has grown by more than a little.
    pub fn summary(&mut self, always: bool) -> Option<String> {
        if let Some(private_bytes) = self.look() {
            self.history.now = private_bytes;
        }
        (always || self.history.grown() >= LITTLE).then(|| self.history.describe())
    }

    /// Resident memory that is neither of a file nor shared.
    fn look(&self) -> Option<u64> {
        let mut text = [0; 128];
        let len = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
        let mut fields = std::str::from_utf8(&text[..len]).ok()?.split(' ').skip(1).map(str::parse::<u64>);
        let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
        Some(resident.saturating_sub(shared) * self.page)
    }
}

// === impl History ===

impl History {
    /// Enters a request; `true` if it is time for a look.
    fn enter(&mut self, path: &[u8], script: &[u8], ran: Duration) -> bool {
        self.requests += 1;
        self.unseen += 1;
        self.busy += ran;
        self.paths.enter(path);
        self.scripts.enter(script);
        // What came before a long request was short, and has not touched much memory.
        if ran >= LONG {
            self.unseen = 1;
        }
        self.busy >= LONG || self.requests.is_multiple_of(ROUND) || (self.requests + 1).is_multiple_of(ROUND)
    }

    fn look(&mut self, private_bytes: u64) {
        if self.unseen == 1 {
            let grew = private_bytes as i64 - self.now as i64;
            self.paths.grew(grew);
            self.scripts.grew(grew);
        }
        self.now = private_bytes;
        self.unseen = 0;
        self.busy = Duration::ZERO;
    }

    fn grown(&self) -> u64 {
        self.now.saturating_sub(self.born)
    }

    fn news(&mut self) -> Option<String> {
        if self.grown() < self.tell_at {
            return None;
        }
        self.tell_at = self.grown().next_power_of_two().max(2 * self.tell_at);
        Some(self.describe())
    }

    fn describe(&self) -> String {
        let mut text = format!("grew {} in {} requests", bytes(self.grown()), thousands(self.requests));
        if let Some((row, part)) = self.paths.most().or_else(|| self.scripts.most()) {
            let name = String::from_utf8_lossy(&row.name);
            let grew = bytes((self.grown() as f64 * part) as u64);
            let requests = thousands(row.requests);
            text.push_str(&format!(", most of it ({grew}) in {requests} requests of {}", name.escape_debug()));
        }
        text
    }
}

// === impl Table ===

impl Table {
    fn enter(&mut self, name: &[u8]) {
        let name = &name[..name.len().min(NAME)];
        let hash = fnv(name);
        // A name that only looks like another one is counted with it: nobody is harmed.
        self.last = self.rows.iter().position(|row| row.hash == hash).unwrap_or_else(|| {
            let place = if self.rows.len() < ROWS { self.rows.len() } else { self.least() };
            let row = Row { hash, name: name.into(), requests: 0, grew: 0 };
            if place == self.rows.len() {
                self.rows.push(row);
            } else {
                self.rows[place] = row;
            }
            place
        });
        self.rows[self.last].requests += 1;
    }

    /// The last request's doing.
    fn grew(&mut self, bytes: i64) {
        self.rows[self.last].grew += bytes;
    }

    fn least(&self) -> usize {
        let places = self.rows.iter().enumerate();
        places.min_by_key(|(_, row)| (row.grew.max(0), row.requests)).map_or(0, |(place, _)| place)
    }

    /// Whose doing most of the growth was, and which part of it; `None` if it was nobody's in particular.
    fn most(&self) -> Option<(&Row, f64)> {
        let all: i64 = self.rows.iter().map(|row| row.grew.max(0)).sum();
        let row = self.rows.iter().max_by_key(|row| row.grew)?;
        (row.grew > 0 && row.grew >= all / 2).then(|| (row, row.grew as f64 / all as f64))
    }
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn bytes(bytes: u64) -> String {
    format!("{} MiB", thousands((bytes + (1 << 19)) >> 20))
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_channel::account::monotonic;

    const MIB: u64 = 1 << 20;
    const SHORT: Duration = Duration::from_micros(10);

    /// A worker that runs these requests over and over; each adds so many bytes.
    fn worker(rounds: u64, requests: &[(&str, u64)]) -> History {
        let mut history = History { born: 5 * MIB, now: 5 * MIB, tell_at: FIRST_TOLD, ..History::default() };
        let mut size = history.now;
        for _ in 0..rounds {
            for (path, grows) in requests {
                size += grows;
                if history.enter(path.as_bytes(), b"/index.php", SHORT) {
                    history.look(size);
                }
            }
        }
        history.look(size);
        history
    }

    #[test]
    fn a_leak_is_laid_at_the_right_door() {
        // Three paths: their turns and those of the looks do not coincide.
        let history = worker(1000, &[("/", 0), ("/report", 40 * 1024), ("/list", 1000)]);
        assert_eq!(
            history.describe(),
            "grew 40 MiB in 3,000 requests, most of it (39 MiB) in 1,000 requests of /report"
        );
    }

    #[test]
    fn a_leak_of_many_paths_is_their_scripts() {
        let paths: Vec<String> = (0..100).map(|number| format!("/product/{number}")).collect();
        let requests: Vec<_> = paths.iter().map(|path| (path.as_str(), 10 * 1024)).collect();
        let history = worker(10, &requests);
        assert_eq!(
            history.describe(),
            "grew 10 MiB in 1,000 requests, most of it (10 MiB) in 1,000 requests of /index.php"
        );
        assert_eq!(history.paths.rows.len(), ROWS);
    }

    #[test]
    fn a_long_request_is_seen_at_once() {
        let mut history = History { tell_at: FIRST_TOLD, ..History::default() };
        for _ in 0..5 {
            assert!(!history.enter(b"/", b"", SHORT));
        }
        assert!(history.enter(b"/export\n", b"", LONG));
        history.look(100 * MIB);
        assert_eq!(history.describe(), "grew 100 MiB in 6 requests, most of it (100 MiB) in 1 requests of /export\\n");
        assert!(!history.enter(b"/", b"", LONG / 2));
        assert!(history.enter(b"/", b"", LONG / 2), "several are a long one");
    }

    #[test]
    fn a_growth_is_told_at_32_mib_and_then_at_each_doubling() {
        let mut history = History { tell_at: FIRST_TOLD, ..History::default() };
        let mut told = Vec::new();
        for size in (0..600).step_by(4) {
            history.look(size * MIB);
            if history.news().is_some() {
                told.push(size);
            }
        }
        assert_eq!(told, [32, 64, 128, 256, 512]);
    }

    #[test]
    fn a_worker_that_shrinks_has_not_grown() {
        let history = worker(1, &[("/", 0)]);
        assert_eq!(History { now: 0, ..history }.describe(), "grew 0 MiB in 1 requests");
    }

    #[test]
    fn this_process_has_memory_of_its_own() {
        let mut growth = Growth::begin();
        let ballast = vec![7u8; 64 << 20];
        let began = monotonic();
        assert!(growth.after(b"/", b"/index.php", began, began + LONG));
        assert!(growth.grown() >= 60 << 20, "{growth:?}");
        drop(ballast);
    }
}
