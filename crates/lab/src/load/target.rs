//! The requests of a load, with their weights, and the checks of their responses.

use regex::bytes::Regex;
use std::fmt::Write;

/// A request that is sent again and again.
#[derive(Clone, Debug)]
pub struct Target {
    /// `GET`
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header fields beside `Host`, `Content-Length` and `Connection`.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// The share, relative to the sum of all weights.
    pub weight: u32,
    /// The checks of each response.
    pub checks: Checks,
}

/// The checks of a response. All must be passed.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The right statuses; empty: 200 to 399.
    pub statuses: Vec<u16>,
    /// Header fields, by their name in lower case, and what their value contains.
    pub headers: Vec<(String, String)>,
    /// A text that the body contains.
    pub contains: Option<String>,
    /// A text that the body does not contain.
    pub lacks: Option<String>,
    /// A regular expression that the body matches.
    pub matches: Option<Regex>,
    /// The length of the body, in bytes.
    pub length: Option<u64>,
}

/// The target of each request: the same mix in each run, evenly distributed in time.
#[derive(Clone, Debug)]
pub struct Mix {
    order: Vec<u16>,
}

/// The longest round of a mix. The weights of longer ones are scaled down.
const LONGEST_ROUND: u64 = 10_000;

// === impl Target ===

impl Target {
    /// A GET request of this path, with the default checks.
    pub fn get(path: &str) -> Target {
        Target {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            weight: 1,
            checks: Checks::default(),
        }
    }

    /// The head of the request without its end, for further header fields, and whether the server may repeat it.
    pub fn head(&self, host: &str, keep_alive: bool) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let is_set = |name: &str| self.headers.iter().any(|(set, _)| set.eq_ignore_ascii_case(name));
        if !is_set("host") {
            let _ = write!(head, "Host: {host}\r\n");
        }
        if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        if !keep_alive {
            head.push_str("Connection: close\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head
    }

    /// Whether a request that a closing connection took with it may be sent again.
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE")
    }
}

// === impl Checks ===

impl Checks {
    /// Whether the status is right.
    pub fn is_right_status(&self, status: u16) -> bool {
        if self.statuses.is_empty() { (200..400).contains(&status) } else { self.statuses.contains(&status) }
    }

    /// Whether the body must be kept until the end of the response.
    pub fn need_body(&self) -> bool {
        self.contains.is_some() || self.lacks.is_some() || self.matches.is_some()
    }

    /// Whether the body is right. `length` is its whole length; `body` is empty unless [`Checks::need_body`].
    pub fn is_right_body(&self, length: u64, body: &[u8]) -> bool {
        let has = |text: &String| text.is_empty() || body.windows(text.len()).any(|window| window == text.as_bytes());
        self.length.is_none_or(|expected| expected == length)
            && self.contains.as_ref().is_none_or(has)
            && !self.lacks.as_ref().is_some_and(has)
            && self.matches.as_ref().is_none_or(|regex| regex.is_match(body))
    }

    /// The checks in words.
    pub fn describe(&self) -> Vec<String> {
        let statuses: Vec<_> = self.statuses.iter().map(ToString::to_string).collect();
        let mut words = vec![if statuses.is_empty() {
            "status 200 to 399".to_owned()
        } else {
            format!("status {}", statuses.join(" or "))
        }];
        words.extend(self.headers.iter().map(|(name, value)| format!("{name} contains {value:?}")));
        words.extend(self.contains.iter().map(|text| format!("body contains {text:?}")));
        words.extend(self.lacks.iter().map(|text| format!("body does not contain {text:?}")));
        words.extend(self.matches.iter().map(|regex| format!("body matches {:?}", regex.as_str())));
        words.extend(self.length.iter().map(|length| format!("body of {length} bytes")));
        words
    }
}

// === impl Mix ===

impl Mix {
    /// The mix of these weights.
    ///
    /// # Panics
    /// There are no weights, or more than 65,536.
    pub fn new(weights: &[u32]) -> Mix {
        assert!(!weights.is_empty() && weights.len() <= usize::from(u16::MAX), "a load has targets");
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let scale = |weight: u32| match sum {
            0..=LONGEST_ROUND => u64::from(weight).max(1),
            _ => (u64::from(weight) * LONGEST_ROUND / sum).max(1),
        };
        let block =
            weights.iter().enumerate().flat_map(|(index, weight)| (0..scale(*weight)).map(move |_| index as u16));
        let block: Vec<_> = block.collect();
        let total = block.len() as u64;
        // A step without a common divisor with the total visits each position once in a round.
        let step =
            (1..total).rev().find(|step| common_divisor(*step, total) == 1 && *step < total * 2 / 3).unwrap_or(1);
        Mix { order: (0..total).map(|number| block[(number * step % total) as usize]).collect() }
    }

    /// The index of the target of the request with this number.
    pub fn target(&self, number: u64) -> usize {
        usize::from(self.order[(number % self.order.len() as u64) as usize])
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_has_its_shares_in_each_round() {
        let mix = Mix::new(&[9, 1]);
        for round in 0..3 {
            assert_eq!((round * 10..round * 10 + 10).filter(|number| mix.target(*number) == 1).count(), 1);
        }
        assert_eq!(Mix::new(&[7]).target(12_345), 0);
        let large = Mix::new(&[3_000_000, 1_000_000]);
        assert_eq!((0..LONGEST_ROUND).filter(|number| large.target(*number) == 1).count(), 2500);
    }

    #[test]
    fn a_head_has_what_http_requires() {
        let mut post = Target { method: "POST".into(), body: b"a=b".to_vec(), ..Target::get("/form?x=1") };
        post.headers.push(("X-Lab".into(), "yes".into()));
        assert_eq!(
            post.head("127.0.0.1:80", false),
            "POST /form?x=1 HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: 3\r\nConnection: close\r\nX-Lab: yes\r\n"
        );
        let mut named = Target::get("/");
        named.headers.push(("host".into(), "shop.example".into()));
        assert_eq!(named.head("127.0.0.1:80", true), "GET / HTTP/1.1\r\nhost: shop.example\r\n");
    }

    #[test]
    fn each_check_fails_a_wrong_response() {
        let checks = Checks {
            statuses: vec![200, 302],
            contains: Some("hello".into()),
            lacks: Some("Warning:".into()),
            matches: Some(Regex::new("w.rld").unwrap()),
            length: None,
            headers: Vec::new(),
        };
        assert!(checks.is_right_status(302) && !checks.is_right_status(404) && !Checks::default().is_right_status(502));
        for (body, is_right) in
            [("hello world", true), ("hello", false), ("world", false), ("hello world Warning: x", false), ("", false)]
        {
            assert_eq!(checks.is_right_body(body.len() as u64, body.as_bytes()), is_right, "{body}");
        }
        let length = Checks { length: Some(5), ..Checks::default() };
        assert!(length.is_right_body(5, b"") && !length.is_right_body(6, b""));
        assert_eq!(checks.describe().len(), 4);
    }
}
