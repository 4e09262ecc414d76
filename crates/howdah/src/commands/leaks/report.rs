//! The report of `howdah leaks`: as text, and as JSON.

use super::growth::{Growth, LEAST_REQUESTS};
use super::records::{Records, RouteChanges};
use crate::terminal::plain::bytes;
use crate::terminal::table::table;
use serde_json::{Value, json};

/// The growth of a route, by its name.
struct Route<'r> {
    name: &'r str,
    changes: &'r RouteChanges,
    memory: Growth,
    malloc: Growth,
    descriptors: Growth,
    /// The classes whose objects increase, those that increase most first.
    classes: Vec<(&'r str, Growth)>,
}

/// The routes and classes that the text shows.
const MOST_ROUTES: usize = 20;
const MOST_CLASSES: usize = 8;
/// The columns of text: the verdict and the route.
const LEFT_ALIGNED: [usize; 2] = [5, 6];

/// The report for a user.
pub fn text(records: &Records, is_full: bool) -> String {
    let routes = routes_of(records);
    let mut text = format!("{} of {}.\n", many(records.requests, "request"), many(records.workers, "worker"));
    if is_full {
        text.push_str("The records exceeded the size limit, and the last ones are missing; use a shorter time.\n");
    }
    let mut rows = vec![["requests", "PHP's memory", "95 %", "malloc", "descriptors", "", "route"].map(str::to_owned)];
    rows.extend(routes.iter().take(MOST_ROUTES).map(row));
    text.push('\n');
    text.push_str(&table(&rows, &LEFT_ALIGNED));
    if routes.len() > MOST_ROUTES {
        text.push_str(&format!("and {} more routes; --json has all\n", routes.len() - MOST_ROUTES));
    }
    for route in routes.iter().filter(|route| route.leaks() && !route.classes.is_empty()).take(MOST_ROUTES) {
        text.push_str(&format!("\nObjects that stay after each request of {}:\n", route.name));
        for (class, growth) in route.classes.iter().take(MOST_CLASSES) {
            text.push_str(&format!("{:+10.2}  {class}\n", growth.mean));
        }
    }
    text.push('\n');
    let ranges = [("opcache", records.opcache), ("interned strings", records.strings)];
    for (name, (first, last)) in ranges.into_iter().filter_map(|(name, range)| Some((name, range?))) {
        text.push_str(&format!("{name}: {} at the start, {} at the end\n", bytes(first as u64), bytes(last as u64)));
    }
    text.push_str(&verdict(&routes));
    text
}

/// The report for programs: all routes, and all of their classes that increase.
pub fn json(records: &Records, is_full: bool) -> Value {
    let of = |growth: &Growth| {
        json!({ "median": growth.median, "mean": growth.mean, "low": finite(growth.low), "high": finite(growth.high),
                "leak": growth.is_leak })
    };
    let routes: Vec<Value> = routes_of(records)
        .iter()
        .map(|route| {
            let objects: serde_json::Map<String, Value> =
                route.classes.iter().map(|(class, growth)| ((*class).to_owned(), of(growth))).collect();
            json!({ "route": route.name, "requests": route.changes.requests(), "leak": route.leaks(),
                    "memory": of(&route.memory), "malloc": of(&route.malloc), "descriptors": of(&route.descriptors),
                    "objects": objects })
        })
        .collect();
    let range = |range: Option<(f64, f64)>| range.map(|(first, last)| json!({ "first": first, "last": last }));
    json!({ "requests": records.requests, "workers": records.workers, "complete": !is_full, "routes": routes,
            "opcache": range(records.opcache), "interned_strings": range(records.strings) })
}

fn finite(number: f64) -> Option<f64> {
    Some(number).filter(|number| number.is_finite())
}

/// The routes, those that leak most first.
fn routes_of(records: &Records) -> Vec<Route<'_>> {
    let mut routes: Vec<_> = records.routes.iter().map(|(name, changes)| Route::new(name, changes)).collect();
    routes.sort_by(|one, other| {
        let key = |route: &Route<'_>| (route.leaks(), route.kept());
        key(other).partial_cmp(&key(one)).unwrap_or(std::cmp::Ordering::Equal)
    });
    routes
}

fn row(route: &Route<'_>) -> [String; 7] {
    let Growth { mean, low, high, .. } = route.memory;
    let verdict = match (route.leaks(), route.changes.requests() < LEAST_REQUESTS) {
        (true, _) => "leaks",
        (_, true) => "too few",
        _ => "",
    };
    [
        route.changes.requests().to_string(),
        signed(mean),
        if low.is_finite() { format!("{} to {}", signed(low), signed(high)) } else { "-".to_owned() },
        signed(route.malloc.mean),
        format!("{:+.2}", route.descriptors.mean + 0.0),
        verdict.to_owned(),
        route.name.to_owned(),
    ]
}

fn verdict(routes: &[Route<'_>]) -> String {
    let leaking = routes.iter().filter(|route| route.leaks()).count();
    let few = routes.iter().filter(|route| route.changes.requests() < LEAST_REQUESTS).count();
    let mut text = match leaking {
        0 => "No route leaks.\n".to_owned(),
        1 => "1 route leaks.\n".to_owned(),
        count => format!("{count} routes leak.\n"),
    };
    if few > 0 {
        text.push_str(&format!(
            "{} had fewer than {LEAST_REQUESTS} requests: too few for a verdict.\n",
            many(few, "route")
        ));
    }
    text
}

fn many(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// A number of bytes with its sign and unit.
fn signed(number: f64) -> String {
    let (sign, size) = if number < 0.0 { ('-', -number) } else { ('+', number) };
    match size {
        size if size < 0.5 => "0 B".to_owned(),
        size if size < 1024.0 => format!("{sign}{size:.0} B"),
        size if size < 1_048_576.0 => format!("{sign}{:.1} KiB", size / 1024.0),
        size => format!("{sign}{:.1} MiB", size / 1_048_576.0),
    }
}

// === impl Route ===

impl<'r> Route<'r> {
    fn new(name: &'r str, changes: &'r RouteChanges) -> Route<'r> {
        let class = |(class, of_class): (&'r String, &'r Vec<f64>)| {
            // An application may invent classes. Few of them have this number of entries, so that the rest is computed for few.
            if of_class.len() < (changes.requests() / 4).max(1) {
                return None;
            }
            // Requests that left the number as it was have no entry: their place does not matter for the mean.
            let growth = Growth::of(&changes.of_class(of_class));
            (growth.low > 0.0).then_some((class.as_str(), growth))
        };
        let mut classes: Vec<_> = changes.objects.iter().filter_map(class).collect();
        classes.sort_by(|one, other| other.1.mean.total_cmp(&one.1.mean));
        Route {
            name,
            changes,
            memory: Growth::of(&changes.memory),
            malloc: Growth::of(&changes.malloc),
            descriptors: Growth::of(&changes.descriptors),
            classes,
        }
    }

    fn leaks(&self) -> bool {
        self.memory.is_leak || self.malloc.is_leak || self.descriptors.is_leak
    }

    /// Bytes per request.
    fn kept(&self) -> f64 {
        self.memory.mean + self.malloc.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn records() -> Records {
        let leak = RouteChanges {
            memory: vec![2048.0; 100],
            malloc: vec![0.0; 100],
            descriptors: vec![0.0; 100],
            objects: BTreeMap::from([("App\\Thing".to_owned(), vec![1.0; 100]), ("Once".to_owned(), vec![1.0])]),
            ..RouteChanges::default()
        };
        let fine = RouteChanges { memory: vec![0.0; 30], malloc: vec![0.0; 30], ..RouteChanges::default() };
        let rare = RouteChanges { memory: vec![5e6; 3], malloc: vec![0.0; 3], ..RouteChanges::default() };
        let routes = [("GET /leak", leak), ("GET /fine", fine), ("GET /rare", rare)];
        Records {
            requests: 137,
            workers: 4,
            routes: routes.into_iter().map(|(name, changes)| (name.to_owned(), changes)).collect(),
            opcache: Some((1048576.0, 2097152.0)),
            strings: None,
        }
    }

    #[test]
    fn classes_that_an_application_invents_cost_no_time() {
        let one = |number: usize| (format!("C{number}"), vec![1.0]);
        let changes = RouteChanges {
            memory: vec![0.0; 100_000],
            objects: (0..200_000).map(one).collect(),
            ..RouteChanges::default()
        };
        let began = std::time::Instant::now();
        assert!(Route::new("GET /", &changes).classes.is_empty());
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn the_text_names_the_routes_that_leak_and_their_objects() {
        let text = text(&records(), false);
        assert!(text.starts_with("137 requests of 4 workers.\n"), "{text}");
        let leak = text.lines().find(|line| line.ends_with("GET /leak")).unwrap();
        assert!(leak.contains("100") && leak.contains("+2.0 KiB") && leak.contains("leaks"), "{leak}");
        assert!(text.lines().any(|line| line.contains("too few") && line.ends_with("GET /rare")), "{text}");
        assert!(text.contains("after each request of GET /leak:\n     +1.00  App\\Thing\n"), "{text}");
        assert!(!text.contains("Once"), "{text}");
        assert!(text.contains("opcache: 1.0 MiB at the start, 2.0 MiB at the end"), "{text}");
        assert!(
            text.ends_with("1 route leaks.\n1 route had fewer than 20 requests: too few for a verdict.\n"),
            "{text}"
        );
    }

    #[test]
    fn the_json_has_all_numbers() {
        let json = json(&records(), true);
        assert_eq!((&json["requests"], &json["complete"]), (&json!(137), &json!(false)));
        assert_eq!(json["routes"][0]["route"], "GET /leak");
        assert_eq!(json["routes"][0]["leak"], true);
        assert_eq!(json["routes"][0]["memory"]["median"], 2048.0);
        assert_eq!(json["routes"][0]["objects"]["App\\Thing"]["mean"], 1.0);
        assert_eq!(json["interned_strings"], Value::Null);
    }

    #[test]
    fn bytes_have_a_sign_and_a_unit() {
        let texts = [0.2, 1.0, -700.0, 2048.0, 3e6].map(signed);
        assert_eq!(texts, ["0 B", "+1 B", "-700 B", "+2.0 KiB", "+2.9 MiB"]);
    }
}
