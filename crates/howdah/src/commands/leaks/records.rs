//! The records of the workers: the changes from each request to the next one of the same worker, by route.
//!
//! The control API returns the workers' lines unchanged. The application can write into that file, too: lines of another
//! form are ignored, and all text is made safe for a terminal.

use super::carried::{Step, carried};
use crate::terminal::plain::plain;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The records of a time.
#[derive(Debug, Default)]
pub struct Records {
    /// The number of requests.
    pub requests: usize,
    /// The number of workers.
    pub workers: usize,
    /// The changes with each request, by `METHOD /path`.
    pub routes: BTreeMap<String, RouteChanges>,
    /// opcache's memory in bytes, at the first request and at the last one; `None` without opcache.
    pub opcache: Option<(f64, f64)>,
    /// The memory of interned strings in opcache, in the same way.
    pub strings: Option<(f64, f64)>,
}

/// The changes that each request of a route has left, in the order of the requests.
#[derive(Debug, Default)]
pub struct RouteChanges {
    /// PHP's memory, in bytes.
    pub memory: Vec<f64>,
    /// The memory of libraries, in bytes.
    pub malloc: Vec<f64>,
    /// The number of open descriptors.
    pub descriptors: Vec<f64>,
    /// The number of objects of each class, for the requests that changed it.
    pub objects: BTreeMap<String, Vec<f64>>,
    /// The number of the route.
    pub number: usize,
    /// For each request, the number of the route before it.
    pub previous: Vec<usize>,
}

/// A line.
#[derive(Debug, Deserialize)]
struct Line {
    pid: u32,
    number: u64,
    /// More than one in async mode: those that the worker held together.
    #[serde(default = "one")]
    requests: u64,
    method: String,
    path: String,
    memory: u64,
    malloc: Option<u64>,
    descriptors: Option<u64>,
    opcache: Option<u64>,
    strings: Option<u64>,
    /// The classes whose number has changed.
    objects: HashMap<String, u64>,
}

/// The last line of a worker, with all of its objects.
#[derive(Debug)]
struct Former {
    line: Line,
    /// The number of its route.
    route: usize,
    objects: HashMap<String, u64>,
}

/// One of the numbers that are measured after each request.
type Measured = fn(&mut RouteChanges) -> &mut Vec<f64>;

const MEASURED: [Measured; 3] = [|route| &mut route.memory, |route| &mut route.malloc, |route| &mut route.descriptors];
/// More routes than this are counted together.
const MAX_ROUTES: usize = 1000;
const OTHER_ROUTES: &str = "(other routes)";

// === impl Records ===

impl Records {
    /// Reads the workers' lines.
    pub fn read(bytes: &[u8]) -> Records {
        let mut records = Records::default();
        let mut workers: HashMap<u32, Former> = HashMap::new();
        let mut pids = BTreeSet::new();
        let mut numbers = HashMap::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Line>(line) else { continue };
            records.requests += usize::try_from(line.requests).unwrap_or(0);
            pids.insert(line.pid);
            note(&mut records.opcache, line.opcache);
            note(&mut records.strings, line.strings);
            let name = name_of_route(&line, &numbers);
            let next = numbers.len();
            let route = *numbers.entry(name.clone()).or_insert(next);
            // A smaller number is that of another process, or of another recording.
            let former = workers.remove(&line.pid).filter(|former| former.line.number < line.number);
            // Without the line between them, the change belongs to another request, too.
            if let Some(former) = former.as_ref().filter(|former| former.line.number + 1 == line.number) {
                let changes = records.routes.entry(name).or_default();
                changes.number = route;
                changes.add(former, &line);
            }
            let mut objects = former.map(|former| former.objects).unwrap_or_default();
            objects.extend(line.objects.iter().map(|(class, count)| (class.clone(), *count)));
            workers.insert(line.pid, Former { line, route, objects });
        }
        records.workers = pids.len();
        for of in MEASURED {
            records.subtract_carried(numbers.len(), of);
        }
        records
    }

    /// Subtracts from a number what each route leaves until the next request only.
    fn subtract_carried(&mut self, routes: usize, of: Measured) {
        // A worker that cannot measure it at some time leaves gaps: then the changes remain as they are.
        if self.routes.values_mut().any(|route| of(route).len() != route.previous.len()) {
            return;
        }
        let mut steps = Vec::new();
        for route in self.routes.values_mut() {
            let (number, changes) = (route.number, of(route).clone());
            let step = |(change, previous)| Step { route: number, previous, change };
            steps.extend(changes.into_iter().zip(route.previous.iter().copied()).map(step));
        }
        let carried = carried(&steps, routes);
        for route in self.routes.values_mut() {
            let (number, previous) = (route.number, route.previous.clone());
            for (change, previous) in of(route).iter_mut().zip(previous) {
                *change -= carried[number] - carried[previous];
            }
        }
    }
}

fn name_of_route(line: &Line, known: &HashMap<String, usize>) -> String {
    let name = format!("{} {}", plain(&line.method), route_of(&plain(&line.path)));
    if known.len() < MAX_ROUTES || known.contains_key(&name) { name } else { OTHER_ROUTES.to_owned() }
}

fn one() -> u64 {
    1
}

fn note(range: &mut Option<(f64, f64)>, now: Option<u64>) {
    if let Some(now) = now {
        let now = now as f64;
        *range = Some((range.map_or(now, |(first, _)| first), now));
    }
}

/// The path with `*` for each segment that names an object: a number, or many hexadecimal digits.
fn route_of(path: &str) -> String {
    let is_name = |segment: &str| {
        let digits = segment.bytes().filter(u8::is_ascii_hexdigit).count();
        let is_number = segment.bytes().all(|byte| byte.is_ascii_digit());
        let is_identifier = digits >= 8 && segment.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        !segment.is_empty() && (is_number || is_identifier)
    };
    let segments = path.split('/').map(|segment| if is_name(segment) { "*" } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

// === impl RouteChanges ===

impl RouteChanges {
    /// The number of its requests.
    pub fn requests(&self) -> usize {
        self.memory.len()
    }

    /// The changes of the objects of a class with each request; requests that left their number as it was come last.
    pub fn of_class(&self, changes: &[f64]) -> Vec<f64> {
        let mut all = changes.to_vec();
        all.resize(self.requests().max(changes.len()), 0.0);
        all
    }

    fn add(&mut self, former: &Former, line: &Line) {
        let change = |now: u64, before: u64| now as f64 - before as f64;
        self.previous.push(former.route);
        self.memory.push(change(line.memory, former.line.memory));
        self.malloc.extend(line.malloc.zip(former.line.malloc).map(|(now, before)| change(now, before)));
        self.descriptors.extend(line.descriptors.zip(former.line.descriptors).map(|(now, before)| change(now, before)));
        for (class, count) in &line.objects {
            let before = former.objects.get(class).copied().unwrap_or(0);
            self.objects.entry(plain(class)).or_default().push(change(*count, before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: u32, number: u64, path: &str, memory: u64, objects: &str) -> String {
        format!(
            r#"{{"pid":{pid},"number":{number},"method":"GET","path":"{path}","memory":{memory},"malloc":{},"descriptors":9,"opcache":{},"strings":5,"objects":{{{objects}}}}}"#,
            memory / 2,
            1000 + number
        ) + "\n"
    }

    #[test]
    fn the_changes_of_each_worker_are_counted_for_the_route_of_its_request() {
        let text = [
            line(1, 1, "/a", 100, r#""A":1"#),
            line(2, 1, "/b", 500, ""),
            line(1, 2, "/b", 110, r#""A":3,"B":1"#),
            "no record\n{}\n".to_owned(),
            line(2, 2, "/a", 500, ""),
            line(1, 3, "/b", 130, r#""B":0"#),
            // The line between them is lost.
            line(1, 5, "/b", 990, r#""A":9"#),
        ]
        .concat();
        let records = Records::read(text.as_bytes());
        assert_eq!((records.requests, records.workers), (6, 2));
        assert_eq!(records.routes.keys().collect::<Vec<_>>(), ["GET /a", "GET /b"]);
        let b = &records.routes["GET /b"];
        assert_eq!((&*b.memory, &*b.malloc, &*b.descriptors), (&[10.0, 20.0][..], &[5.0, 10.0][..], &[0.0, 0.0][..]));
        assert_eq!(b.objects, BTreeMap::from([("A".to_owned(), vec![2.0]), ("B".to_owned(), vec![1.0, -1.0])]));
        assert_eq!(b.of_class(&b.objects["A"]), [2.0, 0.0]);
        assert_eq!(records.routes["GET /a"].memory, [0.0]);
        assert_eq!((records.opcache, records.strings), (Some((1001.0, 1005.0)), Some((5.0, 5.0))));
    }

    #[test]
    fn a_worker_that_starts_again_has_no_former_objects() {
        let text = [line(1, 7, "/", 100, r#""A":5"#), line(1, 1, "/", 10, r#""A":2"#), line(1, 2, "/", 10, r#""A":3"#)];
        let records = Records::read(text.concat().as_bytes());
        assert_eq!(records.routes["GET /"].objects["A"], [1.0]);
        assert_eq!(records.routes["GET /"].memory, [0.0]);
    }

    #[test]
    fn segments_that_name_an_object_are_one_route() {
        for (path, expected) in [
            ("/", "/"),
            ("/user/17/posts", "/user/*/posts"),
            ("/x/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "/x/*"),
            ("/x/deadbeef", "/x/*"),
            ("/a/feed/v2", "/a/feed/v2"),
            ("/a//", "/a//"),
        ] {
            assert_eq!(route_of(path), expected);
        }
    }

    #[test]
    fn routes_have_a_limit_and_are_safe_for_a_terminal() {
        let lines = (0..=2 * MAX_ROUTES as u64 + 1).map(|number| line(1, number, &format!("/p{number}x"), 1, ""));
        let records = Records::read(lines.collect::<String>().as_bytes());
        assert_eq!((records.routes.len(), records.routes[OTHER_ROUTES].requests()), (MAX_ROUTES, MAX_ROUTES + 2));
        // A hostile worker writes lines without a predecessor.
        let alone = (0..2 * MAX_ROUTES as u64).map(|number| line(1, number * 2, &format!("/p{number}x"), 1, ""));
        let both = alone.chain([line(1, 8001, "/a", 1, ""), line(1, 8002, "/b", 1, "")]);
        let records = Records::read(both.collect::<String>().as_bytes());
        assert_eq!(records.routes.keys().collect::<Vec<_>>(), [OTHER_ROUTES]);
        let records = Records::read([line(1, 1, "/", 1, ""), line(1, 2, "/\\u001b[2J", 1, "")].concat().as_bytes());
        assert_eq!(records.routes.keys().collect::<Vec<_>>(), [r"GET /\u{1b}[2J"]);
    }
}
