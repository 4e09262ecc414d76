//! TLS of listeners: turns the configuration and the certificates into the settings of a handshake.
//!
//! - `server_name`: which certificate a client gets
//! - `certificates`: chains and keys, from PEM
//! - `challenges`: proofs for certificate authorities (ACME)
//! - `on_demand`: certificates of names that are not in the configuration
//! - `clients`, `distinguished_name`: certificates of clients (mTLS)
//! - `sessions`, `tickets`: how clients resume their sessions
//! - `handshake`: from an accepted socket to an encrypted stream
//!
//! The supervisor has read the configuration and checked the certificates before, so that nothing is expected to fail
//! here. An error is a sentence that names the listener and the certificate.

mod certificates;
pub mod challenges;
mod clients;
mod distinguished_name;
mod handshake;
mod on_demand;
mod server_name;
mod sessions;
mod tickets;

pub use certificates::{CertificatePems, certified_key};
pub use handshake::{HandshakeError, Negotiated, handshake};
pub use on_demand::{OnDemandCertificates, OnDemandPems};
pub use sessions::SessionCache;

use howdah_config::{CipherSuite, Configuration, KeyExchangeGroup, Tickets, Tls, TlsPolicy, TlsVersions};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring as provider};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use server_name::CertificateResolver;
use std::borrow::Cow;
use std::sync::Arc;
use tickets::SessionTickets;

/// A digest of certificates.
pub type Digest = [u8; SHA256_OUTPUT_LEN];

/// The settings of the active configuration's listeners. A listener whose TLS does not change keeps its entry, and
/// with it its sessions and tickets.
#[derive(Default)]
pub struct TlsConfigs {
    active: Vec<ListenerTls>,
    on_demand: Arc<OnDemandCertificates>,
}

#[derive(Clone)]
struct ListenerTls {
    tls: Tls,
    http2: bool,
    /// A digest of the certificates that `tls` names.
    digest: Digest,
    /// A digest of the authorities of the clients' certificates.
    authorities: Option<Digest>,
    config: Arc<ServerConfig>,
}

/// HTTP/2 inside of TLS (ALPN).
pub const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

// === impl TlsConfigs ===

impl TlsConfigs {
    /// For each listener with TLS, in the order of the configuration, a digest of the authorities that vouch for its clients.
    pub fn authorities(&self) -> impl Iterator<Item = Option<Digest>> {
        self.active.iter().map(|entry| entry.authorities)
    }

    /// Without listeners. The certificates on demand are those that the handshakes wait for.
    pub fn new(on_demand: Arc<OnDemandCertificates>) -> TlsConfigs {
        TlsConfigs { active: Vec::new(), on_demand }
    }

    /// The settings of each listener, in the order of the configuration; `None` for a listener without TLS.
    ///
    /// # Errors
    /// A sentence, when a certificate is missing or not usable. The settings are unchanged then.
    pub fn update(
        &mut self,
        configuration: &Configuration,
        certificates: &CertificatePems,
    ) -> Result<Vec<Option<Arc<ServerConfig>>>, String> {
        let mut active: Vec<ListenerTls> = Vec::new();
        let mut configs = Vec::new();
        for listener in &configuration.listeners {
            let Some(tls) = &listener.tls else {
                configs.push(None);
                continue;
            };
            let problem = |problem| format!("listeners/{}/tls: {problem}", listener.address);
            let known = active.iter().chain(&self.active);
            let entry = ListenerTls::find_or_make(tls, listener.http2, certificates, &self.on_demand, known)
                .map_err(problem)?;
            configs.push(Some(Arc::clone(&entry.config)));
            active.push(entry);
        }
        self.active = active;
        let has_names_on_demand =
            |entry: &ListenerTls| entry.tls.acme.as_ref().is_some_and(|acme| acme.on_demand.is_some());
        self.on_demand.set_active(self.active.iter().any(has_names_on_demand));
        Ok(configs)
    }

    /// The settings of the listeners with TLS, in the order of the configuration, with other certificates.
    ///
    /// # Errors
    /// As for [`Self::update`].
    pub fn replace_certificates(&mut self, certificates: &CertificatePems) -> Result<Vec<Arc<ServerConfig>>, String> {
        let mut active: Vec<ListenerTls> = Vec::new();
        for ListenerTls { tls, http2, .. } in &self.active {
            let known = active.iter().chain(&self.active);
            active.push(ListenerTls::find_or_make(tls, *http2, certificates, &self.on_demand, known)?);
        }
        self.active = active;
        Ok(self.active.iter().map(|entry| Arc::clone(&entry.config)).collect())
    }
}

// === impl ListenerTls ===

impl ListenerTls {
    /// The one of `known` with the same settings and certificates, or a new one. `http2`: clients may use HTTP/2.
    fn find_or_make<'k>(
        tls: &Tls,
        http2: bool,
        certificates: &CertificatePems,
        on_demand: &Arc<OnDemandCertificates>,
        mut known: impl Iterator<Item = &'k ListenerTls>,
    ) -> Result<ListenerTls, String> {
        let texts = tls.all_certificates().filter_map(|name| certificates.get(name));
        let digest = digest(texts.map(String::as_bytes));
        let is_same = |known: &&ListenerTls| known.tls == *tls && known.http2 == http2 && known.digest == digest;
        if let Some(known) = known.find(is_same) {
            return Ok(known.clone());
        }
        let config = Arc::new(server_config(tls, http2, certificates, on_demand)?);
        let authorities = tls.clients.as_ref().map(|clients| {
            let texts = clients.authorities.iter().filter_map(|name| certificates.get(name));
            self::digest(texts.map(String::as_bytes))
        });
        Ok(ListenerTls { tls: tls.clone(), http2, digest, authorities, config })
    }
}

/// The digest of these texts.
pub fn digest<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Digest {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(&text.len().to_le_bytes());
        context.update(text);
    }
    let mut digest = [0; SHA256_OUTPUT_LEN];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

fn server_config(
    tls: &Tls,
    http2: bool,
    certificates: &CertificatePems,
    on_demand: &Arc<OnDemandCertificates>,
) -> Result<ServerConfig, String> {
    let provider = Arc::new(provider(&tls.policy));
    let mut keys = Vec::new();
    for name in &tls.certificates {
        let text = match (certificates.get(name), Tls::acme_domain(name)) {
            (Some(text), _) => Cow::Borrowed(text),
            (None, Some(domain)) => Cow::Owned(temporary_certificate(domain)?),
            (None, None) => return Err(format!("there is no certificate {name:?}; upload it")),
        };
        let key = certified_key(&text, &provider);
        keys.push(Arc::new(key.map_err(|problem| format!("the certificate {name:?} cannot be used: {problem}"))?));
    }
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(versions(tls.policy.versions));
    let builder = builder.map_err(|error| format!("conf_commands: {error}; remove some"))?;
    let builder = match &tls.clients {
        Some(clients) => builder.with_client_cert_verifier(clients::verifier(clients, certificates, provider)?),
        None => builder.with_no_client_auth(),
    };
    let has_names_on_demand = tls.acme.as_ref().is_some_and(|acme| acme.on_demand.is_some());
    let on_demand = has_names_on_demand.then(|| Arc::clone(on_demand));
    let mut config = builder.with_cert_resolver(Arc::new(CertificateResolver::new(keys, on_demand)?));
    config.ignore_client_order = tls.policy.prefers_server_order;
    // The first one that the client offers, too, is agreed on.
    let versions = [HTTP_2, HTTP_1_1].into_iter().filter(|version| http2 || *version != HTTP_2);
    config.alpn_protocols = versions.map(<[u8]>::to_vec).collect();
    config.session_storage = match tls.session.cache_size {
        0 => Arc::new(NoServerSessionStorage {}),
        size => Arc::new(SessionCache::new(size as usize, tls.session.timeout)),
    };
    match &tls.session.tickets {
        Tickets::Off => {}
        Tickets::RandomKey => config.ticketer = Arc::new(SessionTickets::with_random_keys(tls.session.timeout)?),
        Tickets::Keys(keys) => config.ticketer = Arc::new(SessionTickets::with_keys(keys, tls.session.timeout)),
    }
    Ok(config)
}

/// A certificate for the time until the authority has issued one. Browsers warn of it, but the listener is not dead.
fn temporary_certificate(domain: &str) -> Result<String, String> {
    let made = || -> Result<String, rcgen::Error> {
        let mut parameters = CertificateParams::new([domain.to_owned()])?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, format!("{domain} (temporary)"));
        let key = KeyPair::generate()?;
        Ok(parameters.self_signed(&key)?.pem() + &key.serialize_pem())
    };
    made().map_err(|error| format!("no temporary certificate can be made for {domain}: {error}"))
}

fn versions(versions: TlsVersions) -> &'static [&'static SupportedProtocolVersion] {
    const BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    match versions {
        TlsVersions::Both => &BOTH,
        TlsVersions::Tls12 => &BOTH[1..],
        TlsVersions::Tls13 => &BOTH[..1],
    }
}

fn provider(policy: &TlsPolicy) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: policy.cipher_suites.iter().copied().map(suite).collect(),
        kx_groups: policy.groups.iter().copied().map(group).collect(),
        ..provider::default_provider()
    }
}

fn suite(suite: CipherSuite) -> SupportedCipherSuite {
    use provider::cipher_suite::*;
    match suite {
        CipherSuite::Tls13Aes256GcmSha384 => TLS13_AES_256_GCM_SHA384,
        CipherSuite::Tls13Aes128GcmSha256 => TLS13_AES_128_GCM_SHA256,
        CipherSuite::Tls13Chacha20Poly1305Sha256 => TLS13_CHACHA20_POLY1305_SHA256,
        CipherSuite::EcdheEcdsaAes256GcmSha384 => TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::EcdheEcdsaAes128GcmSha256 => TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::EcdheEcdsaChacha20Poly1305 => TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        CipherSuite::EcdheRsaAes256GcmSha384 => TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::EcdheRsaAes128GcmSha256 => TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::EcdheRsaChacha20Poly1305 => TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    }
}

fn group(group: KeyExchangeGroup) -> &'static dyn SupportedKxGroup {
    match group {
        KeyExchangeGroup::X25519 => provider::kx_group::X25519,
        KeyExchangeGroup::Secp256r1 => provider::kx_group::SECP256R1,
        KeyExchangeGroup::Secp384r1 => provider::kx_group::SECP384R1,
    }
}

#[cfg(test)]
mod tests;
