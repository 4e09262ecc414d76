//! The description of a certificate in the control API: NGINX Unit's `GET /certificates/NAME`.

use serde::Serialize;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AttributeTypeAndValue, SubjectPublicKeyInfo, X509Name};

/// The description of a bundle.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The kind of the private key, and its length where Unit shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// In the order in which clients receive it.
    chain: Vec<ChainEntry>,
}

/// A certificate of the chain.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ChainEntry {
    subject: DistinguishedName,
    issuer: DistinguishedName,
    validity: Validity,
}

/// The attributes of a subject or an issuer. Of several attributes of one kind, the first one.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct DistinguishedName {
    #[serde(skip_serializing_if = "Option::is_none")]
    common_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alt_names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    country: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_or_province: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locality: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    organization: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    department: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Validity {
    since: String,
    until: String,
}

// === impl Description ===

impl Description {
    /// Describes a chain, which begins with the certificate of the key.
    pub fn of(chain: &[X509Certificate<'_>]) -> Description {
        let key = chain.first().map_or_else(String::new, |leaf| key(leaf.public_key()));
        Description { key: Some(key), chain: chain.iter().map(ChainEntry::of).collect() }
    }

    /// Describes certificates of authorities, which have no key here.
    pub fn of_authorities(certificates: &[X509Certificate<'_>]) -> Description {
        Description { key: None, chain: certificates.iter().map(ChainEntry::of).collect() }
    }
}

impl ChainEntry {
    fn of(certificate: &X509Certificate<'_>) -> ChainEntry {
        let alt_names = |issuers: bool| {
            certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) if !issuers => Some(dns_names(&names.general_names)),
                ParsedExtension::IssuerAlternativeName(names) if issuers => Some(dns_names(&names.general_names)),
                _ => None,
            })
        };
        ChainEntry {
            subject: DistinguishedName::of(certificate.subject(), alt_names(false)),
            issuer: DistinguishedName::of(certificate.issuer(), alt_names(true)),
            validity: Validity {
                since: time(&certificate.validity().not_before),
                until: time(&certificate.validity().not_after),
            },
        }
    }
}

impl DistinguishedName {
    fn of(name: &X509Name<'_>, alt_names: Option<Vec<String>>) -> DistinguishedName {
        DistinguishedName {
            common_name: first(name.iter_common_name()),
            alt_names,
            country: first(name.iter_country()),
            state_or_province: first(name.iter_state_or_province()),
            locality: first(name.iter_locality()),
            organization: first(name.iter_organization()),
            department: first(name.iter_organizational_unit()),
        }
    }
}

fn first<'n, 'd: 'n>(mut values: impl Iterator<Item = &'n AttributeTypeAndValue<'d>>) -> Option<String> {
    values.next().map(|value| String::from_utf8_lossy(value.as_slice()).into_owned())
}

fn dns_names(names: &[GeneralName<'_>]) -> Vec<String> {
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    names.iter().filter_map(dns).collect()
}

/// Unit's names: keys of elliptic curves are `ECDH`. Ed25519, for which Unit has only `unknown`, is named.
fn key(key: &SubjectPublicKeyInfo<'_>) -> String {
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => format!("RSA ({} bits)", rsa.key_size()),
        Ok(PublicKey::EC(_)) => "ECDH".to_owned(),
        _ => "Ed25519".to_owned(),
    }
}

/// In the format of OpenSSL.
pub fn time(time: &ASN1Time) -> String {
    let time = time.to_datetime();
    let month = &time.month().to_string()[..3];
    let (hour, minute, second) = time.to_hms();
    format!("{month} {:2} {hour:02}:{minute:02}:{second:02} {} GMT", time.day(), time.year())
}

/// Seconds since 1970, in the format of OpenSSL.
pub fn time_text(seconds: i64) -> String {
    ASN1Time::from_timestamp(seconds).map_or_else(|_| "never".to_owned(), |seconds| time(&seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::pem::Pem;

    /// Made with OpenSSL. Its key is not stored.
    const RSA: &str = include_str!("../../../testdata/rsa.pem");

    #[test]
    fn a_certificate_is_described_as_by_unit() {
        let pem = Pem::iter_from_buffer(RSA.as_bytes()).next().unwrap().unwrap();
        let description = Description::of(&[pem.parse_x509().unwrap()]);
        let name = "\"country\":\"DE\",\"state_or_province\":\"Berlin\",\"locality\":\"Spandau\",\
                    \"organization\":\"Howdah\",\"department\":\"Testing\"";
        let expected = format!(
            "{{\"key\":\"RSA (2048 bits)\",\"chain\":[{{\
             \"subject\":{{\"common_name\":\"rsa.example\",\"alt_names\":[\"rsa.example\",\"*.rsa.example\"],{name}}},\
             \"issuer\":{{\"common_name\":\"rsa.example\",{name}}},\
             \"validity\":{{\"since\":\"Nov 21 00:49:42 2026 GMT\",\"until\":\"Nov 18 00:49:42 2036 GMT\"}}}}]}}"
        );
        assert_eq!(serde_json::to_string(&description).unwrap(), expected);
    }

    #[test]
    fn a_time_is_printed_as_by_openssl() {
        let cases = [(1_537_299_979, "Sep 18 19:46:19 2018 GMT"), (4_102_444_801, "Jan  1 00:00:01 2100 GMT")];
        for (seconds, expected) in cases {
            assert_eq!(time(&ASN1Time::from_timestamp(seconds).unwrap()), expected);
        }
    }
}
