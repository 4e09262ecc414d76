//! Which certificate a client gets: the one for the name that it asks for (SNI, RFC 6066).
//!
//! Names are those of the certificate for hosts, or its common name if it has no others. An exact one goes before a
//! wildcard (`*.example.com`, which stands for one label), the certificate that was named first before later ones, and
//! of those for one name the first whose key the client can check. Who asks for another name, or for none, gets the first.

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// The certificates of a listener.
#[derive(Debug)]
pub struct Resolver {
    /// In the order of the configuration; one at least.
    keys: Vec<Arc<CertifiedKey>>,
    /// Which of them are for a name, lower case, in their order.
    by_name: HashMap<String, Vec<usize>>,
}

// === impl Resolver ===

impl Resolver {
    /// Chooses among these.
    ///
    /// # Errors
    /// When a certificate cannot be read.
    pub fn new(keys: Vec<Arc<CertifiedKey>>) -> Result<Resolver, String> {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            let leaf = key.cert.first().and_then(|leaf| parse_x509_certificate(leaf).ok());
            let (_, leaf) = leaf.ok_or_else(|| format!("the certificate {index} cannot be read"))?;
            for name in names(&leaf) {
                let places = by_name.entry(name).or_default();
                if places.last() != Some(&index) {
                    places.push(index);
                }
            }
        }
        Ok(Resolver { keys, by_name })
    }

    /// The places of the certificates for this name; the first one, if it is for none.
    fn fitting(&self, name: Option<&str>) -> &[usize] {
        let found = name.and_then(|name| {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let wildcard = || name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
            self.by_name.get(&name).or_else(wildcard)
        });
        found.map_or(&[0], Vec::as_slice)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fitting = self.fitting(hello.server_name()).iter().filter_map(|place| self.keys.get(*place));
        let mut usable = fitting.clone().filter(|key| key.key.choose_scheme(hello.signature_schemes()).is_some());
        usable.next().or(fitting.clone().next()).cloned()
    }
}

/// Lower case.
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
