//! When an authority wants a certificate to be renewed (ARI, RFC 9773).

use crate::accounts::Accounts;
use howdah_protocol::messages::acme::{FromAcme, WindowQuestion};
use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::time::Duration;

/// How long an answer is believed: the limits are ours.
const MIN_PAUSE: Duration = Duration::from_secs(60);
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause after a failure, and for authorities without an opinion.
const DEFAULT_PAUSE: Duration = Duration::from_secs(6 * 60 * 60);

/// Asks the authority. A failure is no opinion: the certificate is renewed at two thirds of its life.
pub async fn ask(accounts: &Accounts, question: WindowQuestion) -> FromAcme {
    let answer = window(accounts, &question).await;
    let (window, pause) = match answer {
        Ok((window, pause)) => (Some(window), pause.clamp(MIN_PAUSE, MAX_PAUSE)),
        Err(reason) => {
            tracing::debug!(domain = question.domain, reason, "the authority does not suggest a time for the renewal");
            (None, DEFAULT_PAUSE)
        }
    };
    FromAcme::RenewalWindow { question: question.question, window, ask_again_seconds: pause.as_secs() }
}

/// The answer without a suggestion of the authority.
pub fn unknown(question: u64) -> FromAcme {
    FromAcme::RenewalWindow { question, window: None, ask_again_seconds: DEFAULT_PAUSE.as_secs() }
}

async fn window(accounts: &Accounts, question: &WindowQuestion) -> Result<((i64, i64), Duration), String> {
    // Without an account, the question is not worth making one.
    if question.authority.credentials.is_none() {
        return Err("there is no account".to_owned());
    }
    let (known, _) = accounts.of(&question.authority, None).await.map_err(|error| error.to_string())?;
    let leaf = CertificateDer::from_pem_slice(question.certificate.as_bytes()).map_err(|error| error.to_string())?;
    let identifier = CertificateIdentifier::try_from(&leaf)?;
    let (info, pause) = known.account.renewal_info(&identifier).await.map_err(|error| error.to_string())?;
    let window = info.suggested_window;
    Ok(((window.start.unix_timestamp(), window.end.unix_timestamp()), pause))
}
