//! A chain of certificates and its private key, read from PEM, checked, and put in order; or certificates of
//! authorities, which have no key here.
//!
//! The order is: the certificate of the key, its issuer, the issuer of that, and so on. Certificates outside of this
//! chain come last, because they may be another way to a root. Errors are sentences for the person who uploads the
//! bundle, and contain no part of a key.

use super::description::{self, Description};
use crate::policy::renewal::Validity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use howdah_config::Document;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

/// A chain and its key, which belong together, or certificates of authorities.
pub struct Bundle {
    /// The chain in order, then the key. A secret.
    pem: String,
    has_key: bool,
    description: Document,
    /// The hosts of the certificate of the key, in lower case.
    host_names: Vec<String>,
    /// The time within which the certificate of the key is accepted, or all of the authorities'.
    validity: (ASN1Time, ASN1Time),
}

const COLUMNS: usize = 64;

// === impl Bundle ===

impl Bundle {
    /// Reads certificates and one private key, in any order, with any text between them. Without a key, each
    /// certificate must be an authority's.
    pub fn parse(pem: &[u8]) -> Result<Bundle, String> {
        if contains(pem, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(pem, b"Proc-Type: 4,ENCRYPTED") {
            return Err("the private key is encrypted; decrypt it: openssl pkey -in KEY -out PLAIN".to_owned());
        }
        let (certificates, key) = read(pem)?;
        let parsed = certificates.iter().enumerate().map(|(index, certificate)| {
            let parsed = parse_x509_certificate(certificate).map(|(_, parsed)| parsed);
            parsed.map_err(|_| format!("the certificate {} cannot be read; is it X.509?", index + 1))
        });
        let mut parsed: Vec<_> = parsed.collect::<Result<_, String>>()?;
        let Some(key) = key else { return Bundle::of_authorities(&parsed) };
        let public_key = any_supported_type(&key).ok().and_then(|key| Some(key.public_key()?.into_owned()));
        let public_key = public_key.ok_or(
            "the private key cannot be used; howdah takes RSA of 2048 to 4096 bits, ECDSA with P-256 or P-384, and Ed25519",
        )?;
        let leaf = parsed.iter().position(|certificate| certificate.public_key().raw == public_key.as_ref());
        let leaf =
            leaf.ok_or("the private key belongs to none of the certificates; add the one that it was made for")?;
        let leaf = parsed.remove(leaf);
        let host_names = host_names(&leaf);
        let validity = (leaf.validity().not_before, leaf.validity().not_after);
        let chain = sort_chain(leaf, parsed);
        let description = serde_json::to_string(&Description::of(&chain)).map_err(|error| error.to_string())?;
        let mut pem = String::new();
        for certificate in &chain {
            push_block(&mut pem, "CERTIFICATE", certificate.as_raw());
        }
        push_block(&mut pem, label(&key)?, key.secret_der());
        let description = Document::parse(&description).map_err(|error| error.to_string())?;
        Ok(Bundle { pem, has_key: true, description, host_names, validity })
    }

    fn of_authorities(certificates: &[X509Certificate<'_>]) -> Result<Bundle, String> {
        if !certificates.iter().all(|certificate| certificate.is_ca() || certificate.issuer() == certificate.subject())
        {
            return Err(
                "there is no private key in it; send all in one: cat chain.pem key.pem. (Only certificates of \
                        authorities, which verify servers, need no key.)"
                    .to_owned(),
            );
        }
        let description =
            serde_json::to_string(&Description::of_authorities(certificates)).map_err(|error| error.to_string())?;
        let mut pem = String::new();
        for certificate in certificates {
            push_block(&mut pem, "CERTIFICATE", certificate.as_raw());
        }
        let since = certificates.iter().map(|certificate| certificate.validity().not_before).max();
        let until = certificates.iter().map(|certificate| certificate.validity().not_after).min();
        let validity = since.zip(until).ok_or("there is no certificate in it")?;
        let description = Document::parse(&description).map_err(|error| error.to_string())?;
        Ok(Bundle { pem, has_key: false, description, host_names: Vec::new(), validity })
    }

    /// Whether it has a private key.
    pub fn has_key(&self) -> bool {
        self.has_key
    }

    /// The chain in order, then the key.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The chain without the key.
    pub fn certificates(&self) -> &str {
        const END: &str = "-----END CERTIFICATE-----\n";
        self.pem.rfind(END).map_or("", |end| &self.pem[..end + END.len()])
    }

    /// The description for the control API.
    pub fn description(&self) -> &Document {
        &self.description
    }

    /// The hosts of the certificate of the key, in lower case.
    pub fn host_names(&self) -> &[String] {
        &self.host_names
    }

    /// When it is accepted.
    pub fn validity(&self) -> Validity {
        let (since, until) = &self.validity;
        Validity { since: since.timestamp(), until: until.timestamp() }
    }

    /// Whether it is not accepted any more.
    pub fn has_expired(&self) -> bool {
        ASN1Time::now() > self.validity.1
    }

    /// Why it is not accepted today, if it is not.
    pub fn expiry_problem(&self) -> Option<String> {
        let (since, until) = &self.validity;
        let now = ASN1Time::now();
        if now < *since {
            Some(format!("is not valid before {}", description::time(since)))
        } else if self.has_expired() {
            Some(format!("expired on {}", description::time(until)))
        } else {
            None
        }
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("validity", &self.validity).finish_non_exhaustive()
    }
}

fn read(pem: &[u8]) -> Result<(Vec<CertificateDer<'static>>, Option<PrivateKeyDer<'static>>), String> {
    let mut certificates = Vec::new();
    let mut keys = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        match section.map_err(describe_pem_error)? {
            (SectionKind::Certificate, der) => certificates.push(CertificateDer::from(der)),
            (SectionKind::PrivateKey, der) => keys.push(PrivateKeyDer::Pkcs8(der.into())),
            (SectionKind::RsaPrivateKey, der) => keys.push(PrivateKeyDer::Pkcs1(der.into())),
            (SectionKind::EcPrivateKey, der) => keys.push(PrivateKeyDer::Sec1(der.into())),
            _ => {}
        }
    }
    if certificates.is_empty() {
        return Err(
            "there is no certificate in it; send PEM: the certificate, its chain, and the private key".to_owned()
        );
    }
    match (keys.pop(), keys.len()) {
        (key, 0) => Ok((certificates, key)),
        (_, others) => Err(format!("there are {} private keys; keep the one of the certificate", others + 1)),
    }
}

/// No error repeats the text: it may contain most of a key.
fn describe_pem_error(error: pem::Error) -> String {
    let problem = match error {
        pem::Error::MissingSectionEnd { .. } => "a block of PEM has no end",
        pem::Error::IllegalSectionStart { .. } => "the first line of a block of PEM is broken",
        pem::Error::Base64Decode(_) => "a block of PEM is not base64",
        _ => "it is not PEM",
    };
    format!("{problem}; send the files as they came, one after the other")
}

fn sort_chain<'c>(leaf: X509Certificate<'c>, mut others: Vec<X509Certificate<'c>>) -> Vec<X509Certificate<'c>> {
    let mut chain = vec![leaf];
    while let Some(last) = chain.last()
        && last.issuer() != last.subject()
        && let Some(issuer) = others.iter().position(|other| other.subject().as_raw() == last.issuer().as_raw())
    {
        chain.push(others.remove(issuer));
    }
    chain.append(&mut others);
    chain
}

fn host_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return Vec::new() };
    let hosts = alternatives.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    hosts.collect()
}

fn label(key: &PrivateKeyDer<'_>) -> Result<&'static str, String> {
    match key {
        PrivateKeyDer::Pkcs1(_) => Ok("RSA PRIVATE KEY"),
        PrivateKeyDer::Sec1(_) => Ok("EC PRIVATE KEY"),
        PrivateKeyDer::Pkcs8(_) => Ok("PRIVATE KEY"),
        _ => Err("the private key has a form that howdah does not know".to_owned()),
    }
}

/// RFC 7468.
fn push_block(pem: &mut String, label: &str, der: &[u8]) {
    *pem += &format!("-----BEGIN {label}-----\n");
    let text = STANDARD.encode(der);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(COLUMNS));
        *pem += line;
        pem.push('\n');
        rest = after;
    }
    *pem += &format!("-----END {label}-----\n");
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    /// Leaf, intermediate, root, and the key of the leaf.
    struct Chain {
        certificates: Vec<String>,
        key: String,
    }

    fn chain() -> Chain {
        let authority = |name: &str| {
            let mut parameters = CertificateParams::default();
            parameters.distinguished_name.push(DnType::CommonName, name);
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            parameters
        };
        let (root_key, middle_key, key) =
            (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root = authority("root").self_signed(&root_key).unwrap();
        let root_issuer = Issuer::new(authority("root"), root_key);
        let middle = authority("middle").signed_by(&middle_key, &root_issuer).unwrap();
        let middle_issuer = Issuer::new(authority("middle"), middle_key);
        let leaf = CertificateParams::new(["example.com".to_owned()]).unwrap().signed_by(&key, &middle_issuer).unwrap();
        Chain { certificates: vec![leaf.pem(), middle.pem(), root.pem()], key: key.serialize_pem() }
    }

    fn names(bundle: &Bundle) -> Vec<String> {
        let text = bundle.description().compact();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let issuer = |link: &serde_json::Value| link["issuer"]["common_name"].as_str().unwrap_or_default().to_owned();
        value["chain"].as_array().unwrap().iter().map(issuer).collect()
    }

    #[test]
    fn a_bundle_in_any_order_is_put_in_order() {
        let Chain { certificates, key } = chain();
        let [leaf, middle, root] = &certificates[..] else { unreachable!() };
        let ordered = format!("{leaf}{middle}{root}{key}").replace('\r', "");
        for text in [
            ordered.clone(),
            format!("{key}{root}{middle}{leaf}"),
            format!("Bag Attributes\n\u{e9}\n{middle}\nsubject=\n{leaf}\n\n{key}{root}"),
            ordered.replace('\n', "\r\n"),
        ] {
            let bundle = Bundle::parse(text.as_bytes()).expect("a bundle");
            assert_eq!(names(&bundle), ["middle", "root", "root"]);
            assert_eq!(bundle.pem(), ordered);
            assert_eq!(bundle.expiry_problem(), None);
        }
    }

    #[test]
    fn authorities_need_no_key() {
        let Chain { certificates, .. } = chain();
        let [_, middle, root] = &certificates[..] else { unreachable!() };
        let text = format!("{middle}{root}").replace('\r', "");
        let bundle = Bundle::parse(text.as_bytes()).expect("a bundle");
        assert_eq!((bundle.pem(), bundle.has_key(), bundle.expiry_problem()), (&*text, false, None));
        assert_eq!(names(&bundle), ["root", "root"]);
        assert!(!bundle.description().compact().contains("\"key\""));
    }

    #[test]
    fn a_bundle_that_cannot_be_used_is_refused() {
        let (one, other) = (chain(), chain());
        let (leaf, key) = (&one.certificates[0], &one.key);
        let p521 = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        let cases = [
            (String::new(), "there is no certificate in it; send PEM"),
            (leaf.clone(), "there is no private key in it; send all in one"),
            (key.clone(), "there is no certificate in it"),
            (format!("{leaf}{key}{}", other.key), "there are 2 private keys; keep the one"),
            (format!("{leaf}{}", other.key), "the private key belongs to none of the certificates"),
            (format!("{leaf}{p521}"), "the private key cannot be used; howdah takes RSA of 2048 to 4096 bits"),
            (format!("{leaf}{}", key.replace("PRIVATE", "ENCRYPTED PRIVATE")), "the private key is encrypted; decrypt"),
            (
                format!("{leaf}-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\nAAAA\n"),
                "the private key is encrypted; decrypt it: openssl pkey",
            ),
            (leaf.replace("-----END", "----"), "a block of PEM has no end"),
            (format!("{}{key}", leaf.replace("MII", "!!!")), "a block of PEM is not base64"),
            (
                format!("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n{key}"),
                "the certificate 1 cannot be read",
            ),
        ];
        for (text, expected) in cases {
            let error = Bundle::parse(text.as_bytes()).expect_err(expected);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        let Chain { certificates, key } = chain();
        let bundle = Bundle::parse(format!("{}{key}", certificates[0]).as_bytes()).unwrap();
        let line = key.lines().nth(1).unwrap();
        assert!(bundle.pem().contains(line));
        assert!(!format!("{bundle:?}").contains(line) && !bundle.description().pretty().contains(line));
        let broken = key.replacen("-----END", "*-----END", 1);
        let error = Bundle::parse(format!("{}{broken}", certificates[0]).as_bytes()).unwrap_err();
        assert!(!error.contains(line), "{error}");
    }

    #[test]
    fn an_expired_certificate_is_detected() {
        let mut parameters = CertificateParams::new(["old.example".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2001, 2, 3);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let bundle = Bundle::parse(format!("{}{}", certificate.pem(), key.serialize_pem()).as_bytes()).unwrap();
        assert_eq!(bundle.expiry_problem().as_deref(), Some("expired on Feb  3 00:00:00 2001 GMT"));
    }
}
