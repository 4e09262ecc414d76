//! The values that a label of a request can have. All of them are known before a client sends anything.

/// A name of the configuration, as a hash: of an application or of a step of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u64);

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// Any other one.
    Other,
}

/// The part of howdah that answered a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Responder {
    /// howdah itself: an error, or bytes that are no request.
    #[default]
    Howdah,
    /// An application.
    Application,
    /// A file of a `share`.
    File,
    /// An action `proxy`, or a server of `upstreams`.
    Proxy,
    /// An action `return`.
    Return,
}

/// Why howdah refused a request, or could not answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No worker took it in time, or would.
    Queue,
    /// Requests of its kind kill workers.
    KillsWorkers,
    /// The application does not start.
    NotStarted,
    /// The application drains.
    Drained,
    /// The client has sent too many requests: `rate_limit` or `connection_limit`.
    Limit,
    /// The worker died with it.
    WorkerDied,
    /// It took too long.
    Timeout,
    /// The worker or the upstream sent no valid response.
    BadGateway,
    /// It was no valid request, or too large.
    BadRequest,
    /// The client left before the answer.
    ClientLeft,
    /// The disk or the memory was full, or howdah has a bug.
    Internal,
}

/// The methods in their order.
pub const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"];
/// The classes of status in their order.
pub const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// The responders in their order.
pub const RESPONDERS: [&str; 5] = ["howdah", "application", "file", "proxy", "return"];
/// The causes in their order.
pub const CAUSES: [&str; 11] = [
    "queue",
    "kills_workers",
    "not_started",
    "drained",
    "limit",
    "worker_died",
    "timeout",
    "bad_gateway",
    "bad_request",
    "client_left",
    "internal",
];

// === impl NameId ===

impl NameId {
    /// No name.
    pub const NONE: NameId = NameId(0);

    /// The id of a name, the same in every process. Names of one configuration never meet by accident: eight bytes at a
    /// time are multiplied to 128 bits, whose halves are folded, as in wyhash (Wang Yi).
    pub fn of(name: &str) -> NameId {
        const SEED: u64 = 0xcbf2_9ce4_8422_2325;
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let fold = |hash: u64, bytes: u64| {
            let product = u128::from(hash ^ bytes) * u128::from(MULTIPLIER);
            (product as u64) ^ ((product >> 64) as u64)
        };
        let (whole, rest) = name.as_bytes().as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let hash = whole.iter().fold(SEED, |hash, bytes| fold(hash, u64::from_le_bytes(*bytes)));
        let hash = fold(fold(hash, u64::from_le_bytes(last)), name.len() as u64);
        NameId(hash.max(1))
    }
}

// === impl Method ===

impl Method {
    /// The method with this name.
    pub fn of(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        }
    }
}

/// The index of the class of a status.
pub fn class(status: u16) -> usize {
    usize::from(status / 100).clamp(1, CLASSES.len()) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_of_a_client_is_a_known_one_or_other() {
        for (index, name) in METHODS.iter().enumerate() {
            assert_eq!(Method::of(name) as usize, index);
        }
        assert_eq!((Method::of("get"), Method::of("\"}\n")), (Method::Other, Method::Other));
    }

    #[test]
    fn a_status_has_a_class() {
        let classes = [100, 204, 301, 499, 599, 0, 999].map(|status| CLASSES[class(status)]);
        assert_eq!(classes, ["1xx", "2xx", "3xx", "4xx", "5xx", "1xx", "5xx"]);
    }

    #[test]
    fn names_have_different_ids_and_none_is_no_name() {
        let routes = (0..100).flat_map(|route| (0..100).map(move |step| format!("routes/{route}/{step}")));
        // The end of the last eight bytes is not a byte of the name.
        let names =
            ["", "\0", "shop", "shop2", "shop2shop2", "routes/0", "routes/0\0", "routes/main/0"].map(String::from);
        let names: Vec<_> = routes.chain(names).collect();
        let ids: std::collections::BTreeSet<_> = names.iter().map(|name| NameId::of(name)).collect();
        assert_eq!(ids.len(), names.len());
        assert!(!ids.contains(&NameId::NONE));
    }

    #[test]
    fn the_last_values_are_within_their_tables() {
        assert_eq!(CAUSES[Cause::Internal as usize], "internal");
        assert_eq!(RESPONDERS[Responder::Return as usize], "return");
    }
}
