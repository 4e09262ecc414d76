//! The certificates that the supervisor sends: chains and keys, as PEM.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;

/// PEM texts by the name of the certificate: a chain, which begins with the certificate of the key, and the key.
pub type CertificatePems = BTreeMap<String, String>;

/// A chain and its key, from PEM.
///
/// # Errors
/// The problem, as a phrase.
pub fn certified_key(text: &str, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = chain.map_err(|_| "its chain cannot be read; upload it again")?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| "its key cannot be read; upload it again")?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| format!("{error}; upload it again"))
}
