//! TLS to upstreams: turns the configuration and the certificates into the settings of a handshake.
//!
//! - `authorities`: the certificates that a server's certificate must lead to; `unverified`: any certificate is
//!   accepted
//! - `handshake`: from a connected socket to an encrypted stream, and the reasons of a failure
//!
//! A certificate of the configuration that cannot be used is an error, a sentence that names it. If the system has no
//! bundle of authorities, a new configuration is refused. A router that starts serves nevertheless: such requests are
//! answered 502.

mod authorities;
pub mod handshake;
mod unverified;

use crate::net::tls::{CertificatePems, Digest, certified_key, digest};
use howdah_config::{Configuration, ProxySettings, ProxyTls};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use std::collections::HashMap;
use std::sync::Arc;
use unverified::AcceptAnyCertificate;

/// The settings of the active configuration's servers. Servers whose TLS does not change keep their settings, and with
/// them their connections and sessions.
#[derive(Default)]
pub struct UpstreamTlsConfigs {
    active: HashMap<ProxyTls, KnownConfig>,
}

/// The settings of handshakes, by the options of the configuration.
#[derive(Default)]
pub struct TlsBySettings {
    configs: HashMap<ProxyTls, Arc<ClientConfig>>,
}

struct KnownConfig {
    /// A digest of the certificates that the options name, and of those of the system.
    digest: Digest,
    config: Arc<ClientConfig>,
}

/// The protocol inside of TLS (ALPN).
const HTTP_1_1: &[u8] = b"http/1.1";

// === impl UpstreamTlsConfigs ===

impl UpstreamTlsConfigs {
    /// The settings for each `tls` of this configuration. With `serves_anyway`, a system without authorities is only
    /// logged.
    ///
    /// # Errors
    /// A sentence, when a certificate is missing or not usable. The settings are unchanged then.
    pub fn update(
        &mut self,
        configuration: &Configuration,
        certificates: &CertificatePems,
        serves_anyway: bool,
    ) -> Result<TlsBySettings, String> {
        let mut active: HashMap<ProxyTls, KnownConfig> = HashMap::new();
        for tls in configuration.proxy_settings().filter_map(|settings| settings.tls.as_ref()) {
            if active.contains_key(tls) {
                continue;
            }
            let bundle = match &tls.ca {
                None if tls.verify => match authorities::system_bundle() {
                    Err(reason) if serves_anyway => {
                        tracing::error!("{reason}; requests to servers with \"tls\" are answered 502");
                        Vec::new()
                    }
                    bundle => bundle?,
                },
                _ => Vec::new(),
            };
            let texts = tls.certificates().filter_map(|name| certificates.get(name)).map(String::as_bytes);
            let digest = digest(texts.chain([&*bundle]));
            let known = self.active.get(tls).filter(|known| known.digest == digest);
            let config = match known {
                Some(known) => Arc::clone(&known.config),
                None => Arc::new(client_config(tls, certificates, &bundle)?),
            };
            active.insert(tls.clone(), KnownConfig { digest, config });
        }
        self.active = active;
        let configs = self.active.iter().map(|(tls, known)| (tls.clone(), Arc::clone(&known.config)));
        Ok(TlsBySettings { configs: configs.collect() })
    }
}

// === impl TlsBySettings ===

impl TlsBySettings {
    /// The settings of handshakes with these servers; `None`: without TLS.
    pub fn of(&self, settings: &ProxySettings) -> Option<&Arc<ClientConfig>> {
        let tls = settings.tls.as_ref()?;
        Some(self.configs.get(tls).expect("`update` made one for each `tls` of the configuration"))
    }
}

fn client_config(tls: &ProxyTls, certificates: &CertificatePems, bundle: &[u8]) -> Result<ClientConfig, String> {
    let provider = Arc::new(provider::default_provider());
    let find = |name: &String| certificates.get(name).ok_or_else(|| format!("there is no certificate {name:?}"));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = if tls.verify {
        let roots: RootCertStore = match &tls.ca {
            Some(name) => authorities::uploaded(name, find(name)?)?,
            None => authorities::of_bundle(bundle),
        };
        builder.with_root_certificates(roots)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate::new(&provider)))
    };
    let mut config = match &tls.client_certificate {
        Some(name) => builder.with_client_cert_resolver(Arc::new(client_key(name, find(name)?, &provider)?)),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok(config)
}

fn client_key(name: &str, text: &str, provider: &CryptoProvider) -> Result<SingleCertAndKey, String> {
    let key = certified_key(text, provider);
    key.map(SingleCertAndKey::from).map_err(|problem| format!("the certificate {name:?} cannot be used: {problem}"))
}

#[cfg(test)]
mod tests;
