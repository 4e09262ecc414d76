//! Which certificate a client gets: the certificate for the name in its hello (SNI, RFC 6066).
//!
//! The names of a certificate are its alternative names for hosts, or its common name if it has no alternative names.
//! An exact name has priority over a wildcard (`*.example.com`, which stands for one label). Among the certificates for
//! a name, the order of the configuration decides, and the client gets the first whose key it can check. For an unknown
//! name, or without a name, the client gets the first certificate.

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// The certificates of a listener.
#[derive(Debug)]
pub struct CertificateResolver {
    /// In the order of the configuration; at least one.
    keys: Vec<Arc<CertifiedKey>>,
    /// The indexes into `keys` for each name, which is in lower case.
    by_name: HashMap<String, Vec<usize>>,
}

// === impl CertificateResolver ===

impl CertificateResolver {
    /// Chooses among these keys.
    ///
    /// # Errors
    /// When a certificate cannot be read.
    pub fn new(keys: Vec<Arc<CertifiedKey>>) -> Result<CertificateResolver, String> {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            let leaf = key.cert.first().and_then(|leaf| parse_x509_certificate(leaf).ok());
            let (_, leaf) = leaf.ok_or_else(|| format!("the certificate {index} cannot be read"))?;
            for name in names(&leaf) {
                let indexes = by_name.entry(name).or_default();
                if indexes.last() != Some(&index) {
                    indexes.push(index);
                }
            }
        }
        Ok(CertificateResolver { keys, by_name })
    }

    /// The indexes of the certificates for this name; the first certificate if no certificate has the name.
    fn matching(&self, name: Option<&str>) -> &[usize] {
        let found = name.and_then(|name| {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let wildcard = || name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
            self.by_name.get(&name).or_else(wildcard)
        });
        found.map_or(&[0], Vec::as_slice)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let matching = self.matching(hello.server_name()).iter().filter_map(|index| self.keys.get(*index));
        let mut usable = matching.clone().filter(|key| key.key.choose_scheme(hello.signature_schemes()).is_some());
        usable.next().or(matching.clone().next()).cloned()
    }
}

/// The certificate's names for hosts, in lower case.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        let hosts = alternatives.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
        return hosts.collect();
    }
    let common = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    common.map(str::to_ascii_lowercase).into_iter().collect()
}
