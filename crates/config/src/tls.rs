//! `tls`: the certificates of a listener, and how its clients resume their sessions.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Error, did_you_mean, quoted};
use crate::node::{Node, Options};
use crate::scope::Scope;
use crate::tls_policy::TlsPolicy;

const OPTIONS: Options = Options { known: &["certificate", "conf_commands", "session"], not_yet: &[] };
const SESSION_OPTIONS: Options = Options { known: &["cache_size", "timeout", "tickets"], not_yet: &[] };

const MAX_CACHED_SESSIONS: u64 = 10_000_000;
const MAX_TIMEOUT_SECONDS: u64 = 7 * 24 * 60 * 60;
const MAX_TICKET_KEYS: usize = 1000;

/// TLS on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The names of the certificates, one at least, each once. The first that fits the name which the client asks for
    /// is taken, an exact fit before a wildcard's; if none fits, the first.
    pub certificates: Vec<String>,
    /// `conf_commands`: versions, cipher suites and so on.
    pub policy: TlsPolicy,
    /// How clients resume their sessions.
    pub session: TlsSession,
}

/// How clients resume TLS sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSession {
    /// How many sessions are remembered, up to 10,000,000: 0, which is none.
    pub cache_size: u32,
    /// How long a session may be resumed, one second to 7 days: 300 s.
    pub timeout: Duration,
    /// Whether clients remember sessions themselves: no.
    pub tickets: Tickets,
}

/// Session tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tickets {
    /// `false`: clients get none.
    Off,
    /// `true`: with a key that howdah draws and changes by itself.
    RandomKey,
    /// With these keys, one at least. The last one makes tickets, all of them are accepted.
    Keys(Vec<TicketKey>),
}

/// A key for session tickets, in OpenSSL's form. It is a secret, which its `Debug` does not tell.
#[derive(Clone, PartialEq, Eq)]
pub enum TicketKey {
    /// A name of 16 bytes, 16 bytes for HMAC-SHA256, 16 bytes for AES-128-CBC.
    Aes128([u8; 48]),
    /// A name of 16 bytes, 32 bytes for HMAC-SHA256, 32 bytes for AES-256-CBC.
    Aes256([u8; 80]),
}

// === impl Tls ===

impl Tls {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let certificate = object.require("certificate", "the name of a certificate that is stored")?;
        let certificates = certificate.one_or_many(|node| read_certificate(node, scope))?;
        if certificates.is_empty() {
            return Err(certificate.error("the array is empty; add the name of a certificate"));
        }
        for (at, name) in certificates.iter().enumerate() {
            if certificates[..at].contains(name) {
                return Err(certificate.error(format_args!("{} is there twice; remove one", quoted(name))));
            }
        }
        Ok(Self {
            certificates,
            policy: object.read("conf_commands", TlsPolicy::read)?.unwrap_or_default(),
            session: object.read("session", TlsSession::read)?.unwrap_or_default(),
        })
    }
}

fn read_certificate(node: &Node<'_>, scope: &Scope<'_>) -> Result<String, Error> {
    let name = node.nonempty_string()?;
    if let Some(known) = scope.context.certificates.filter(|known| !known.contains(&name)) {
        let similar = did_you_mean(&name, known.iter().map(String::as_str));
        let otherwise = if similar.is_empty() { "; upload it first: howdah certificate put" } else { &similar };
        return Err(node.error(format_args!("there is no certificate {}{otherwise}", quoted(&name))));
    }
    Ok(name)
}

// === impl TlsSession ===

impl Default for TlsSession {
    fn default() -> Self {
        Self { cache_size: 0, timeout: Duration::from_secs(300), tickets: Tickets::Off }
    }
}

impl TlsSession {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&SESSION_OPTIONS)?;
        let default = Self::default();
        let cache_size = object.read("cache_size", |node| node.integer(0..=MAX_CACHED_SESSIONS, "sessions"))?;
        let timeout = object.read("timeout", |node| node.integer(1..=MAX_TIMEOUT_SECONDS, "seconds"))?;
        Ok(Self {
            cache_size: cache_size.unwrap_or(default.cache_size),
            timeout: timeout.map_or(default.timeout, Duration::from_secs),
            tickets: object.read("tickets", Tickets::read)?.unwrap_or(default.tickets),
        })
    }
}

// === impl Tickets ===

impl Tickets {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        if !node.is_string() && !node.is_array() {
            let expected = || node.expected("true, false, a key or an array of keys");
            return Ok(if node.boolean().map_err(|_| expected())? { Self::RandomKey } else { Self::Off });
        }
        let keys = node.one_or_many(TicketKey::read)?;
        if keys.len() > MAX_TICKET_KEYS {
            return Err(node.error(format_args!("there are {} keys; write {MAX_TICKET_KEYS} at most", keys.len())));
        }
        Ok(if keys.is_empty() { Self::Off } else { Self::Keys(keys) })
    }
}

// === impl TicketKey ===

impl TicketKey {
    /// No error repeats the text: it may be almost a key.
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let advice = "write 48 or 80 random bytes in base64, as from: openssl rand -base64 80";
        let bytes = STANDARD.decode(node.string()?).map_err(|_| node.error(format_args!("not base64; {advice}")))?;
        if let Ok(key) = <[u8; 48]>::try_from(bytes.as_slice()) {
            return Ok(Self::Aes128(key));
        }
        let length = bytes.len();
        let key = bytes.try_into().map(Self::Aes256);
        key.map_err(|_| node.error(format_args!("the key has {length} bytes; {advice}")))
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128(_) => "Aes128(..)",
            Self::Aes256(_) => "Aes256(..)",
        })
    }
}
