//! The text of a distinguished name as in nginx's `$ssl_client_s_dn`: RFC 2253, the last part first.
//!
//! A value that is no text of a known type, and the value of a type without a short name, is written as `#` and its
//! bytes. Control characters are escaped, so a name is always one line.

use std::fmt::Write as _;
use x509_parser::der_parser::oid::Oid;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The short names of OpenSSL.
const SHORT_NAMES: [(&str, &str); 13] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// The text of a name.
pub fn rfc2253(name: &X509Name<'_>) -> String {
    let sets: Vec<_> = name.iter().collect();
    let sets = sets.iter().rev().map(|set| set.iter().map(attribute).collect::<Vec<_>>().join("+"));
    sets.collect::<Vec<_>>().join(",")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let value = match (short_name(attribute.attr_type()), attribute.as_str()) {
        (Some(_), Ok(text)) => escaped(text),
        _ => hexadecimal(attribute.attr_value().data),
    };
    let kind = attribute.attr_type();
    match short_name(kind) {
        Some(name) => format!("{name}={value}"),
        None => format!("{}={value}", kind.to_id_string()),
    }
}

fn short_name(kind: &Oid<'_>) -> Option<&'static str> {
    let id = kind.to_id_string();
    SHORT_NAMES.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut escaped = String::with_capacity(text.len());
    for (index, c) in text.chars().enumerate() {
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => escaped.extend(['\\', c]),
            '#' if index == 0 => escaped.push_str("\\#"),
            ' ' if index == 0 || index == last => escaped.push_str("\\ "),
            c if c.is_control() => {
                for byte in c.to_string().bytes() {
                    let _ = write!(escaped, "\\{byte:02X}");
                }
            }
            c => escaped.push(c),
        }
    }
    escaped
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("#".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use x509_parser::parse_x509_certificate;

    fn text_of(parts: &[(DnType, &str)]) -> String {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name = DistinguishedName::new();
        parts.iter().for_each(|(kind, value)| parameters.distinguished_name.push(kind.clone(), *value));
        let certificate = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
        rfc2253(parse_x509_certificate(certificate.der()).unwrap().1.subject())
    }

    #[test]
    fn the_last_part_comes_first() {
        let email = DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]);
        let parts = [
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Shop, Inc."),
            (DnType::CommonName, "Zoë"),
            (email, "zoe@shop.example"),
        ];
        assert_eq!(text_of(&parts), "emailAddress=zoe@shop.example,CN=Zoë,O=Shop\\, Inc.,C=DE");
    }

    #[test]
    fn a_value_cannot_look_like_another_part() {
        for (value, expected) in [
            ("a,CN=admin", "CN=a\\,CN=admin"),
            ("a+O=x", "CN=a\\+O=x"),
            ("#x \" \\ ", "CN=\\#x \\\" \\\\\\ "),
            (" a\nX: y", "CN=\\ a\\0AX: y"),
            ("", "CN="),
        ] {
            assert_eq!(text_of(&[(DnType::CommonName, value)]), expected);
        }
        let custom = DnType::CustomDnType(vec![1, 2, 3, 4]);
        assert_eq!(text_of(&[(custom, "a,b")]), "1.2.3.4=#612C62");
    }
}
