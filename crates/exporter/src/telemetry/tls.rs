//! TLS with the collector: its certificate must lead to an authority of the system, or of `ca_file`.

use howdah_config::TelemetryProtocol;
use howdah_protocol::child::system_authorities::system_authorities;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// A configuration that trusts these authorities, as PEM, or those of the system.
///
/// # Errors
/// A sentence, when there are none.
pub fn config(authorities: Option<&str>, protocol: TelemetryProtocol) -> Result<Arc<ClientConfig>, String> {
    let bundle = match authorities {
        Some(pem) => pem.as_bytes().to_vec(),
        None => system_authorities().map_err(|problem| format!("{problem}, or write \"ca_file\""))?,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok));
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = match protocol {
        TelemetryProtocol::Grpc => vec![b"h2".to_vec()],
        TelemetryProtocol::Http => vec![b"http/1.1".to_vec()],
    };
    Ok(Arc::new(config))
}
