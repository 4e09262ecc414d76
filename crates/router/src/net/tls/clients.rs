//! The certificates of clients: how they are verified, and what PHP gets of them.
//!
//! A certificate that does not lead to one of the authorities, or has expired, ends the handshake. The variables have the
//! names and the form that users of nginx know (`fastcgi_param SSL_CLIENT_S_DN $ssl_client_s_dn`).

use crate::net::tls::certificates::CertificatePems;
use crate::net::tls::distinguished_name::rfc2253;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use howdah_config::ClientCertificates;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::fmt::Write as _;
use std::sync::Arc;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

/// A client's verified certificate, as CGI variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    subject: String,
    issuer: String,
    /// In hexadecimal.
    serial: String,
    fingerprint: String,
    since: String,
    until: String,
    /// When it expires, in seconds since 1970.
    expires: i64,
    pem: String,
}

const PEM_COLUMNS: usize = 64;
const SECONDS_OF_A_DAY: i64 = 86_400;

/// Verifies the certificates of clients.
///
/// # Errors
/// A sentence, when an authority cannot be used.
pub fn verifier(
    clients: &ClientCertificates,
    certificates: &CertificatePems,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for name in &clients.authorities {
        let pem = certificates.get(name).ok_or_else(|| format!("there is no certificate {name:?}; upload it"))?;
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let added = certificate.map_err(|error| error.to_string());
            added
                .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()))
                .map_err(|problem| format!("the certificate {name:?} cannot be used as an authority: {problem}"))?;
        }
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if clients.required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| format!("client_ca: {error}; upload the authorities again"))
}

// === impl ClientIdentity ===

impl ClientIdentity {
    /// Reads a certificate that was verified.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<ClientIdentity> {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        let validity = parsed.validity();
        // A zero at the beginning is only the sign of the number.
        let serial = parsed.raw_serial();
        let serial = if serial.len() > 1 { serial.strip_prefix(&[0]).unwrap_or(serial) } else { serial };
        Some(ClientIdentity {
            subject: rfc2253(parsed.subject()),
            issuer: rfc2253(parsed.issuer()),
            serial: hexadecimal(serial).to_uppercase(),
            fingerprint: hexadecimal(digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate).as_ref()),
            since: time_text(&validity.not_before),
            until: time_text(&validity.not_after),
            expires: validity.not_after.timestamp(),
            pem: pem_of(certificate),
        })
    }

    /// Passes each variable's name and value on.
    pub fn each_variable(&self, mut pass_on: impl FnMut(&str, &str)) {
        let days_left = ((self.expires - Timestamp::now().as_second()) / SECONDS_OF_A_DAY).max(0);
        let variables = [
            ("SSL_CLIENT_VERIFY", "SUCCESS"),
            ("SSL_CLIENT_S_DN", &self.subject),
            ("SSL_CLIENT_I_DN", &self.issuer),
            ("SSL_CLIENT_SERIAL", &self.serial),
            ("SSL_CLIENT_FINGERPRINT", &self.fingerprint),
            ("SSL_CLIENT_V_START", &self.since),
            ("SSL_CLIENT_V_END", &self.until),
            ("SSL_CLIENT_V_REMAIN", &days_left.to_string()),
            ("SSL_CLIENT_CERT", &self.pem),
        ];
        variables.into_iter().for_each(|(name, value)| pass_on(name, value));
    }
}

/// As OpenSSL writes times.
fn time_text(time: &ASN1Time) -> String {
    let time = Timestamp::from_second(time.timestamp()).unwrap_or_default();
    time.to_zoned(TimeZone::UTC).strftime("%b %e %H:%M:%S %Y GMT").to_string()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let base64 = STANDARD.encode(certificate);
    let mut rest = base64.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_COLUMNS));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem + "-----END CERTIFICATE-----\n"
}
