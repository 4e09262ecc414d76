//! The settings of a listener's handshakes, from its options.

use crate::net::tls::certificates::{CertificatePems, certified_key};
use crate::net::tls::clients;
use crate::net::tls::on_demand::OnDemandCertificates;
use crate::net::tls::server_name::CertificateResolver;
use crate::net::tls::sessions::SessionCache;
use crate::net::tls::tickets::SessionTickets;
use howdah_config::{CipherSuite, KeyExchangeGroup, Tickets, Tls, TlsPolicy, TlsVersions};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring as provider};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use std::borrow::Cow;
use std::sync::Arc;

/// HTTP/2 inside of TLS (ALPN).
pub const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The settings of a listener with these options.
///
/// # Errors
/// A sentence that names the certificate or the option.
pub fn server_config(
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

pub(super) fn versions(versions: TlsVersions) -> &'static [&'static SupportedProtocolVersion] {
    const BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    match versions {
        TlsVersions::Both => &BOTH,
        TlsVersions::Tls12 => &BOTH[1..],
        TlsVersions::Tls13 => &BOTH[..1],
    }
}

pub(super) fn provider(policy: &TlsPolicy) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: policy.cipher_suites.iter().copied().map(suite_of).collect(),
        kx_groups: policy.groups.iter().copied().map(group).collect(),
        ..provider::default_provider()
    }
}

/// The suite of the library.
pub fn suite_of(suite: CipherSuite) -> SupportedCipherSuite {
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
