//! Which certificate a client gets: the certificate for the name in its hello (SNI, RFC 6066).
//!
//! The names of a certificate are its alternative names for hosts, or its common name if it has no alternative names.
//! An exact name has priority over a wildcard (`*.example.com`, which stands for one label). Among the certificates for
//! a name, the order of the configuration decides, and the client gets the first whose key it can check. For an unknown
//! name, or without a name, the client gets the first certificate. With names on demand, an unknown name gets the
//! certificate on demand, or none: the handshake fails.

use crate::net::tls::on_demand::OnDemandCertificates;
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
    /// In the order of the configuration; at least one, unless there are names on demand.
    keys: Vec<Arc<CertifiedKey>>,
    /// The indexes into `keys` for each name, which is in lower case.
    by_name: HashMap<String, Vec<usize>>,
    on_demand: Option<Arc<OnDemandCertificates>>,
}

// === impl CertificateResolver ===

impl CertificateResolver {
    /// Chooses among these keys.
    ///
    /// # Errors
    /// When a certificate cannot be read.
    pub fn new(
        keys: Vec<Arc<CertifiedKey>>,
        on_demand: Option<Arc<OnDemandCertificates>>,
    ) -> Result<CertificateResolver, String> {
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
        Ok(CertificateResolver { keys, by_name, on_demand })
    }

    /// The indexes of the certificates for this name, which is in lower case.
    fn matching(&self, name: &str) -> Option<&[usize]> {
        let wildcard = || name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
        self.by_name.get(name).or_else(wildcard).map(Vec::as_slice)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        let found = name.as_deref().and_then(|name| self.matching(name));
        if let (None, Some(name), Some(on_demand)) = (found, &name, &self.on_demand) {
            return on_demand.certificate(name);
        }
        let matching = found.unwrap_or(&[0]).iter().filter_map(|index| self.keys.get(*index));
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
