//! `conf_commands`: the TLS versions, cipher suites and groups of a listener.
//!
//! The commands are those of OpenSSL, as in NGINX Unit; their case is ignored. howdah uses rustls, which has only TLS
//! 1.2 and 1.3 with forward secrecy and authenticated encryption. A command that rustls cannot follow is rejected; a
//! command for what rustls always does is accepted.

use crate::error::{Error, quoted};
use crate::read::node::Node;

/// Options of OpenSSL that rustls always does.
const ALWAYS: [&str; 8] = [
    "-compression",
    "norenegotiation",
    "noresumptiononrenegotiation",
    "dhsingle",
    "ecdhsingle",
    "antireplay",
    "middleboxcompat",
    "extendedmastersecret",
];

/// Versions that rustls does not have, so disabling them changes nothing.
const OLD_VERSIONS: [&str; 4] = ["sslv2", "sslv3", "tlsv1", "tlsv1.1"];

/// The TLS policy of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPolicy {
    /// `MinProtocol`, `MaxProtocol`, `Protocol`. Default: both versions.
    pub versions: TlsVersions,
    /// `Ciphersuites` and `CipherString`, in the order of preference, at least one for each version. Default: all.
    pub cipher_suites: Vec<CipherSuite>,
    /// `Groups` or `Curves`, in the order of preference, at least one. Default: all.
    pub groups: Vec<KeyExchangeGroup>,
    /// `Options: ServerPreference`: whether the server's order of suites has priority over the client's. Default:
    /// false.
    pub prefers_server_order: bool,
}

/// Versions of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersions {
    /// 1.2 and 1.3.
    Both,
    /// 1.2.
    Tls12,
    /// 1.3.
    Tls13,
}

macro_rules! named {
    ($(#[$attribute:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
        }

        impl $name {
            /// All values, in the order of preference.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in the configuration.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

named! {
    /// A cipher suite, with OpenSSL's name.
    CipherSuite {
        Tls13Aes256GcmSha384 = "TLS_AES_256_GCM_SHA384",
        Tls13Aes128GcmSha256 = "TLS_AES_128_GCM_SHA256",
        Tls13Chacha20Poly1305Sha256 = "TLS_CHACHA20_POLY1305_SHA256",
        EcdheEcdsaAes256GcmSha384 = "ECDHE-ECDSA-AES256-GCM-SHA384",
        EcdheEcdsaAes128GcmSha256 = "ECDHE-ECDSA-AES128-GCM-SHA256",
        EcdheEcdsaChacha20Poly1305 = "ECDHE-ECDSA-CHACHA20-POLY1305",
        EcdheRsaAes256GcmSha384 = "ECDHE-RSA-AES256-GCM-SHA384",
        EcdheRsaAes128GcmSha256 = "ECDHE-RSA-AES128-GCM-SHA256",
        EcdheRsaChacha20Poly1305 = "ECDHE-RSA-CHACHA20-POLY1305",
    }
}

named! {
    /// A group for the exchange of keys.
    KeyExchangeGroup {
        X25519 = "X25519",
        Secp256r1 = "P-256",
        Secp384r1 = "P-384",
    }
}

// === impl CipherSuite ===

impl CipherSuite {
    /// Whether the suite belongs to TLS 1.3; otherwise it belongs to TLS 1.2.
    pub fn is_tls13(self) -> bool {
        self.as_str().starts_with("TLS_")
    }

    fn of_version(tls13: bool) -> Vec<Self> {
        Self::ALL.iter().copied().filter(|suite| suite.is_tls13() == tls13).collect()
    }
}

// === impl KeyExchangeGroup ===

impl KeyExchangeGroup {
    fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "x25519" => Some(Self::X25519),
            "p-256" | "prime256v1" | "secp256r1" => Some(Self::Secp256r1),
            "p-384" | "secp384r1" => Some(Self::Secp384r1),
            _ => None,
        }
    }
}

// === impl TlsPolicy ===

impl Default for TlsPolicy {
    fn default() -> Self {
        Self {
            versions: TlsVersions::Both,
            cipher_suites: CipherSuite::ALL.to_vec(),
            groups: KeyExchangeGroup::ALL.to_vec(),
            prefers_server_order: false,
        }
    }
}

impl TlsPolicy {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let mut policy = Self::default();
        let mut versions = [true, true];
        let (mut tls13, mut tls12) = (CipherSuite::of_version(true), CipherSuite::of_version(false));
        for (name, node) in node.named()? {
            let value = node.nonempty_string()?;
            let read = match name.to_ascii_lowercase().as_str() {
                "minprotocol" => limit(&value, &mut versions, |version, limit| version >= limit),
                "maxprotocol" => limit(&value, &mut versions, |version, limit| version <= limit),
                "protocol" => disable(&value, &mut versions),
                "ciphersuites" => suites(&value, true).map(|suites| tls13 = suites),
                "cipherstring" => suites(&value, false).map(|suites| tls12 = suites),
                "groups" | "curves" => groups(&value).map(|groups| policy.groups = groups),
                "options" => options(&value).map(|preference| {
                    policy.prefers_server_order = preference.unwrap_or(policy.prefers_server_order);
                }),
                _ => {
                    let advice = "howdah's TLS has MinProtocol, MaxProtocol, Protocol, Ciphersuites, CipherString, \
                                  Groups, Curves and Options; remove it";
                    return Err(node.error(advice));
                }
            };
            read.map_err(|problem| node.error(problem))?;
        }
        policy.versions = match versions {
            [true, true] => TlsVersions::Both,
            [true, false] => TlsVersions::Tls12,
            [false, true] => TlsVersions::Tls13,
            [false, false] => return Err(node.error("all versions of TLS are disabled; allow TLSv1.2 or TLSv1.3")),
        };
        policy.cipher_suites = tls13.into_iter().chain(tls12).collect();
        Ok(policy)
    }
}

/// Disables the versions (1.2 and 1.3) for which `keep`, called with the version and the limit, is false.
fn limit(value: &str, versions: &mut [bool; 2], keep: fn(usize, usize) -> bool) -> Result<(), String> {
    let limit = match value.to_ascii_lowercase().as_str() {
        "none" => return Ok(()),
        "tlsv1.2" => 0,
        "tlsv1.3" => 1,
        old if OLD_VERSIONS.contains(&old) => {
            return Err(format!("howdah does not support {value}; write TLSv1.2 or TLSv1.3"));
        }
        _ => return Err(format!("{} is not a version of TLS; write TLSv1.2 or TLSv1.3", quoted(value))),
    };
    for (version, enabled) in versions.iter_mut().enumerate() {
        *enabled = *enabled && keep(version, limit);
    }
    Ok(())
}

/// Reads `Protocol`. As in OpenSSL, naming a version enables it; because both are enabled, only a minus sign matters.
fn disable(value: &str, versions: &mut [bool; 2]) -> Result<(), String> {
    for item in items(value, ",") {
        let (disables, name) = match item.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, item.strip_prefix('+').unwrap_or(item)),
        };
        match name.to_ascii_lowercase().as_str() {
            "all" => *versions = [!disables; 2],
            "tlsv1.2" => versions[0] = !disables,
            "tlsv1.3" => versions[1] = !disables,
            old if OLD_VERSIONS.contains(&old) && disables => {}
            old if OLD_VERSIONS.contains(&old) => return Err(format!("howdah does not support {name}; remove it")),
            _ => return Err(format!("{} is not a version of TLS; write -TLSv1.2 or -TLSv1.3", quoted(item))),
        }
    }
    Ok(())
}

fn suites(value: &str, tls13: bool) -> Result<Vec<CipherSuite>, String> {
    let known = CipherSuite::of_version(tls13);
    each(value, ":, ", |item| {
        known.iter().copied().find(|suite| suite.as_str().eq_ignore_ascii_case(item)).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|suite| suite.as_str()).collect();
            format!("howdah's TLS has no cipher suite {}; write one or more of {}", quoted(item), names.join(":"))
        })
    })
}

fn groups(value: &str) -> Result<Vec<KeyExchangeGroup>, String> {
    each(value, ":", |item| {
        KeyExchangeGroup::named(item).ok_or_else(|| {
            format!("howdah's TLS has no group {}; write one or more of X25519:P-256:P-384", quoted(item))
        })
    })
}

/// Reads `Options`: whether the server's order has priority, if the options name it.
fn options(value: &str) -> Result<Option<bool>, String> {
    let mut prefers_server_order = None;
    for item in items(value, ",") {
        match item.trim_start_matches('+').to_ascii_lowercase().as_str() {
            "serverpreference" => prefers_server_order = Some(true),
            "-serverpreference" => prefers_server_order = Some(false),
            "sessionticket" | "-sessionticket" => {
                return Err("write \"session\": {\"tickets\": true} or false in place of SessionTicket".into());
            }
            always if ALWAYS.contains(&always) => {}
            _ => {
                return Err(format!("howdah's TLS has no option {}; remove it (ServerPreference works)", quoted(item)));
            }
        }
    }
    Ok(prefers_server_order)
}

/// Reads the items without duplicates. At least one is required.
fn each<T: PartialEq>(
    value: &str,
    separators: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    for item in items(value, separators) {
        let item = read(item)?;
        if !all.contains(&item) {
            all.push(item);
        }
    }
    if all.is_empty() { Err("the list is empty; remove the command to allow all".into()) } else { Ok(all) }
}

fn items<'a>(value: &'a str, separators: &'a str) -> impl Iterator<Item = &'a str> {
    value.split(|c| separators.contains(c)).map(str::trim).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<TlsPolicy, String> {
        let value = json::parse(json).expect("JSON");
        TlsPolicy::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn versions_are_limited() {
        let cases = [
            ("{}", TlsVersions::Both),
            (r#"{"MinProtocol": "TLSv1.2"}"#, TlsVersions::Both),
            (r#"{"minprotocol": "TLSv1.3"}"#, TlsVersions::Tls13),
            (r#"{"MaxProtocol": "tlsv1.2"}"#, TlsVersions::Tls12),
            (r#"{"MaxProtocol": "None"}"#, TlsVersions::Both),
            (r#"{"Protocol": "-TLSv1.2"}"#, TlsVersions::Tls13),
            (r#"{"Protocol": "-SSLv3, -TLSv1, -TLSv1.1"}"#, TlsVersions::Both),
            (r#"{"Protocol": "-ALL,TLSv1.2"}"#, TlsVersions::Tls12),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json).map(|policy| policy.versions), Ok(expected), "{json}");
        }
    }

    #[test]
    fn suites_groups_and_their_order_are_chosen() {
        let policy = read(
            r#"{"ciphersuites": "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256",
                "CipherString": "ECDHE-RSA-AES128-GCM-SHA256",
                "Curves": "prime256v1:X25519:P-256", "Options": "ServerPreference, NoRenegotiation"}"#,
        );
        let expected = TlsPolicy {
            versions: TlsVersions::Both,
            cipher_suites: vec![
                CipherSuite::Tls13Chacha20Poly1305Sha256,
                CipherSuite::Tls13Aes128GcmSha256,
                CipherSuite::EcdheRsaAes128GcmSha256,
            ],
            groups: vec![KeyExchangeGroup::Secp256r1, KeyExchangeGroup::X25519],
            prefers_server_order: true,
        };
        assert_eq!(policy, Ok(expected));
        let only_tls12 = read(r#"{"CipherString": "ECDHE-RSA-AES128-GCM-SHA256"}"#).expect("policy");
        assert_eq!(only_tls12.cipher_suites.iter().filter(|suite| suite.is_tls13()).count(), 3);
    }

    #[test]
    fn an_unsupported_command_is_rejected() {
        let cases = [
            (r#"{"MinProtocol": "TLSv1"}"#, "MinProtocol: howdah does not support TLSv1; write TLSv1.2 or TLSv1.3"),
            (r#"{"MinProtocol": "1.2"}"#, "MinProtocol: \"1.2\" is not a version of TLS; write TLSv1.2 or TLSv1.3"),
            (r#"{"Protocol": "TLSv1"}"#, "Protocol: howdah does not support TLSv1; remove it"),
            (r#"{"Protocol": "-ALL"}"#, "all versions of TLS are disabled; allow TLSv1.2 or TLSv1.3"),
            (r#"{"MinProtocol": "TLSv1.3", "MaxProtocol": "TLSv1.2"}"#, "all versions of TLS are disabled"),
            (
                r#"{"CipherString": "HIGH:!aNULL"}"#,
                "CipherString: howdah's TLS has no cipher suite \"HIGH\"; write one",
            ),
            (r#"{"Ciphersuites": "TLS_AES_128_CCM_SHA256"}"#, "Ciphersuites: howdah's TLS has no cipher suite"),
            (r#"{"Ciphersuites": ":"}"#, "Ciphersuites: the list is empty; remove the command to allow all"),
            (
                r#"{"Groups": "P-521"}"#,
                "Groups: howdah's TLS has no group \"P-521\"; write one or more of X25519:P-256:P-384",
            ),
            (
                r#"{"Options": "-SessionTicket"}"#,
                "Options: write \"session\": {\"tickets\": true} or false in place of",
            ),
            (
                r#"{"Options": "PrioritizeChaCha"}"#,
                "Options: howdah's TLS has no option \"PrioritizeChaCha\"; remove it",
            ),
            (r#"{"VerifyMode": "Peer"}"#, "VerifyMode: howdah's TLS has MinProtocol, MaxProtocol, Protocol"),
            (r#"{"MinProtocol": 1.2}"#, "MinProtocol: expected a string; write \"1.2\", with quotes"),
        ];
        for (json, expected) in cases {
            let error = read(json).expect_err(json);
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
