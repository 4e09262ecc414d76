//! Properties of any bytes, as the text of a configuration ([`read`]) and as edits of a document ([`edit`]).
//!
//! Both panic if a property is violated, or if the check takes too long.

use std::time::Duration;

use cpu_clock::CpuClock;
use howdah_config::{Configuration, Document, DocumentPath, Refusal};

#[path = "../tests/support/cpu_clock.rs"]
pub mod cpu_clock;

/// CPU time: far more than 4 MiB take without optimisation, and far less than quadratic time.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// The longest error message, in bytes.
const MESSAGE_BYTES: usize = 4096;

const STEPS: usize = 64;

/// Only small documents may double, or a few steps would take all of the time.
const SMALL_BYTES: usize = 1000;

const NAMES: [&str; 24] = [
    "listeners",
    "*:80",
    "unix:%2Frun%2Fx.sock",
    "pass",
    "tls",
    "routes",
    "0",
    "1",
    "2",
    "00",
    "match",
    "uri",
    "action",
    "share",
    "applications",
    "shop",
    "targets",
    "processes",
    "environment",
    "A%2FB",
    "%25",
    "..",
    "",
    "%zz",
];

const VALUES: [&str; 20] = [
    "{}",
    "[]",
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e300",
    "\"routes\"",
    "\"\\u0000\\n/\\\"\"",
    "[[]]",
    "[{}, [1]]",
    r#"{"*:80": {"pass": "routes"}}"#,
    r#"{"pass": "applications/shop"}"#,
    r#"[{"action": {"return": 200}}]"#,
    r#"{"action": {"share": "/srv$uri", "fallback": {"pass": "applications/shop"}}}"#,
    r#"{"match": {"uri": ["/a*", "!/b", "~^/c"]}, "action": {"pass": "routes"}}"#,
    r#"{"shop": {"type": "php", "root": "/srv/shop"}}"#,
    r#"{"type": "php", "targets": {"a": {"root": "/"}}}"#,
    r#"{"listeners": {}, "routes": [], "applications": {}, "settings": {"http": {}}}"#,
];

/// Reads the bytes as a configuration. A document is the same after it is printed and parsed again; an error is one
/// line.
pub fn read(bytes: &[u8]) {
    let clock = CpuClock::start();
    match Document::parse_bytes(bytes) {
        Ok(document) => check(&document),
        Err(error) => {
            check_message(&error.to_string());
            if let Some(location) = error.location {
                assert!(location.offset <= bytes.len() && location.line > 0 && location.column > 0, "{location:?}");
            }
        }
    }
    assert!(clock.elapsed() < TIME_LIMIT, "{:?}", clock.elapsed());
}

/// Interprets the bytes as edits of a document and carries them out.
pub fn edit(bytes: &[u8]) {
    let clock = CpuClock::start();
    let mut program = Program(bytes);
    let mut document = Document::initial();
    for _ in 0..STEPS {
        if program.0.is_empty() {
            break;
        }
        let step = program.byte();
        let text = program.path();
        let path = match DocumentPath::parse(&text) {
            Ok(path) => path,
            Err(refusal) => {
                check_refusal(&refusal, &[400]);
                continue;
            }
        };
        let written = DocumentPath::parse(&path.to_string());
        assert_eq!(written.as_ref(), Ok(&path));
        let edited = match step % 4 {
            0 => delete(&document, &path),
            1 => post(&document, &path, &program.value(&document)),
            _ => put(&document, &path, &program.value(&document)),
        };
        if let Some(edited) = edited {
            check(&edited);
            document = edited;
        }
    }
    assert!(clock.elapsed() < TIME_LIMIT, "{:?}", clock.elapsed());
}

fn put(document: &Document, path: &DocumentPath, value: &Document) -> Option<Document> {
    match document.put(path, value.clone()) {
        Ok(edited) => {
            assert_eq!(edited.get(path).expect("what was put").compact(), value.compact());
            Some(edited)
        }
        Err(refusal) => {
            check_refusal(&refusal, &[400, 404]);
            assert!(refusal.status == 400 || document.get(path).is_err(), "every existing value can be replaced");
            None
        }
    }
}

fn post(document: &Document, path: &DocumentPath, value: &Document) -> Option<Document> {
    let before = document.get(path).map(|array| array.compact());
    match document.post(path, value.clone()) {
        Ok(edited) => {
            let before = before.expect("an array");
            let array = before.strip_suffix(']').expect("an array");
            let comma = if array == "[" { "" } else { "," };
            let after = edited.get(path).expect("the array").compact();
            assert_eq!(after, format!("{array}{comma}{}]", value.compact()));
            Some(edited)
        }
        Err(refusal) => {
            check_refusal(&refusal, &[400, 404, 405]);
            assert_eq!(refusal.status == 404, before.is_err());
            None
        }
    }
}

fn delete(document: &Document, path: &DocumentPath) -> Option<Document> {
    match document.delete(path) {
        Ok(edited) => {
            let old = document.get(path).expect("what was deleted").compact();
            assert!(path.is_root() || edited.compact().len() + old.len() <= document.compact().len());
            Some(edited)
        }
        Err(refusal) => {
            check_refusal(&refusal, &[404]);
            assert!(document.get(path).is_err());
            None
        }
    }
}

/// Checks that the document can be stored and parsed again, and that it is a configuration or gives an error of one
/// line.
fn check(document: &Document) {
    let compact = document.compact();
    for text in [&compact, &document.pretty()] {
        match Document::parse(text) {
            Ok(again) => {
                assert_eq!(again.compact(), compact);
                assert_eq!(again.etag(), document.etag());
            }
            // The pretty form may be too long, but the compact form, which is stored, must parse.
            Err(error) => assert!(text.len() > compact.len(), "{error}"),
        }
    }
    if let Err(error) = Configuration::of(document) {
        check_message(&error.to_string());
    }
}

fn check_refusal(refusal: &Refusal, statuses: &[u16]) {
    assert!(statuses.contains(&refusal.status), "{refusal:?}");
    check_message(&refusal.to_string());
    assert!(Document::parse(&refusal.to_json()).is_ok());
}

fn check_message(message: &str) {
    assert!(message.len() < MESSAGE_BYTES && !message.contains('\n'), "{message:?}");
}

/// The remaining bytes. After the end, all bytes are zero.
struct Program<'p>(&'p [u8]);

impl Program<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Up to seven names, sometimes raw bytes of the program.
    fn path(&mut self) -> String {
        let mut path = String::new();
        for _ in 0..self.byte() % 8 {
            path.push('/');
            match self.byte() % 16 {
                0 => {
                    let (raw, rest) = self.0.split_at(self.0.len().min(3));
                    path.push_str(&String::from_utf8_lossy(raw));
                    self.0 = rest;
                }
                _ => path.push_str(self.choose(&NAMES)),
            }
        }
        path
    }

    /// A value of the list; sometimes deeply nested arrays, to reach the limit, or the whole document while it is
    /// small.
    fn value(&mut self, document: &Document) -> Document {
        match self.byte() % 16 {
            0 if document.compact().len() < SMALL_BYTES => document.clone(),
            1 => {
                let levels = usize::from(self.byte()) % 127;
                Document::parse(&format!("{}{}", "[".repeat(levels + 1), "]".repeat(levels + 1))).expect("an array")
            }
            _ => Document::parse(self.choose(&VALUES)).expect("a value of the list"),
        }
    }
}
