//! `tls`: the certificates of a listener, its TLS policy, and how clients resume sessions.

pub(crate) mod acme;
pub(crate) mod clients;
pub(crate) mod conf_commands;
pub(crate) mod hsts;
pub(crate) mod names;

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::document::secrets;
use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::tls::acme::Acme;
use crate::tls::clients::ClientCertificates;
use crate::tls::conf_commands::TlsPolicy;
use crate::tls::hsts::Hsts;
use crate::tls::names::read_certificate;

pub(crate) const OPTIONS: Options = Options {
    known: &["certificate", "acme", "conf_commands", "session", "client_ca", "client_verify", "hsts"],
    unsupported: &[],
};
pub(crate) const SESSION_OPTIONS: Options = Options { known: &["cache_size", "timeout", "tickets"], unsupported: &[] };

/// The name of an uploaded certificate has no slash.
const ACME_PREFIX: &str = "acme/";
const MAX_CACHED_SESSIONS: u64 = 10_000_000;
const MAX_TIMEOUT_SECONDS: u64 = 7 * 24 * 60 * 60;
const MAX_TICKET_KEYS: usize = 1000;

/// TLS on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The names of the certificates, each once; at least one, unless there are names on demand. The first certificate that matches the server name of
    /// the client is used, an exact match before a wildcard; without a match, the first certificate. The certificate of
    /// a domain of `acme` has the name [`Tls::acme_certificate`], which no uploaded certificate can have.
    pub certificates: Vec<String>,
    /// The domains whose certificates howdah obtains by itself; `None`: none.
    pub acme: Option<Acme>,
    /// `conf_commands`: versions, cipher suites and so on.
    pub policy: TlsPolicy,
    /// How clients resume their sessions.
    pub session: TlsSession,
    /// The certificates of clients; `None`: clients are not asked for one.
    pub clients: Option<ClientCertificates>,
    /// `Strict-Transport-Security`; `None`: no such header is added.
    pub hsts: Option<Hsts>,
}

/// How clients resume TLS sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSession {
    /// The number of sessions in the cache, up to 10,000,000. Default: 0, no cache.
    pub cache_size: u32,
    /// The time that a session may be resumed, one second to 7 days. Default: 300 s.
    pub timeout: Duration,
    /// Whether clients store their sessions in tickets. Default: off.
    pub tickets: Tickets,
}

/// Session tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tickets {
    /// `false`: no tickets.
    Off,
    /// `true`: with a random key that howdah replaces regularly.
    RandomKey,
    /// With these keys, at least one. The last key encrypts new tickets; tickets of all keys are accepted.
    Keys(Vec<TicketKey>),
}

/// A key for session tickets, in OpenSSL's format. It is a secret: `Debug` does not show it.
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
        let acme = object.read("acme", |node| Acme::read(node, scope))?;
        let mut certificates: Vec<String> = Vec::new();
        if acme.is_none() || object.get("certificate").is_some() {
            let certificate = object.require("certificate", "the name of a certificate that is stored, or \"acme\"")?;
            for name in certificate.one_or_many(|node| read_certificate(node, scope))? {
                // The second mention of a name has no effect.
                if !certificates.contains(&name) {
                    certificates.push(name);
                }
            }
            if certificates.is_empty() {
                return Err(certificate.error("the array is empty; add the name of a certificate"));
            }
        }
        certificates.extend(acme.iter().flat_map(|acme| &acme.domains).map(|domain| Self::acme_certificate(domain)));
        let session = object.read("session", TlsSession::read)?.unwrap_or_default();
        let clients = ClientCertificates::read(&object, scope)?;
        if let Some(node) = object.get("client_ca").filter(|_| matches!(session.tickets, Tickets::Keys(_))) {
            return Err(node.error(
                "a session with a shared key could begin on a listener that asks for no certificate; with \"client_ca\", \
                 write \"tickets\": true",
            ));
        }
        Ok(Self {
            certificates,
            acme,
            policy: object.read("conf_commands", TlsPolicy::read)?.unwrap_or_default(),
            session,
            clients,
            hsts: object.read("hsts", Hsts::read)?,
        })
    }

    /// The name of the certificate that howdah obtains for this domain.
    pub fn acme_certificate(domain: &str) -> String {
        format!("{ACME_PREFIX}{domain}")
    }

    /// The domain of a certificate that howdah obtains; `None` for an uploaded one.
    pub fn acme_domain(certificate: &str) -> Option<&str> {
        certificate.strip_prefix(ACME_PREFIX)
    }

    /// The names of all certificates that a handshake uses: its own, and those of the authorities of clients.
    pub fn all_certificates(&self) -> impl Iterator<Item = &str> {
        let authorities = self.clients.iter().flat_map(|clients| &clients.authorities);
        self.certificates.iter().chain(authorities).map(String::as_str)
    }
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
        let timeout = object.read("timeout", |node| duration::whole_seconds(node, 1..=MAX_TIMEOUT_SECONDS))?;
        Ok(Self {
            cache_size: cache_size.unwrap_or(default.cache_size),
            timeout: timeout.unwrap_or(default.timeout),
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
            return Err(node.error(format_args!("there are {} keys; write at most {MAX_TICKET_KEYS}", keys.len())));
        }
        Ok(if keys.is_empty() { Self::Off } else { Self::Keys(keys) })
    }
}

// === impl TicketKey ===

impl TicketKey {
    /// Reads a key. Errors do not repeat the text, because it may be nearly a valid key.
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let advice = "write 48 or 80 random bytes in base64, as from: openssl rand -base64 80";
        let text = node.string()?;
        if secrets::is_hidden(&text) {
            return Err(node.error(
                "this text stands for a hidden key that the active configuration does not have; write the key itself, or \
                 the text that GET shows for a key that is to be kept",
            ));
        }
        let bytes = STANDARD.decode(text).map_err(|_| node.error(format_args!("the key is not base64; {advice}")))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CertificateNames, Configuration, Context};

    fn parse(tls: &str) -> Result<Tls, String> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let known = CertificateNames { with_key: names(&["shop", "blog"]), authorities: names(&["internal"]) };
        let text = format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "tls": {tls}}}}}}}"#);
        let parsed = Configuration::parse_in(&text, Context { certificates: Some(&known) });
        let mut configuration = parsed.map_err(|error| error.to_string())?;
        Ok(configuration.listeners.remove(0).tls.expect("TLS"))
    }

    fn session(session: &str) -> Result<TlsSession, String> {
        parse(&format!(r#"{{"certificate": "shop", "session": {session}}}"#)).map(|tls| tls.session)
    }

    #[test]
    fn every_option_is_read() {
        let one = parse(r#"{"certificate": "shop"}"#).expect("TLS");
        assert_eq!((one.certificates, one.policy), (vec!["shop".to_owned()], TlsPolicy::default()));
        assert_eq!(one.session, TlsSession::default());
        assert_eq!(parse(r#"{"certificate": ["shop", "blog"]}"#).expect("TLS").certificates, ["shop", "blog"]);
        let key = |length: usize| STANDARD.encode(vec![7; length]);
        let cases = [
            ("{}".to_owned(), TlsSession::default()),
            (
                r#"{"cache_size": 10240, "timeout": 60, "tickets": true}"#.to_owned(),
                TlsSession { cache_size: 10240, timeout: Duration::from_secs(60), tickets: Tickets::RandomKey },
            ),
            (
                format!(r#"{{"tickets": "{}"}}"#, key(48)),
                TlsSession { tickets: Tickets::Keys(vec![TicketKey::Aes128([7; 48])]), ..TlsSession::default() },
            ),
            (
                format!(r#"{{"tickets": ["{}", "{}"]}}"#, key(80), key(48)),
                TlsSession {
                    tickets: Tickets::Keys(vec![TicketKey::Aes256([7; 80]), TicketKey::Aes128([7; 48])]),
                    ..TlsSession::default()
                },
            ),
            (r#"{"tickets": []}"#.to_owned(), TlsSession::default()),
            (r#"{"tickets": false}"#.to_owned(), TlsSession::default()),
        ];
        for (json, expected) in cases {
            assert_eq!(session(&json), Ok(expected), "{json}");
        }
    }

    #[test]
    fn clients_are_asked_for_certificates() {
        let clients = |options: &str| parse(&format!(r#"{{"certificate": "shop"{options}}}"#)).map(|tls| tls.clients);
        let expected = |authorities: &[&str], required| {
            let authorities = authorities.iter().map(|name| (*name).to_owned()).collect();
            Ok(Some(ClientCertificates { authorities, required }))
        };
        assert_eq!(clients(""), Ok(None));
        assert_eq!(clients(r#", "client_ca": "internal""#), expected(&["internal"], true));
        let optional = r#", "client_ca": ["internal", "blog", "internal"], "client_verify": "optional""#;
        assert_eq!(clients(optional), expected(&["internal", "blog"], false));
        let tls = parse(&format!(r#"{{"certificate": "shop"{optional}}}"#)).expect("TLS");
        assert_eq!(tls.all_certificates().collect::<Vec<_>>(), ["shop", "internal", "blog"]);
    }

    #[test]
    fn hsts_is_a_header() {
        for (json, expected) in [
            ("{}", "max-age=31536000"),
            (r#"{"max_age": 60, "include_subdomains": true}"#, "max-age=60; includeSubDomains"),
            (r#"{"include_subdomains": true, "preload": true}"#, "max-age=31536000; includeSubDomains; preload"),
            (r#"{"max_age": 0, "preload": false}"#, "max-age=0"),
        ] {
            let hsts = parse(&format!(r#"{{"certificate": "shop", "hsts": {json}}}"#)).expect(json).hsts;
            assert_eq!(hsts.expect(json).header, expected);
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = TicketKey::Aes128([7; 48]);
        assert_eq!(format!("{:?}", Tickets::Keys(vec![key])), "Keys([Aes128(..)])");
        let almost = format!(r#"{{"tickets": "{}"}}"#, STANDARD.encode([7; 47]));
        let error = session(&almost).expect_err("47 bytes");
        assert!(!error.contains("BwcH") && error.contains("the key has 47 bytes; write 48 or 80 random"), "{error}");
    }

    #[test]
    fn shared_keys_of_sessions_do_not_bypass_certificates_of_clients() {
        let key = STANDARD.encode([7; 80]);
        let with = |tickets: &str| {
            parse(&format!(
                r#"{{"certificate": "shop", "client_ca": "internal", "session": {{"tickets": {tickets}}}}}"#
            ))
        };
        let error = with(&format!("[\"{key}\"]")).expect_err("a shared key");
        assert!(error.contains("/client_ca: a session with a shared key") && !error.contains(&key), "{error}");
        assert!(with("true").is_ok());
    }

    #[test]
    fn an_error_names_the_option() {
        let cases = [
            ("{}", ": \"certificate\" is missing; add the name of a certificate that is stored, or \"acme\""),
            (r#"{"certificate": []}"#, "/certificate: the array is empty; add the name of a certificate"),
            (r#"{"certificate": "shp"}"#, "/certificate: there is no certificate \"shp\"; did you mean \"shop\"?"),
            (
                r#"{"certificate": ["shop", "other"]}"#,
                "/certificate/1: there is no certificate \"other\"; upload it first: howdah certificate put",
            ),
            (r#"{"certificate": "shop", "key": "x"}"#, "/key: there is no such option; remove it"),
            (
                r#"{"certificate": "shop", "client_ca": []}"#,
                "/client_ca: the array is empty; add the name of the uploaded authorities",
            ),
            (
                r#"{"certificate": "shop", "client_ca": "interna"}"#,
                "/client_ca: there is no certificate \"interna\"; did you mean \"internal\"?",
            ),
            (
                r#"{"certificate": "shop", "client_verify": "optional"}"#,
                "/client_verify: \"client_ca\" is missing; add the name of the uploaded authorities",
            ),
            (
                r#"{"certificate": "shop", "client_ca": "internal", "client_verify": "maybe"}"#,
                "/client_verify: \"maybe\" is not possible here; write \"required\" or \"optional\"",
            ),
            (
                r#"{"certificate": "shop", "hsts": {"preload": true}}"#,
                "/hsts/preload: browsers accept this only with \"include_subdomains\": true and a \"max_age\" of at least 31536000",
            ),
            (
                r#"{"certificate": "shop", "hsts": {"max_age": -1}}"#,
                "/hsts/max_age: -1 is out of range; write 0 to 315360000 seconds",
            ),
            (
                r#"{"certificate": "shop", "session": {"cache_size": -1}}"#,
                "/session/cache_size: -1 is out of range; write 0 to 10000000 sessions",
            ),
            (
                r#"{"certificate": "shop", "session": {"timeout": 0}}"#,
                "/session/timeout: 0 is out of range; write 1 to 604800 seconds",
            ),
            (
                r#"{"certificate": "shop", "session": {"tickets": 1}}"#,
                "/session/tickets: expected true, false, a key or an array of keys, found the number 1",
            ),
            (
                r#"{"certificate": "shop", "session": {"tickets": ["%"]}}"#,
                "/session/tickets/0: the key is not base64; write 48 or 80 random bytes in base64, as from: openssl rand -base64 80",
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(format!("listeners/*:1/tls{expected}")), "{json}");
        }
    }
}
