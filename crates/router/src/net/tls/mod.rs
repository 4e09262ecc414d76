//! TLS of listeners: turns the configuration and the certificates into the settings of a handshake.
//!
//! - `server_name`: which certificate a client gets
//! - `certificates`: chains and keys, from PEM
//! - `challenges`: proofs for certificate authorities (ACME)
//! - `on_demand`: certificates of names that are not in the configuration
//! - `clients`, `distinguished_name`: certificates of clients (mTLS)
//! - `sessions`, `tickets`: how clients resume their sessions
//! - `options`: the settings of a listener, from its options
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
mod options;
mod server_name;
mod sessions;
mod tickets;

pub use certificates::{CertificatePems, certified_key};
pub use handshake::{HandshakeError, Negotiated, handshake};
pub use on_demand::{OnDemandCertificates, OnDemandPems};
pub use options::HTTP_2;
pub use sessions::SessionCache;

use howdah_config::{Configuration, Tls};
use options::server_config;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use rustls::ServerConfig;
use std::sync::Arc;

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

#[cfg(test)]
mod tests;
