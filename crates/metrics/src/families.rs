//! Every family of metrics. docs/observability.md has the same table: a test compares them.

/// A family.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// The name, without the suffix of a counter or of an information.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The names of the labels, in their order.
    pub labels: &'static [&'static str],
    /// The meaning, as a phrase.
    pub help: &'static str,
}

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Times, by bucket.
    Histogram,
    /// Always 1; the labels are the content.
    Info,
}

/// A label that only the samples of applications with several worker scripts have.
pub const OPTIONAL_LABEL: &str = "worker_script";

const REQUEST: &[&str] = &["application", "route", "responder"];
const APPLICATION: &[&str] = &["application"];
const SCRIPT: &[&str] = &["application", OPTIONAL_LABEL];
const PROCESS: &[&str] = &["process"];

macro_rules! families {
    ($($id:ident = $kind:ident $name:literal $labels:expr, $help:literal;)*) => {
        $(#[doc = $help]
        pub static $id: Family = Family { name: $name, kind: Kind::$kind, labels: $labels, help: $help };)*
        /// All families, in the order of an exposition.
        pub static ALL: &[&Family] = &[$(&$id),*];
    };
}

families! {
    BUILD = Info "howdah_build" &["version"], "the version of howdah";
    START_TIME = Gauge "howdah_start_time_seconds" &[], "when the supervisor started, in seconds since 1970";
    CONFIGURATION_VERSION = Gauge "howdah_configuration_version" &[], "the number of the active configuration: each change has a larger one";
    ROUTER_UP = Gauge "howdah_router_up" &[], "1 while the router answers the supervisor";
    ROUTER_STARTS = Counter "howdah_router_starts" &[], "how often a router was started";

    REQUESTS = Counter "howdah_requests" &["application", "route", "responder", "method", "status"], "requests whose response has begun, or whose client left before it (4xx)";
    WHOLE_TIME = Histogram "howdah_request_duration_seconds" REQUEST, "from the first byte of a request to the last byte of its response";
    FIRST_BYTE_TIME = Histogram "howdah_request_first_byte_seconds" REQUEST, "from the first byte of a request to the head of its response";
    QUEUE_TIME = Histogram "howdah_request_queue_seconds" REQUEST, "the wait of a request for a PHP worker";
    PHP_TIME = Histogram "howdah_request_php_seconds" REQUEST, "the time that PHP took for a response";
    CPU_TIME = Histogram "howdah_request_cpu_seconds" REQUEST, "the processor time that PHP took for a response; below a millisecond, the whole time counts";
    BODY_BYTES = Counter "howdah_response_body_bytes" REQUEST, "bytes of response bodies";
    REFUSED = Counter "howdah_requests_refused" &["application", "route", "responder", "cause"], "requests that howdah refused or could not answer, by cause";
    REQUESTS_ACTIVE = Gauge "howdah_requests_active" SCRIPT, "requests of an application that run or wait";
    QUEUE_LENGTH = Gauge "howdah_queue_length" SCRIPT, "requests of an application that wait for a worker";

    CONNECTIONS_ACCEPTED = Counter "howdah_connections_accepted" &[], "connections of clients that were accepted";
    CONNECTIONS_CLOSED = Counter "howdah_connections_closed" &[], "connections of clients that are over, except those of a router that died";
    CONNECTIONS = Gauge "howdah_connections" &["state"], "open connections of clients: active with a request, or idle";
    TLS_HANDSHAKES = Counter "howdah_tls_handshakes" &["version"], "handshakes that succeeded";
    TLS_RESUMED = Counter "howdah_tls_sessions_resumed" &[], "handshakes that continued an earlier session";
    TLS_FAILURES = Counter "howdah_tls_handshake_failures" &[], "handshakes that failed";
    CERTIFICATE_EXPIRY = Gauge "howdah_certificate_expiry_timestamp_seconds" &["certificate"], "when the first certificate of a chain expires, in seconds since 1970";

    APPLICATION_UP = Gauge "howdah_application_up" APPLICATION, "1 if the application runs, 0 if it does not start or drains";
    APPLICATION_DRAINED = Gauge "howdah_application_drained" APPLICATION, "1 if the configuration gives the application no new requests: it drains";
    WORKERS = Gauge "howdah_workers" &["application", OPTIONAL_LABEL, "state"], "processes of an application by state: starting, idle, busy, finishing, leaving, ready";
    WORKERS_WANTED = Gauge "howdah_workers_wanted" SCRIPT, "how many processes an application is to have";
    WORKER_STARTS = Counter "howdah_worker_starts" APPLICATION, "processes of an application that were started";
    WORKER_DEATHS = Counter "howdah_worker_deaths" &["application", "cause"], "processes of an application that ended: in_order (retired, or at a limit), signal, exit_code, timeout (of a request), replaced (a worker broke the rules), lost (with its prototype)";
    SIZING_DECISIONS = Counter "howdah_sizing_decisions" &["application", "reason"], "how often the number of workers was changed with `processes`: auto: grown, shrunk, limited_by_memory";
    APPLICATION_REQUESTS = Counter "howdah_worker_requests" APPLICATION, "requests that PHP workers have finished, warm-ups included";
    APPLICATION_CPU = Counter "howdah_worker_cpu_seconds" APPLICATION, "processor time that PHP workers used for requests";
    APPLICATION_BUSY = Counter "howdah_worker_busy_seconds" APPLICATION, "time in which PHP workers ran requests";
    APPLICATION_MEMORY = Gauge "howdah_application_memory_bytes" APPLICATION, "memory that the workers of an application have for themselves";
    OPCACHE_MEMORY = Gauge "howdah_opcache_memory_bytes" &["application", "state"], "opcache's memory, as PHP workers report it: used, free, wasted (of scripts that were replaced)";
    OPCACHE_SCRIPTS = Gauge "howdah_opcache_scripts" APPLICATION, "scripts in opcache's memory";
    OPCACHE_HITS = Counter "howdah_opcache_hits" APPLICATION, "how often opcache had a script that was included";
    OPCACHE_MISSES = Counter "howdah_opcache_misses" APPLICATION, "how often a script that was included had to be compiled";
    OPCACHE_RESTARTS = Counter "howdah_opcache_restarts" APPLICATION, "how often opcache has emptied its memory: it was full, or a script has asked for it";

    UPSTREAM_UP = Gauge "howdah_upstream_server_up" &["upstream", "server"], "1 if a server of an upstream gets requests, 0 if it is down, unhealthy or drained";
    UPSTREAM_DRAINED = Gauge "howdah_upstream_server_drained" &["upstream", "server"], "1 if the configuration gives a server no new requests: it is drained, or its weight is 0";

    SPANS_RECORDED = Counter "howdah_telemetry_spans_recorded" &[], "spans of requests that are traced, whatever became of them";
    SPANS = Counter "howdah_telemetry_spans" &["outcome"], "spans by outcome: sent (the collector has taken them), dropped (the queue was full, or the collector has refused them), lost (the pipe to the process that sends was full)";
    LOG_RECORDS_RECORDED = Counter "howdah_telemetry_log_records_recorded" &[], "lines of logs that are sent to the collector, whatever became of them";
    LOG_RECORDS = Counter "howdah_telemetry_log_records" &["outcome"], "lines of logs by outcome, as those of spans";
    SYSTEM_LOG_LOST = Counter "howdah_system_log_lines_lost" &["log"], "lines for syslog or the journal that are lost: the daemon was away or too slow, or did not take a line of this length";

    PROCESS_CPU = Counter "howdah_process_cpu_seconds" PROCESS, "processor time of the supervisor and of all routers so far";
    PROCESS_MEMORY = Gauge "howdah_process_memory_bytes" PROCESS, "proportional memory (PSS) of the supervisor and of the router, at most ten seconds old";
    PROCESS_DESCRIPTORS = Gauge "howdah_process_open_descriptors" PROCESS, "open descriptors of the supervisor and of the router";
    SCRAPE_TIME = Gauge "howdah_scrape_duration_seconds" &[], "the time that the supervisor took for the text before this one";
}

const UNITS: [&str; 2] = ["seconds", "bytes"];

// === impl Family ===

impl Family {
    /// The unit, which is the end of the name.
    pub fn unit(&self) -> Option<&'static str> {
        let is_end = |unit: &&str| self.name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'));
        UNITS.into_iter().find(|unit| is_end(unit))
    }

    /// The name of its samples; of a histogram, the beginning of their names.
    pub fn sample_name(&self) -> String {
        format!("{}{}", self.name, self.kind.suffix())
    }
}

// === impl Kind ===

impl Kind {
    /// The end of its samples' names.
    pub fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        }
    }

    /// Its name in both formats.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::path::Path;

    const BEGIN: &str =
        "<!-- The table of families: `UPDATE_DOCS=1 cargo test -p howdah-metrics tables_of` writes it. -->\n";

    #[test]
    fn names_follow_prometheus_conventions() {
        let names: BTreeSet<_> = ALL.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), ALL.len(), "each name is used once");
        for family in ALL {
            let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(family.name.starts_with("howdah_") && is_plain(family.name), "{}", family.name);
            assert!(family.labels.iter().all(|label| is_plain(label) && *label != "le"), "{}", family.name);
            assert!(!family.name.ends_with("_total") && !family.name.ends_with("_info"), "{}", family.name);
            assert!(family.kind != Kind::Histogram || family.unit() == Some("seconds"), "{}", family.name);
        }
    }

    #[test]
    fn tables_of_docs_have_all_families() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/observability.md");
        let text = std::fs::read_to_string(&path).expect("the page exists");
        let (before, rest) = text.split_once(BEGIN).expect("the page has the mark of the table");
        let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
        let mut table = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for family in ALL {
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind, labels) = (family.sample_name(), family.kind.name(), labels.join(", "));
            let _ = writeln!(table, "| `{name}` | {kind} | {labels} | {} |", family.help);
        }
        let expected = format!("{before}{BEGIN}{table}{}", &rest[end..]);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &expected).expect("the page can be written");
        }
        let current = std::fs::read_to_string(&path).expect("the page exists");
        assert!(current == expected, "docs/observability.md differs: run the tests with UPDATE_DOCS=1");
    }
}
