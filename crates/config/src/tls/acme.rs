//! `acme`: certificates that howdah obtains and renews by itself (RFC 8555).

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::document::secrets;
use crate::error::{Error, quoted};
use crate::read::duration;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::tls::names::read_authority;

pub(crate) const OPTIONS: Options = Options {
    known: &["domains", "contact", "authorities", "challenges", "dns", "key", "on_demand"],
    unsupported: &[],
};
pub(crate) const AUTHORITY_OPTIONS: Options =
    Options { known: &["directory", "external_account", "roots"], unsupported: &[] };
pub(crate) const EXTERNAL_ACCOUNT_OPTIONS: Options = Options { known: &["key_id", "hmac_key"], unsupported: &[] };
pub(crate) const ON_DEMAND_OPTIONS: Options = Options { known: &["ask", "names"], unsupported: &[] };
pub(crate) const DNS_OPTIONS: Options = Options { known: &["command", "wait"], unsupported: &[] };

/// Directories with a short name.
const DIRECTORIES: [(&str, &str); 2] = [
    ("letsencrypt", "https://acme-v02.api.letsencrypt.org/directory"),
    ("letsencrypt-staging", "https://acme-staging-v02.api.letsencrypt.org/directory"),
];
const MAX_DOMAINS: usize = 1000;
/// The DNS allows 253, but the certificate's file has the name and an ending, and another one while it is written: 255 at most.
const MAX_NAME_BYTES: usize = 240;
const MAX_LABEL_BYTES: usize = 63;
const MAX_WAIT_SECONDS: u64 = 3600;
const MIN_HMAC_BYTES: usize = 16;
const MAX_NAMES_ON_DEMAND: u32 = 10_000;
const DEFAULT_NAMES_ON_DEMAND: u32 = 1000;
const DEFAULT_DNS_WAIT: Duration = Duration::from_secs(30);

/// Certificates of a listener that howdah obtains: one for each domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// The names, in lower case, each once; at least one, unless there is `on_demand`.
    pub domains: Vec<String>,
    /// How the certificates are obtained.
    pub issuance: AcmeIssuance,
    /// Whether clients may ask for further names.
    pub on_demand: Option<OnDemand>,
}

/// Certificates of names that clients ask for, and that a program of the operator allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// The URL of the program: HTTPS, or HTTP on this machine.
    pub ask: String,
    /// The most names, 1 to 10,000. Default: 1000.
    pub names: u32,
}

/// How certificates are obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeIssuance {
    /// A `mailto:` URL that authorities may write to.
    pub contact: Option<String>,
    /// The authorities, at least one. If one cannot be used, the next one is asked.
    pub authorities: Vec<AcmeAuthority>,
    /// How control over a domain is proven, at least one way. If one fails, the next one is tried.
    pub challenges: Vec<AcmeChallenge>,
    /// The command that changes the DNS; always there with DNS-01.
    pub dns: Option<DnsHook>,
    /// The kind of the keys of new certificates.
    pub key: AcmeKey,
}

/// The kind of a key. RSA is not among them: ring cannot make such keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcmeKey {
    /// ECDSA with P-256.
    #[default]
    P256,
    /// ECDSA with P-384.
    P384,
}

/// A certificate authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeAuthority {
    /// The URL of its directory: HTTPS, or HTTP on this machine.
    pub directory: String,
    /// The account that it knows already (EAB).
    pub external_account: Option<ExternalAccount>,
    /// The name of uploaded certificates that verify the authority's server; `None`: those of the system.
    pub roots: Option<String>,
}

/// An account outside of ACME. `Debug` does not show its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Its identifier.
    pub key_id: String,
    /// Its key.
    pub hmac_key: Vec<u8>,
}

/// A way to prove control over a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AcmeChallenge {
    /// HTTP-01: a request on port 80.
    Http,
    /// TLS-ALPN-01 (RFC 8737): a handshake on port 443.
    TlsAlpn,
    /// DNS-01: a TXT record.
    Dns,
}

/// A command that changes the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsHook {
    /// The program, an absolute path, and its arguments.
    pub command: Vec<String>,
    /// The time after a change until all servers of the zone have it.
    pub wait: Duration,
}

// === impl Acme ===

impl Acme {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let dns = object.read("dns", DnsHook::read)?;
        let challenges = match object.get("challenges") {
            Some(node) => read_challenges(&node, dns.is_some())?,
            None if dns.is_some() => vec![AcmeChallenge::Dns],
            None => vec![AcmeChallenge::TlsAlpn, AcmeChallenge::Http],
        };
        let on_demand = object.read("on_demand", OnDemand::read)?;
        let only_dns = challenges == [AcmeChallenge::Dns];
        let domains = match object.get("domains") {
            None if on_demand.is_some() => Vec::new(),
            _ => {
                let node = object.require("domains", "the names of the certificates, as in [\"shop.example\"]")?;
                read_domains(&node, only_dns)?
            }
        };
        let authorities = object.read("authorities", |node| read_authorities(node, scope))?;
        Ok(Self {
            domains,
            issuance: AcmeIssuance {
                contact: object.read("contact", read_contact)?,
                authorities: authorities.unwrap_or_else(|| vec![AcmeAuthority::default()]),
                challenges,
                dns,
                key: object.read("key", read_key)?.unwrap_or_default(),
            },
            on_demand,
        })
    }
}

fn read_key(node: &Node<'_>) -> Result<AcmeKey, Error> {
    let text = node.nonempty_string()?;
    if text.starts_with("rsa") {
        let advice = "write \"p256\" or \"p384\", or upload a certificate with such a key";
        return Err(node.error(format_args!("howdah does not make RSA keys; {advice}")));
    }
    node.one_of(&[("p256", AcmeKey::P256), ("p384", AcmeKey::P384)])
}

fn read_domains(node: &Node<'_>, only_dns: bool) -> Result<Vec<String>, Error> {
    let mut domains = Vec::new();
    for domain in node.one_or_many(|node| read_domain(node, only_dns))? {
        if !domains.contains(&domain) {
            domains.push(domain);
        }
    }
    match domains.len() {
        0 => Err(node.error("the array is empty; add a name, as in [\"shop.example\"]")),
        1..=MAX_DOMAINS => Ok(domains),
        count => Err(node.error(format_args!("there are {count} names; write at most {MAX_DOMAINS}"))),
    }
}

/// Whether this is the name of a domain, in lower case, and no address. A certificate for it can be stored.
pub fn is_domain_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= MAX_NAME_BYTES && text.split('.').all(is_label) && text.parse::<IpAddr>().is_err()
}

/// Reads a domain, without a dot at its end. An internationalized one is written in ASCII.
fn read_domain(node: &Node<'_>, only_dns: bool) -> Result<String, Error> {
    let text = node.nonempty_string()?.to_ascii_lowercase();
    if text.parse::<IpAddr>().is_ok() {
        return Err(node.error(format_args!("{} is an address; write a domain name", quoted(&text))));
    }
    if !text.is_ascii() {
        return Err(node.error(format_args!("{} has other than ASCII characters; write it as xn--…", quoted(&text))));
    }
    let name = text.strip_prefix("*.").unwrap_or(&text);
    if text.len() > MAX_NAME_BYTES {
        return Err(node.error(format_args!("the name has {} bytes; at most {MAX_NAME_BYTES} are allowed", text.len())));
    }
    if !is_domain_name(name) {
        let problem = "is not a domain name; write it as in shop.example, without a scheme, a port or a path";
        return Err(node.error(format_args!("{} {problem}", quoted(&text))));
    }
    if text.starts_with("*.") && !only_dns {
        let problem = "a wildcard is proven over the DNS only; add \"dns\" with the command that changes it";
        return Err(node.error(format_args!("{}: {problem}", quoted(&text))));
    }
    Ok(text)
}

fn read_contact(node: &Node<'_>) -> Result<String, Error> {
    let text = node.nonempty_string()?;
    let address = text.strip_prefix("mailto:").unwrap_or(&text);
    let is_address = address.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    if !is_address || address.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',' || c == '?') {
        return Err(node.error(format_args!("{} is not an e-mail address", quoted(&text))));
    }
    Ok(format!("mailto:{address}"))
}

fn read_challenges(node: &Node<'_>, has_dns: bool) -> Result<Vec<AcmeChallenge>, Error> {
    let mut challenges = Vec::new();
    let words = [AcmeChallenge::Http, AcmeChallenge::TlsAlpn, AcmeChallenge::Dns].map(|kind| (kind.as_str(), kind));
    let read = |node: &Node<'_>| {
        let challenge = node.one_of(&words)?;
        if challenge == AcmeChallenge::Dns && !has_dns {
            return Err(node.error("\"dns\" is missing; add it with the command that changes the DNS"));
        }
        Ok(challenge)
    };
    for challenge in node.one_or_many(read)? {
        if !challenges.contains(&challenge) {
            challenges.push(challenge);
        }
    }
    if challenges.is_empty() {
        return Err(node.error("the array is empty; remove it to get the default"));
    }
    Ok(challenges)
}

fn read_authorities(node: &Node<'_>, scope: &Scope<'_>) -> Result<Vec<AcmeAuthority>, Error> {
    if !node.is_array() {
        return Ok(vec![AcmeAuthority::read(node, scope)?]);
    }
    let authorities: Vec<_> =
        node.elements()?.map(|node| AcmeAuthority::read(&node, scope)).collect::<Result<_, _>>()?;
    if authorities.is_empty() {
        return Err(node.error("the array is empty; remove it to get the default"));
    }
    Ok(authorities)
}

// === impl AcmeAuthority ===

impl Default for AcmeAuthority {
    fn default() -> Self {
        Self { directory: DIRECTORIES[0].1.to_owned(), external_account: None, roots: None }
    }
}

impl AcmeAuthority {
    fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&AUTHORITY_OPTIONS)?;
        let directory = object.require("directory", "the URL of the authority's directory, or \"letsencrypt\"")?;
        Ok(Self {
            directory: read_directory(&directory)?,
            external_account: object.read("external_account", ExternalAccount::read)?,
            roots: object.read("roots", |node| read_authority(node, scope))?,
        })
    }
}

fn read_directory(node: &Node<'_>) -> Result<String, Error> {
    let text = node.nonempty_string()?;
    if let Some((_, url)) = DIRECTORIES.iter().find(|(name, _)| *name == text) {
        return Ok((*url).to_owned());
    }
    check_url(node, &text, "a directory", "write https://HOST/PATH, \"letsencrypt\" or \"letsencrypt-staging\"")?;
    Ok(text)
}

/// A URL that is asked over HTTPS, or over HTTP on this machine.
fn check_url(node: &Node<'_>, text: &str, what: &str, advice: &str) -> Result<(), Error> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    if authority.is_empty() || authority.contains('@') || !is_printable || !matches!(scheme, "http" | "https") {
        return Err(node.error(format_args!("{} is not the URL of {what}; {advice}", quoted(text))));
    }
    let host = authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(authority, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    if scheme == "http" && host != "localhost" && !address.is_ok_and(|address| address.is_loopback()) {
        return Err(node.error(format_args!("{what} is asked over HTTPS only, except on this machine; {advice}")));
    }
    Ok(())
}

// === impl OnDemand ===

impl OnDemand {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&ON_DEMAND_OPTIONS)?;
        let ask =
            object.require("ask", "the URL of the program that allows names, as in http://127.0.0.1:9000/allowed")?;
        let text = ask.nonempty_string()?;
        check_url(&ask, &text, "a program", "write http://127.0.0.1:PORT/PATH or https://HOST/PATH")?;
        let names = object.read("names", |node| node.integer(1..=MAX_NAMES_ON_DEMAND, "names"))?;
        Ok(Self { ask: text, names: names.unwrap_or(DEFAULT_NAMES_ON_DEMAND) })
    }
}

// === impl ExternalAccount ===

impl ExternalAccount {
    /// Errors do not repeat the key.
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&EXTERNAL_ACCOUNT_OPTIONS)?;
        let key_id = object.require("key_id", "the identifier that the authority gave you")?.nonempty_string()?;
        let node = object.require("hmac_key", "the key that the authority gave you")?;
        let text = node.nonempty_string()?;
        if secrets::is_hidden(&text) {
            return Err(node.error(
                "this text stands for a hidden key that the active configuration does not have; write the key itself",
            ));
        }
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=').replace('+', "-").replace('/', "_"));
        match bytes {
            Ok(hmac_key) if hmac_key.len() >= MIN_HMAC_BYTES => Ok(Self { key_id, hmac_key }),
            _ => Err(node.error("this is not a key in Base64; copy it as the authority shows it")),
        }
    }
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

// === impl AcmeChallenge ===

impl AcmeChallenge {
    /// Its name in ACME.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
            Self::Dns => "dns-01",
        }
    }
}

// === impl DnsHook ===

impl DnsHook {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&DNS_OPTIONS)?;
        let node = object.require("command", "the program that changes the DNS, with its arguments")?;
        let command = node.one_or_many(Node::string)?;
        match command.first() {
            Some(program) if program.starts_with('/') => {}
            Some(program) => {
                return Err(
                    node.error(format_args!("{} is not an absolute path; begin it with \"/\"", quoted(program)))
                );
            }
            None => return Err(node.error("the array is empty; add the program")),
        }
        let wait = object.read("wait", |node| duration::whole_seconds(node, 0..=MAX_WAIT_SECONDS))?;
        Ok(Self { command, wait: wait.unwrap_or(DEFAULT_DNS_WAIT) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhM";

    fn parse(acme: &str) -> Result<Acme, String> {
        let text =
            format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "tls": {{"acme": {acme}}}}}}}}}"#);
        let mut configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        Ok(configuration.listeners.remove(0).tls.and_then(|tls| tls.acme).expect("acme"))
    }

    /// A name with this number of bytes.
    fn long_name(bytes: usize) -> String {
        let name = "abcd.".repeat(bytes.div_ceil(5));
        format!("{}x", &name[..bytes - 1])
    }

    #[test]
    fn the_default_is_lets_encrypt_without_the_dns() {
        let acme = parse(r#"{"domains": "Shop.Example"}"#).expect("acme");
        assert_eq!(acme.domains, ["shop.example"]);
        let AcmeIssuance { contact, authorities, challenges, dns, key } = acme.issuance;
        assert_eq!((contact, dns, key), (None, None, AcmeKey::P256));
        assert_eq!(authorities, [AcmeAuthority::default()]);
        assert_eq!(challenges, [AcmeChallenge::TlsAlpn, AcmeChallenge::Http]);
    }

    #[test]
    fn every_option_is_read() {
        let text = format!(
            r#"{{"domains": ["*.shop.example", "shop.example", "shop.example"], "contact": "ops@shop.example",
                "authorities": [{{"directory": "letsencrypt-staging"}}, {{"directory": "http://[::1]:14000/dir",
                    "external_account": {{"key_id": "kid", "hmac_key": "{KEY}"}}, "roots": "internal"}}],
                "dns": {{"command": ["/usr/local/bin/dns", "-v"], "wait": 60}}, "key": "p384"}}"#
        );
        let acme = parse(&text).expect("acme");
        assert_eq!(acme.domains, ["*.shop.example", "shop.example"]);
        let AcmeIssuance { contact, authorities, challenges, dns, key } = acme.issuance;
        assert_eq!(key, AcmeKey::P384);
        assert_eq!(contact.as_deref(), Some("mailto:ops@shop.example"));
        assert_eq!(authorities[0].directory, DIRECTORIES[1].1);
        let external = authorities[1].external_account.as_ref().expect("an account");
        assert_eq!((external.key_id.as_str(), external.hmac_key.len()), ("kid", 20));
        assert!(!format!("{external:?}").contains(KEY));
        assert_eq!(
            (authorities[1].directory.as_str(), authorities[1].roots.as_deref()),
            ("http://[::1]:14000/dir", Some("internal"))
        );
        assert_eq!(challenges, [AcmeChallenge::Dns]);
        let dns = dns.expect("a hook");
        assert_eq!(
            (dns.command, dns.wait),
            (vec!["/usr/local/bin/dns".to_owned(), "-v".to_owned()], Duration::from_secs(60))
        );
    }

    #[test]
    fn listeners_name_the_certificates_of_their_domains() {
        let text = r#"{"routes": [], "listeners": {"*:1": {"pass": "routes",
            "tls": {"certificate": "own", "acme": {"domains": ["shop.example", "www.shop.example"]}}}}}"#;
        let tls = Configuration::parse(text).expect("a configuration").listeners.remove(0).tls.expect("TLS");
        assert_eq!(tls.certificates, ["own", "acme/shop.example", "acme/www.shop.example"]);
    }

    #[test]
    fn names_on_demand_need_a_program() {
        let acme = parse(r#"{"on_demand": {"ask": "http://127.0.0.1:9000/allowed"}}"#).expect("acme");
        let expected = OnDemand { ask: "http://127.0.0.1:9000/allowed".to_owned(), names: 1000 };
        assert_eq!((acme.domains, acme.on_demand), (Vec::new(), Some(expected)));
        let cases = [
            (
                r#"{"on_demand": {}}"#,
                "/on_demand: \"ask\" is missing; add the URL of the program that allows names, as in http://127.0.0.1:9000/allowed",
            ),
            (
                r#"{"on_demand": {"ask": "http://ask.example/"}}"#,
                "/on_demand/ask: a program is asked over HTTPS only, except on this machine; \
                 write http://127.0.0.1:PORT/PATH or https://HOST/PATH",
            ),
            (
                r#"{"on_demand": {"ask": "https://ask.example/", "names": 0}}"#,
                "/on_demand/names: 0 is out of range; write 1 to 10000 names",
            ),
            (
                r#"{"domains": [], "on_demand": {"ask": "https://ask.example/"}}"#,
                "/domains: the array is empty; add a name, as in [\"shop.example\"]",
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(format!("listeners/*:1/tls/acme{expected}")), "{json}");
        }
        for (name, expected) in [
            ("shop.example", true),
            ("localhost", true),
            ("Shop.example", false),
            ("*.shop.example", false),
            ("shop.example.", false),
            ("192.0.2.1", false),
            ("a/b", false),
            ("", false),
            (&long_name(MAX_NAME_BYTES), true),
            (&long_name(MAX_NAME_BYTES + 1), false),
        ] {
            assert_eq!(is_domain_name(name), expected, "{name}");
        }
    }

    #[test]
    fn listeners_agree_about_names_on_demand() {
        let with = |ask: &str, more: &str| {
            let acme = |ask: &str, more: &str| {
                let acme = format!(r#"{{"on_demand": {{"ask": "https://ask.example/{ask}"}}{more}}}"#);
                format!(r#"{{"pass": "routes", "tls": {{"acme": {acme}}}}}"#)
            };
            let (first, second) = (acme("", ""), acme(ask, more));
            let text = format!(r#"{{"routes": [], "listeners": {{"*:1": {first}, "*:2": {second}}}}}"#);
            Configuration::parse(&text).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with("", ""), Ok(()));
        let expected =
            "listeners/*:2/tls/acme: names on demand have other options in listeners/*:1; write the same in both";
        assert_eq!(with("other", ""), Err(expected.to_owned()));
        assert_eq!(with("", r#", "key": "p384""#), Err(expected.to_owned()));
    }

    #[test]
    fn listeners_agree_about_a_domain() {
        let with = |other: &str| {
            let acme =
                |more: &str| format!(r#"{{"pass": "routes", "tls": {{"acme": {{"domains": "shop.example"{more}}}}}}}"#);
            let text = format!(r#"{{"routes": [], "listeners": {{"*:1": {}, "*:2": {}}}}}"#, acme(""), acme(other));
            Configuration::parse(&text).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with(""), Ok(()));
        let error = with(r#", "challenges": "http-01""#).expect_err("two ways");
        assert_eq!(
            error,
            "listeners/*:2/tls/acme: \"shop.example\" has other options in listeners/*:1; write the same in both"
        );
    }

    #[test]
    fn a_wrong_option_is_named() {
        let with = |more: &str| format!(r#"{{"domains": "shop.example", {more}}}"#);
        let domain = |name: &str| format!(r#"{{"domains": ["{name}"]}}"#);
        let not_a_name = "is not a domain name; write it as in shop.example, without a scheme, a port or a path";
        let cases = [
            ("{}".to_owned(), ": \"domains\" is missing; add the names of the certificates, as in [\"shop.example\"]".to_owned()),
            (r#"{"domains": []}"#.to_owned(), "/domains: the array is empty; add a name, as in [\"shop.example\"]".to_owned()),
            (domain("https://shop.example"), format!("/domains/0: \"https://shop.example\" {not_a_name}")),
            (domain("shop.example:443"), format!("/domains/0: \"shop.example:443\" {not_a_name}")),
            (domain("-a.example"), format!("/domains/0: \"-a.example\" {not_a_name}")),
            (domain("a..example"), format!("/domains/0: \"a..example\" {not_a_name}")),
            (domain("a.*.example"), format!("/domains/0: \"a.*.example\" {not_a_name}")),
            (domain("192.0.2.1"), "/domains/0: \"192.0.2.1\" is an address; write a domain name".to_owned()),
            (domain("bücher.example"), "/domains/0: \"bücher.example\" has other than ASCII characters; write it as xn--…".to_owned()),
            (
                domain("*.shop.example"),
                "/domains/0: \"*.shop.example\": a wildcard is proven over the DNS only; add \"dns\" with the command that changes it".to_owned(),
            ),
            (with(r#""contact": "ops""#), "/contact: \"ops\" is not an e-mail address".to_owned()),
            (with(r#""challenges": []"#), "/challenges: the array is empty; remove it to get the default".to_owned()),
            (
                with(r#""challenges": ["http"]"#),
                "/challenges/0: \"http\" is not possible here; write \"http-01\", \"tls-alpn-01\" or \"dns-01\"".to_owned(),
            ),
            (
                with(r#""challenges": ["dns-01"]"#),
                "/challenges/0: \"dns\" is missing; add it with the command that changes the DNS".to_owned(),
            ),
            (
                with(r#""key": "rsa2048""#),
                "/key: howdah does not make RSA keys; write \"p256\" or \"p384\", or upload a certificate with such a key"
                    .to_owned(),
            ),
            (with(r#""key": "p521""#), "/key: \"p521\" is not possible here; write \"p256\" or \"p384\"".to_owned()),
            (with(r#""authorities": []"#), "/authorities: the array is empty; remove it to get the default".to_owned()),
            (
                with(r#""authorities": [{"directory": "http://ca.example/dir"}]"#),
                "/authorities/0/directory: a directory is asked over HTTPS only, except on this machine; \
                 write https://HOST/PATH, \"letsencrypt\" or \"letsencrypt-staging\"".to_owned(),
            ),
            (
                with(r#""authorities": {"directory": "ca.example"}"#),
                "/authorities/directory: \"ca.example\" is not the URL of a directory; \
                 write https://HOST/PATH, \"letsencrypt\" or \"letsencrypt-staging\"".to_owned(),
            ),
            (
                with(r#""authorities": {"directory": "letsencrypt", "external_account": {"key_id": "x", "hmac_key": "AAAA"}}"#),
                "/authorities/external_account/hmac_key: this is not a key in Base64; copy it as the authority shows it".to_owned(),
            ),
            (
                with(r#""dns": {"command": "hook"}"#),
                "/dns/command: \"hook\" is not an absolute path; begin it with \"/\"".to_owned(),
            ),
            (
                with(r#""dns": {"command": "/hook", "wait": 9999}"#),
                "/dns/wait: 9999 is out of range; write 0 to 3600 seconds".to_owned(),
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(&json), Err(format!("listeners/*:1/tls/acme{expected}")), "{json}");
        }
    }
}
