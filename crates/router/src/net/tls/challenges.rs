//! The answers to the challenges of certificate authorities (ACME): HTTP-01 and TLS-ALPN-01 (RFC 8737).
//!
//! There is one set for the whole process: the supervisor replaces it, and all threads see it at once. Mostly it is empty,
//! which costs a connection one load of a flag.

use howdah_protocol::messages::acme::ChallengeAnswers;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The protocol in a handshake that is a challenge.
pub const ACME_TLS: &[u8] = b"acme-tls/1";

static CURRENT: RwLock<Option<Answers>> = RwLock::new(None);
static HAS_TLS_ALPN: AtomicBool = AtomicBool::new(false);

struct Answers {
    http: BTreeMap<String, String>,
    /// Answers handshakes that are a challenge.
    tls_alpn: Arc<ServerConfig>,
}

#[derive(Debug)]
struct ChallengeCertificates {
    by_domain: BTreeMap<String, Arc<CertifiedKey>>,
}

/// Answers these challenges from now on, and no others.
///
/// # Errors
/// A sentence, when a certificate cannot be used. The former set stays.
pub fn answer(answers: ChallengeAnswers) -> Result<(), String> {
    let provider = Arc::new(ring::default_provider());
    let mut by_domain = BTreeMap::new();
    for (domain, pem) in &answers.tls_alpn {
        let key = challenge_key(&pem.0, &provider);
        let key = key.map_err(|problem| format!("the challenge of {domain} cannot be answered: {problem}"))?;
        by_domain.insert(domain.clone(), Arc::new(key));
    }
    let has_tls_alpn = !by_domain.is_empty();
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.with_no_client_auth();
    let mut tls_alpn = builder.with_cert_resolver(Arc::new(ChallengeCertificates { by_domain }));
    tls_alpn.alpn_protocols = vec![ACME_TLS.to_vec()];
    let new = Answers { http: answers.http, tls_alpn: Arc::new(tls_alpn) };
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
    HAS_TLS_ALPN.store(has_tls_alpn, Ordering::Release);
    Ok(())
}

/// Without a look at the certificate: its critical extension (RFC 8737, 3) is unknown to rustls.
fn challenge_key(pem: &str, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| error.to_string())?;
    Ok(CertifiedKey::new(vec![certificate], key))
}

/// The body for the token of a request, if it is a challenge.
pub fn http_body(token: &str) -> Option<String> {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    current.as_ref()?.http.get(token).cloned()
}

/// Whether a handshake may be a challenge.
pub fn expects_handshake() -> bool {
    HAS_TLS_ALPN.load(Ordering::Acquire)
}

/// The settings for a handshake that is a challenge; `None` for all others.
pub fn of_handshake(hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
    if !hello.alpn()?.eq([ACME_TLS]) {
        return None;
    }
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    current.as_ref().map(|answers| Arc::clone(&answers.tls_alpn))
}

impl ResolvesServerCert for ChallengeCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.by_domain.get(&hello.server_name()?.to_ascii_lowercase()).cloned()
    }
}
