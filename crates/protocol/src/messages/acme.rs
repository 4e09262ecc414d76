//! The messages between the supervisor and the process that obtains certificates (ACME, RFC 8555).
//!
//! That process talks to certificate authorities, so the supervisor checks all that it receives.

use crate::child::identity::Identity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToAcme {
    /// Become a user. The first message.
    Boot(AcmeBoot),
    /// Obtain a certificate: [`FromAcme::Obtained`] or [`FromAcme::Failed`].
    Obtain(Box<CertificateOrder>),
    /// The router answers the challenge of this order.
    ChallengeIsAnswered {
        /// The order.
        order: u64,
    },
    /// Ask when this certificate is to be renewed (ARI, RFC 9773): [`FromAcme::RenewalWindow`].
    AskForWindow(WindowQuestion),
    /// Ask the operator's program whether a name may get a certificate: [`FromAcme::NameAnswer`].
    AskForName(NameQuestion),
    /// Remove a record that a former process has left: [`FromAcme::Record`].
    RemoveRecord(Box<RecordRemoval>),
    /// Remove the records of all orders, and exit. The last message.
    Stop,
}

/// The boot message.
#[derive(Debug, Serialize, Deserialize)]
pub struct AcmeBoot {
    /// Becomes this user.
    pub identity: Identity,
    /// User's name, for supplementary groups.
    pub user: Option<String>,
}

/// One attempt to obtain a certificate: with one authority, and with one kind of challenge.
#[derive(Debug, Serialize, Deserialize)]
pub struct CertificateOrder {
    /// Its number, unique for the life of the supervisor.
    pub order: u64,
    /// The domain, or a wildcard.
    pub domain: String,
    /// The authority.
    pub authority: OrderAuthority,
    /// A `mailto:` URL.
    pub contact: Option<String>,
    /// How control over the domain is proven.
    pub challenge: OrderChallenge,
    /// The certificate that is renewed, as PEM.
    pub replaces: Option<String>,
    /// The kind of its key.
    pub key: OrderKey,
}

/// The kind of a key: ECDSA with this curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderKey {
    /// P-256.
    P256,
    /// P-384.
    P384,
}

/// A certificate authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderAuthority {
    /// The URL of its directory.
    pub directory: String,
    /// The certificates that verify its server, as PEM; `None`: those of the system.
    pub roots: Option<String>,
    /// The account that it knows already.
    pub external_account: Option<Secret<(String, Vec<u8>)>>,
    /// The account that was made before: [`FromAcme::Account`].
    pub credentials: Option<Secret<String>>,
}

/// How control over the domain is proven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderChallenge {
    /// HTTP-01.
    Http,
    /// TLS-ALPN-01.
    TlsAlpn,
    /// DNS-01.
    Dns {
        /// The program that changes the DNS, and its arguments.
        command: Vec<String>,
        /// The time until all name servers have the record.
        wait_seconds: u64,
    },
}

/// A record in the DNS, which DNS-01 needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsRecord {
    /// The name: `_acme-challenge.shop.example`.
    pub name: String,
    /// The value, a TXT record.
    pub value: String,
    /// The domain, without `*.`.
    pub domain: String,
}

/// A record that is to be removed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRemoval {
    /// The order that has added it.
    pub order: u64,
    /// The program that changes the DNS, and its arguments.
    pub command: Vec<String>,
    /// The record.
    pub record: DnsRecord,
}

/// A question for the time of a renewal.
#[derive(Debug, Serialize, Deserialize)]
pub struct WindowQuestion {
    /// Its number, unique for the life of the supervisor.
    pub question: u64,
    /// The domain of the certificate.
    pub domain: String,
    /// The authority that has issued it.
    pub authority: OrderAuthority,
    /// The certificate, as PEM.
    pub certificate: String,
}

/// A question for the operator's program.
#[derive(Debug, Serialize, Deserialize)]
pub struct NameQuestion {
    /// Its number, unique for the life of the supervisor.
    pub question: u64,
    /// The program's URL.
    pub url: String,
    /// The name: letters in lower case, digits, hyphens and dots.
    pub name: String,
}

/// To the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromAcme {
    /// The answer to [`ToAcme::AskForName`].
    NameAnswer {
        /// The question.
        question: u64,
        /// Whether the name may get a certificate, or why there is no answer.
        answer: Result<bool, String>,
    },
    /// An account was made at an authority.
    Account {
        /// The URL of its directory.
        directory: String,
        /// The identifier of the external account.
        key_id: Option<String>,
        /// The account and its key, for [`OrderAuthority::credentials`].
        credentials: Secret<String>,
    },
    /// Let the router answer a challenge: [`ToAcme::ChallengeIsAnswered`].
    Challenge {
        /// The order.
        order: u64,
        /// The answer.
        answer: ChallengeAnswer,
    },
    /// An order adds a record to the DNS now, or (`None`) has removed it.
    Record {
        /// The order.
        order: u64,
        /// The record.
        record: Option<DnsRecord>,
    },
    /// A certificate was obtained.
    Obtained {
        /// The order.
        order: u64,
        /// The chain and its key, as PEM.
        pem: Secret<String>,
    },
    /// No certificate was obtained.
    Failed {
        /// The order.
        order: u64,
        /// Why.
        failure: OrderFailure,
    },
    /// The answer to [`ToAcme::AskForWindow`].
    RenewalWindow {
        /// The question.
        question: u64,
        /// The first and the last second, since 1970; `None` if the authority has no opinion, or did not answer.
        window: Option<(i64, i64)>,
        /// When to ask again, in seconds.
        ask_again_seconds: u64,
    },
}

/// The answer to a challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChallengeAnswer {
    /// For HTTP-01: the token, and the body of the answer.
    Http(String, String),
    /// For TLS-ALPN-01: the domain, and a certificate for it with its key, as PEM.
    TlsAlpn(String, Secret<String>),
}

/// The answers of a router to all challenges of this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeAnswers {
    /// HTTP-01: the body for each token.
    pub http: BTreeMap<String, String>,
    /// TLS-ALPN-01: a certificate with its key for each domain, as PEM.
    pub tls_alpn: BTreeMap<String, Secret<String>>,
}

/// Why no certificate was obtained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderFailure {
    /// Where the cause is.
    pub cause: FailureCause,
    /// The reason, and the remedy, as a phrase.
    pub reason: String,
    /// How long the authority wants to be left alone, in seconds.
    pub retry_after_seconds: Option<u64>,
}

/// Where the cause of a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureCause {
    /// The authority cannot be used now: another one may be.
    Authority,
    /// The authority did not see the answer to the challenge: another kind of challenge may work.
    Challenge,
}

/// A value that `Debug` does not show.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret<T>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
