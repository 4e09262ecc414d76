//! The certificates that a server's certificate must lead to: those of the system, or uploaded ones.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::io;

/// Where the distributions keep the system's bundle: Debian, Alpine and Arch; Fedora and RHEL; openSUSE.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// The system's bundle, as PEM.
///
/// # Errors
/// A sentence, when no file can be read.
pub fn system_bundle() -> Result<Vec<u8>, String> {
    for path in SYSTEM_BUNDLES {
        match std::fs::read(path) {
            Ok(bundle) => return Ok(bundle),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("tls: cannot read the system's certificates in {path}: {error}")),
        }
    }
    Err(format!(
        "tls: the system has no certificates of authorities in {}; install the package ca-certificates, or name \
         uploaded ones in \"ca\"",
        SYSTEM_BUNDLES.join(", ")
    ))
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
