//! The certificates that a server's certificate must lead to: those of the system, or uploaded ones.

use howdah_protocol::child::system_authorities::system_authorities;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The system's bundle, as PEM.
///
/// # Errors
/// A sentence, when no file can be read.
pub fn system_bundle() -> Result<Vec<u8>, String> {
    system_authorities().map_err(|problem| format!("tls: {problem}, or name uploaded ones in \"ca\""))
}

/// The authorities in a system's bundle. Certificates that cannot be used are ignored: some are historic.
pub fn of_bundle(pem: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    roots
}

/// The authorities in an uploaded bundle.
///
/// # Errors
/// A sentence, when a certificate cannot be used.
pub fn uploaded(name: &str, pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let added = certificate.map_err(|error| error.to_string());
        added
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()))
            .map_err(|problem| format!("the certificate {name:?} cannot be used as an authority: {problem}"))?;
    }
    Ok(roots)
}
