//! Limits how many log lines of one kind are written: a client, a script or an upstream can cause the same warning
//! thousands of times a second, and would hide all others and fill the disk.
//!
//! A kind is a line in howdah's source, together with the application or the upstream that the line is about: that of a
//! field, of the current request, or of the first name in quotes. Of each kind, [`BURST`] lines are written in
//! [`WINDOW`]; the others are counted, and one line at the end of the window has their number and the last of them,
//! with its fields. Strangers may choose names: beyond [`MAX_SUBJECTS`] for a line in the source, further ones are one kind. Wrong
//! passwords are of one kind for each client, because fail2ban needs each client; a /64 of IPv6 is one client.
//! Warnings and errors are limited, and of the router, which clients talk to, and of deploys also information. The
//! warnings of a configuration are not limited, because they all differ, and neither is what an operator requests: the
//! other levels, and `log_route`.
//!
//! A thread writes the numbers. It starts with the first suppressed line, and exits when no window has one.

use howdah_router::{LOG_ROUTE, WRONG_PASSWORDS, client_network};
use howdah_supervisor::CONFIGURATION_WARNINGS;
use howdah_supervisor::plain_text::{beginning, plain_and_short};
use std::collections::HashMap;
use std::fmt::{self, Debug, Write as _};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// The lines of one kind that are written in a window.
const BURST: u32 = 20;
/// The length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// The most names that are counted apart at one time, for each line in the source.
const MAX_SUBJECTS: usize = 64;
/// The same for applications and upstreams, which strangers do not choose.
const MAX_CONFIGURED: usize = 4096;
/// The same for clients with wrong passwords. An attacker needs an address and a verification for each.
const MAX_CLIENTS: usize = 4096;
/// The beginnings of the targets of the supervisor's lines whose first name in quotes is that of an application.
const ABOUT_APPLICATIONS: [&str; 2] = ["howdah_supervisor::generation", "howdah_supervisor::control::deploys"];
/// A target of such lines, too; targets that begin with it are not.
const CONTROL: &str = "howdah_supervisor::control";
/// The fields that distinguish kinds.
const SUBJECTS: [&str; 2] = [APPLICATION, "upstream"];
const APPLICATION: &str = "application";
const CLIENT: &str = "client";
/// The targets that are not limited: the numbers of suppressed lines, the warnings of a configuration, and the steps of
/// routes.
const UNLIMITED: [&str; 3] = [module_path!(), CONFIGURATION_WARNINGS, LOG_ROUTE];
/// The beginnings of the targets of the router's lines, and of those about deploys.
const WITH_INFORMATION: [&str; 2] = ["howdah_router", "howdah_supervisor::control::deploys"];
/// The most bytes of a line's text, its subject or its fields that are read. A line is cut at fewer.
const MAX_BYTES: usize = 4096;
/// The number of suppressed lines of a window that are read...
const FEW: u64 = 16;
/// ...before the text of one stands for all that follow within this time: thousands may come from one turn of an event loop.
const STALE: Duration = Duration::from_millis(100);
/// The field of a line's text.
const MESSAGE: &str = "message";

/// Passes the first lines of each kind.
pub struct LogLimit;

#[derive(Debug, Default)]
struct State {
    /// By the name that the line is about; `None` for the names beyond the most that are counted apart.
    windows: HashMap<Identifier, HashMap<Option<String>, Window>>,
    /// The thread runs.
    is_reporting: bool,
}

/// The lines of one kind since the first of them.
#[derive(Debug)]
struct Window {
    since: Instant,
    written: u32,
    suppressed: u64,
    /// The last suppressed line, or one of [`STALE`] before it: its text and fields.
    last: String,
    /// When that was read.
    last_read: Instant,
}

/// Lines that were suppressed in one window.
#[derive(Debug, PartialEq, Eq)]
struct Suppressed {
    count: u64,
    /// `None` for several names.
    subject: Option<String>,
    last: String,
}

/// Reads a line.
#[derive(Default)]
struct Reader {
    subject: String,
    text: String,
    /// The fields besides the text, as in the line: ` reason="too long"`.
    fields: String,
}

/// A text of at most [`MAX_BYTES`].
struct Bounded<'t>(&'t mut String);

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Logs the numbers of suppressed lines now: the process is about to exit.
pub fn report() {
    log(with_state(|state| state.end_windows(None)));
}

fn with_state<T>(act: impl FnOnce(&mut State) -> T) -> T {
    let mut state: MutexGuard<'_, Option<State>> = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    act(state.get_or_insert_default())
}

fn log(all: Vec<Suppressed>) {
    for Suppressed { count, subject, last } in all {
        let of = match subject.as_deref() {
            None => " about others".to_owned(),
            Some("") => String::new(),
            Some(name) => format!(" about {name}"),
        };
        tracing::warn!("{count} similar lines{of} were suppressed in {} s; the last: {last}", WINDOW.as_secs());
    }
}

fn is_limited(level: Level, target: &str) -> bool {
    let has_information = WITH_INFORMATION.iter().any(|beginning| target.starts_with(beginning));
    let most = if has_information { Level::INFO } else { Level::WARN };
    level <= most && !UNLIMITED.contains(&target)
}

/// Whether the first name in quotes of such a line is an application.
fn is_about_application(target: &str) -> bool {
    target == CONTROL || ABOUT_APPLICATIONS.iter().any(|beginning| target.starts_with(beginning))
}

/// A field of the request that this thread works on, which the form of the lines adds; empty outside of requests.
fn field_of_request(name: &str) -> String {
    let field = howdah_router::current_request_fields().into_iter().find(|(field, _)| *field == name);
    field.map(|(_, value)| value).unwrap_or_default()
}

/// The client with this address: an IPv4 address, a /64 of IPv6, or another text, as of Unix sockets.
fn client(address: &str) -> String {
    match address.parse().map(client_network) {
        Ok(IpAddr::V6(network)) => format!("{network}/64"),
        Ok(IpAddr::V4(_)) | Err(_) => address.to_owned(),
    }
}

fn report_until_quiet() {
    loop {
        let next = with_state(|state| {
            let next = state.next_end();
            state.is_reporting = next.is_some();
            next
        });
        let Some(next) = next else { return };
        thread::sleep(next.saturating_duration_since(Instant::now()));
        log(with_state(|state| state.end_windows(Some(Instant::now()))));
    }
}

// === impl LogLimit ===

impl<S> Filter<S> for LogLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if !is_limited(*metadata.level(), metadata.target()) {
            return true;
        }
        let mut reader = Reader::default();
        event.record(&mut reader);
        let is_by_client = metadata.target() == WRONG_PASSWORDS;
        if is_by_client {
            reader.subject = client(&field_of_request(CLIENT));
        } else if reader.subject.is_empty() {
            reader.subject = field_of_request(APPLICATION);
        }
        let is_configured = !reader.subject.is_empty() || is_about_application(metadata.target());
        let most = match (is_by_client, is_configured) {
            (true, _) => MAX_CLIENTS,
            (false, true) => MAX_CONFIGURED,
            (false, false) => MAX_SUBJECTS,
        };
        let subject = reader.subject().to_owned();
        with_state(|state| {
            let may_pass = state.admit(metadata.callsite(), subject, most, Instant::now(), || reader.line(metadata));
            if !may_pass && !state.is_reporting {
                // Without a thread, the numbers are logged at exit.
                state.is_reporting =
                    thread::Builder::new().name("log limit".to_owned()).spawn(report_until_quiet).is_ok();
            }
            may_pass
        })
    }
}

// === impl State ===

impl State {
    /// Whether a line about this subject may be written. Beyond `most` subjects, further ones are one.
    fn admit(
        &mut self,
        line: Identifier,
        subject: String,
        most: usize,
        now: Instant,
        text: impl FnOnce() -> String,
    ) -> bool {
        let windows = self.windows.entry(line).or_default();
        let mut subject = Some(subject);
        if windows.len() >= most && !windows.contains_key(&subject) {
            windows.retain(|_, window| window.suppressed > 0 || !window.is_over(now));
            if windows.len() >= most {
                subject = None;
            }
        }
        let window = windows.entry(subject).or_insert_with(|| Window::new(now));
        if window.is_over(now) && window.suppressed == 0 {
            *window = Window::new(now);
        }
        if window.written < BURST {
            window.written += 1;
            return true;
        }
        window.suppressed += 1;
        if window.suppressed <= FEW || now.saturating_duration_since(window.last_read) >= STALE {
            (window.last, window.last_read) = (text(), now);
        }
        false
    }

    /// When the next window with suppressed lines ends.
    fn next_end(&self) -> Option<Instant> {
        let windows = self.windows.values().flat_map(HashMap::values);
        windows.filter(|window| window.suppressed > 0).map(|window| window.since + WINDOW).min()
    }

    /// Removes the windows that are over by then, or all, and returns the suppressed lines.
    fn end_windows(&mut self, by: Option<Instant>) -> Vec<Suppressed> {
        let is_over = move |window: &Window| by.is_none_or(|now| window.is_over(now));
        let ended = self.windows.values_mut().flat_map(|of_line| of_line.extract_if(move |_, window| is_over(window)));
        let suppressed = ended.filter(|(_, window)| window.suppressed > 0);
        suppressed
            .map(|(subject, Window { suppressed, last, .. })| Suppressed { count: suppressed, subject, last })
            .collect()
    }
}

// === impl Window ===

impl Window {
    fn new(since: Instant) -> Window {
        Window { since, written: 0, suppressed: 0, last: String::new(), last_read: since }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

// === impl Reader ===

impl Reader {
    fn subject(&self) -> &str {
        if self.subject.is_empty() { self.text.split('"').nth(1).unwrap_or_default() } else { &self.subject }
    }

    /// The line with the fields that the form of the lines adds.
    fn line(self, metadata: &Metadata<'_>) -> String {
        let Reader { mut text, fields, .. } = self;
        append(&mut text, format_args!("{fields}"));
        for (name, value) in howdah_router::current_request_fields() {
            if metadata.fields().field(name).is_none() {
                append(&mut text, format_args!(" {name}={value:?}"));
            }
        }
        // It becomes a part of another line.
        plain_and_short(&text)
    }
}

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            MESSAGE => append(&mut self.text, format_args!("{value}")),
            name if SUBJECTS.contains(&name) => append(&mut self.subject, format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            MESSAGE => append(&mut self.text, format_args!("{value:?}")),
            name if SUBJECTS.contains(&name) => append(&mut self.subject, format_args!("{value:?}")),
            name => append(&mut self.fields, format_args!(" {name}={value:?}")),
        }
    }
}

/// Appends a value that may be a megabyte of a stranger's text, as long as the text has room for it.
fn append(text: &mut String, value: fmt::Arguments<'_>) {
    // An error ends the formatting early.
    let _ = Bounded(text).write_fmt(value);
}

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let fits = beginning(part, MAX_BYTES.saturating_sub(self.0.len()));
        self.0.push_str(fits);
        if fits.len() == part.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tracing::Callsite as _;
    use tracing_subscriber::layer::{Layer, SubscriberExt};

    #[test]
    fn long_values_are_not_formatted_to_their_end() {
        struct Endless;
        impl Debug for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("\u{fffd}")?;
                }
            }
        }
        let mut text = "begins ".to_owned();
        append(&mut text, format_args!("{Endless:?}"));
        assert!(text.starts_with("begins \u{fffd}") && (MAX_BYTES - 3..=MAX_BYTES).contains(&text.len()));
        append(&mut text, format_args!("{Endless:?}"));
        assert!(text.len() <= MAX_BYTES);
    }

    #[test]
    fn a_kind_has_a_burst_and_a_number_at_the_end_of_its_window() {
        let here = tracing::callsite!(name: "test", kind: tracing::metadata::Kind::EVENT, fields: message).metadata();
        let mut state = State::default();
        let start = Instant::now();
        let admitted = |state: &mut State, subject: &str, at: Instant, lines: u32| {
            let admit =
                |_: &u32| state.admit(here.callsite(), subject.to_owned(), MAX_SUBJECTS, at, || "text".to_owned());
            (0..lines).filter(admit).count()
        };
        assert_eq!(admitted(&mut state, "shop", start, BURST + 5), BURST as usize);
        assert_eq!(admitted(&mut state, "blog", start, 3), 3, "another application has its own burst");
        assert_eq!(state.next_end(), Some(start + WINDOW));
        assert_eq!(state.end_windows(Some(start + WINDOW / 2)), []);
        // The number of a window that is over may come late.
        assert_eq!(admitted(&mut state, "shop", start + WINDOW, 2), 0);
        let expected = Suppressed { count: 7, subject: Some("shop".to_owned()), last: "text".to_owned() };
        assert_eq!(state.end_windows(Some(start + WINDOW)), [expected]);
        assert_eq!(admitted(&mut state, "shop", start + WINDOW, 1), 1);
        assert_eq!((state.next_end(), state.end_windows(None)), (None, vec![]));
    }

    #[test]
    fn the_subject_is_a_field_or_the_first_name_in_quotes() {
        let subject = |subject: &str, text: &str| {
            Reader { subject: subject.to_owned(), text: text.to_owned(), fields: String::new() }.subject().to_owned()
        };
        assert_eq!(subject("shop", r#"the "blog""#), "shop");
        assert_eq!(subject("", r#"worker of "shop" (pid 7) was killed by "x""#), "shop");
        assert_eq!(subject("", "no name"), "");
    }

    struct Collector(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber> Layer<S> for Collector {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut reader = Reader::default();
            event.record(&mut reader);
            self.0.lock().unwrap().push(reader.line(event.metadata()));
        }
    }

    /// The lines of `log` that pass.
    fn written(log: impl FnOnce()) -> Vec<String> {
        let written = Arc::default();
        let collector = Collector(Arc::clone(&written)).with_filter(LogLimit);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(collector), log);
        written.lock().unwrap().clone()
    }

    #[test]
    fn each_application_that_a_line_of_the_supervisor_names_is_a_kind() {
        let log = || {
            let names = (0..MAX_SUBJECTS).map(|number| format!("site{number}"));
            let flood = (0..100).map(|_| "evil".to_owned());
            for name in names.chain(flood).chain(["victim".to_owned()]) {
                tracing::warn!(target: "howdah_supervisor::generation::php", "worker of {name:?} was killed");
            }
        };
        let lines = written(log);
        assert_eq!(lines.len(), MAX_SUBJECTS + BURST as usize + 1);
        assert_eq!(lines.last().unwrap(), "worker of \"victim\" was killed");
    }

    #[test]
    fn names_in_other_lines_are_those_of_strangers() {
        let cases = [
            ("howdah_supervisor::generation::program::process", true),
            ("howdah_supervisor::control", true),
            ("howdah_supervisor::control::deploys::watch", true),
            ("howdah_supervisor::control::processes::acme::on_demand::names", false),
            ("howdah_router::dispatch", false),
        ];
        for (target, expected) in cases {
            assert_eq!(is_about_application(target), expected, "{target}");
        }
    }

    #[test]
    fn the_last_line_has_its_fields_and_a_configurations_warnings_are_all_written() {
        let lines = written(|| {
            for number in 0..BURST + 10 {
                tracing::warn!(target: CONFIGURATION_WARNINGS, "option {number} has no effect");
            }
            for number in 0..BURST + 2 {
                tracing::warn!(upstream = "of this test", reason = "too long", number, "a header was dropped");
            }
        });
        assert_eq!(lines.len() as u32, 2 * BURST + 10);
        let last = with_state(|state| {
            let window = state.windows.values().find_map(|of_line| of_line.get(&Some("of this test".to_owned())));
            window.map(|window| (window.suppressed, window.last.clone()))
        });
        assert_eq!(last, Some((2, format!("a header was dropped reason=\"too long\" number={}", BURST + 1))));
    }

    #[test]
    fn of_very_many_lines_few_are_read() {
        let here = tracing::callsite!(name: "many", kind: tracing::metadata::Kind::EVENT, fields: message).metadata();
        let (mut state, mut reads, now) = (State::default(), 0, Instant::now());
        let mut admit = |at: Instant| {
            state.admit(here.callsite(), "shop".to_owned(), MAX_SUBJECTS, at, || {
                reads += 1;
                String::new()
            })
        };
        assert_eq!((0..10_000).filter(|_| admit(now)).count() as u32, BURST);
        admit(now + STALE);
        assert_eq!(reads, FEW + 1);
    }

    #[test]
    fn what_clients_of_the_router_cause_is_limited_at_each_level_that_is_on() {
        let cases = [
            (Level::WARN, "howdah_supervisor::boot", true),
            (Level::INFO, "howdah_supervisor::boot", false),
            (Level::INFO, "howdah_router::dispatch::https", true),
            (Level::INFO, "howdah_supervisor::control::deploys", true),
            (Level::DEBUG, "howdah_router::dispatch::https", false),
            (Level::INFO, LOG_ROUTE, false),
            (Level::WARN, CONFIGURATION_WARNINGS, false),
        ];
        for (level, target, expected) in cases {
            assert_eq!(is_limited(level, target), expected, "{level} {target}");
        }
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let cases = [
            ("127.9.0.1", "127.9.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
            ("2001:db8:1:3::", "2001:db8:1:3::/64"),
            ("unix:", "unix:"),
            ("", ""),
        ];
        for (address, expected) in cases {
            assert_eq!(client(address), expected, "{address}");
        }
    }

    #[test]
    fn names_that_strangers_choose_are_one_kind_beyond_a_number() {
        let line = |name: &'static str| match name {
            "one" => tracing::callsite!(name: "one", kind: tracing::metadata::Kind::EVENT, fields: message).metadata(),
            _ => tracing::callsite!(name: "two", kind: tracing::metadata::Kind::EVENT, fields: message).metadata(),
        };
        let mut state = State::default();
        let now = Instant::now();
        let mut admit = |name, number: u32, at| {
            state.admit(line(name).callsite(), number.to_string(), MAX_SUBJECTS, at, || "text".to_owned())
        };
        let written = (0..10_000).filter(|number| admit("one", *number, now)).count();
        assert_eq!(written, MAX_SUBJECTS + BURST as usize);
        assert!(admit("two", 7, now), "another line has its own names");
        assert!(admit("one", 20_000, now + WINDOW), "after the window");
        let ended = state.end_windows(Some(now + WINDOW));
        let expected = (10_000 - (MAX_SUBJECTS + BURST as usize) as u64, None);
        assert_eq!(ended.iter().map(|ended| (ended.count, ended.subject.as_deref())).collect::<Vec<_>>(), [expected]);
        assert_eq!(state.windows.values().map(HashMap::len).sum::<usize>(), 1);
    }
}
