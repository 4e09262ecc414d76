//! One attempt to obtain a certificate.
//!
//! The key is made here, for each certificate. The chain that the authority sends is checked by the supervisor.

use crate::accounts::{Accounts, KnownAccount};
use crate::problem;
use crate::records::Records;
use crate::reports::Reports;
use howdah_protocol::messages::acme::{
    CertificateOrder, ChallengeAnswer, DnsRecord, FailureCause, FromAcme, OrderAuthority, OrderChallenge, OrderFailure,
    OrderKey, Secret,
};
use instant_acme::{
    AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeType, Error, Identifier, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long an authority may take to check a challenge, and to issue the certificate.
const PATIENCE: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(200)).backoff(1.5).timeout(Duration::from_secs(180));
/// How long the router may take until it answers the challenge.
const ROUTER_PATIENCE: Duration = Duration::from_secs(30);
/// How long everything may take: the supervisor waits somewhat longer.
const WHOLE_PATIENCE: Duration = Duration::from_secs(600);

/// A message to the supervisor has 64 KiB at most.
const MAX_CHAIN_BYTES: usize = 48 * 1024;
/// Usual ones have 43.
const MAX_TOKEN_CHARS: usize = 512;
const SEVERAL_NAMES: &str = "the order has several names";

/// Carries out an order. The account, if it is new, is reported before the result. Its record in the DNS is removed before.
pub async fn carry_out(
    accounts: &Accounts,
    records: &Records,
    reports: &Reports,
    order: CertificateOrder,
    answered: oneshot::Receiver<()>,
) -> FromAcme {
    let dns_wait = match &order.challenge {
        OrderChallenge::Dns { wait_seconds, .. } => Duration::from_secs(*wait_seconds),
        _ => Duration::ZERO,
    };
    let mut record = None;
    let attempt = obtain(accounts, records, reports, &order, answered, &mut record);
    let attempt = tokio::time::timeout(WHOLE_PATIENCE + dns_wait, attempt).await;
    // An attempt that took too long has left it.
    remove(records, &order, &mut record).await;
    match attempt {
        Ok(Ok(pem)) => FromAcme::Obtained { order: order.order, pem: Secret(pem) },
        Ok(Err(failure)) => FromAcme::Failed { order: order.order, failure },
        Err(_) => {
            failed(order.order, "the authority has not finished the order in time; howdah tries again".to_owned())
        }
    }
}

/// The report of an order that has failed, by no fault of the configuration.
pub fn failed(order: u64, reason: String) -> FromAcme {
    let failure = OrderFailure { cause: FailureCause::Authority, reason, retry_after_seconds: None };
    FromAcme::Failed { order, failure }
}

/// Removes the record of an order, if it has one.
async fn remove(records: &Records, order: &CertificateOrder, record: &mut Option<DnsRecord>) {
    if let OrderChallenge::Dns { command, .. } = &order.challenge {
        records.remove(order.order, command, record).await;
    }
}

/// The chain and its key. `record` is the record in the DNS that was not removed.
async fn obtain(
    accounts: &Accounts,
    records: &Records,
    reports: &Reports,
    order: &CertificateOrder,
    answered: oneshot::Receiver<()>,
    record: &mut Option<DnsRecord>,
) -> Result<String, OrderFailure> {
    let describe = |error: &Error| problem::describe(error, &order.domain, &order.challenge);
    let (known, credentials) =
        accounts.of(&order.authority, order.contact.as_deref()).await.map_err(|error| describe(&error))?;
    if let Some(credentials) = credentials {
        report_account(reports, &order.authority, credentials);
    }
    let refused = |error: &Error| {
        let pause = known.client.retry_after().map(|pause| pause.as_secs());
        OrderFailure { retry_after_seconds: pause, ..describe(error) }
    };
    let with_pause = |error: Error| refused(&error);
    let identifiers = [Identifier::Dns(order.domain.clone())];
    let mut placed = match place(&known, &identifiers, order.replaces.as_deref()).await {
        Err(error) if is_unknown_account(&error) => {
            accounts.forget(&order.authority).await;
            let fresh = OrderAuthority { credentials: None, ..order.authority.clone() };
            let made = accounts.of(&fresh, order.contact.as_deref()).await.map_err(|error| refused(&error))?;
            if let (_, Some(credentials)) = &made {
                report_account(reports, &order.authority, credentials.clone());
            }
            place(&made.0, &identifiers, None).await.map_err(with_pause)?
        }
        placed => placed.map_err(with_pause)?,
    };
    let proven = prove(&mut placed, order, records, reports, answered, record).await;
    remove(records, order, record).await;
    proven.map_err(|refusal| match refusal {
        Refusal::Acme(error) => with_pause(error),
        Refusal::Ours(reason) => OrderFailure { cause: FailureCause::Challenge, reason, retry_after_seconds: None },
    })?;
    let (key, csr) = request(&order.domain, order.key).map_err(|reason| OrderFailure {
        cause: FailureCause::Authority,
        reason: format!("no key can be made: {reason}"),
        retry_after_seconds: None,
    })?;
    placed.finalize_csr(&csr).await.map_err(with_pause)?;
    let chain = placed.poll_certificate(&PATIENCE).await.map_err(with_pause)?;
    if chain.len() > MAX_CHAIN_BYTES {
        let reason = format!("the authority has sent a chain of {} bytes", chain.len());
        return Err(OrderFailure { cause: FailureCause::Authority, reason, retry_after_seconds: None });
    }
    Ok(format!("{}\n{key}", chain.trim_end()))
}

fn report_account(reports: &Reports, authority: &OrderAuthority, credentials: Secret<String>) {
    let key_id = authority.external_account.as_ref().map(|Secret((id, _))| id.clone());
    reports.send(&FromAcme::Account { directory: authority.directory.clone(), key_id, credentials });
}

/// Places the order. An authority that does not know the certificate that is renewed gets an ordinary order.
async fn place(known: &KnownAccount, identifiers: &[Identifier], replaces: Option<&str>) -> Result<Order, Error> {
    let leaf = replaces.and_then(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).ok());
    let replaced = leaf.as_ref().and_then(|leaf| CertificateIdentifier::try_from(leaf).ok());
    if let Some(replaced) = replaced {
        match known.account.new_order(&NewOrder::new(identifiers).replaces(replaced)).await {
            Err(Error::Api(problem)) if problem.status.is_some_and(|status| matches!(status, 400 | 404 | 409)) => {}
            Err(Error::Unsupported(_) | Error::Other(_)) => {}
            placed => return placed,
        }
    }
    known.account.new_order(&NewOrder::new(identifiers)).await
}

fn is_unknown_account(error: &Error) -> bool {
    let kind = match error {
        Error::Api(problem) => problem.r#type.as_deref().unwrap_or_default(),
        _ => "",
    };
    kind.ends_with(":accountDoesNotExist")
}

/// Why control over the domain is not proven.
enum Refusal {
    Acme(Error),
    Ours(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Acme(error)
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Ours(reason)
    }
}

/// Proves control over the domain. `record` is the record that was added to the DNS.
async fn prove(
    placed: &mut Order,
    order: &CertificateOrder,
    records: &Records,
    reports: &Reports,
    answered: oneshot::Receiver<()>,
    record: &mut Option<DnsRecord>,
) -> Result<(), Refusal> {
    if placed.state().status == OrderStatus::Ready {
        return Ok(());
    }
    let kind = match order.challenge {
        OrderChallenge::Http => ChallengeType::Http01,
        OrderChallenge::TlsAlpn => ChallengeType::TlsAlpn01,
        OrderChallenge::Dns { .. } => ChallengeType::Dns01,
    };
    let mut answered = Some(answered);
    let mut authorizations = placed.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let challenge = authorization.challenge(kind.clone());
        let Some(mut challenge) = challenge else {
            return Err(Refusal::Ours(format!(
                "the authority does not offer the challenge {}",
                name_of(&order.challenge)
            )));
        };
        match &order.challenge {
            OrderChallenge::Dns { command, wait_seconds } => {
                // Its record would take the place of the first one, which would stay in the DNS.
                if record.is_some() {
                    return Err(Refusal::Ours(SEVERAL_NAMES.to_owned()));
                }
                let domain = order.domain.trim_start_matches("*.").to_owned();
                let value = challenge.key_authorization().dns_value();
                let added = DnsRecord { name: format!("_acme-challenge.{domain}"), value, domain };
                records.add(order.order, command, added, record).await?;
                records.unless_stopping(tokio::time::sleep(Duration::from_secs(*wait_seconds))).await?;
            }
            _ => {
                let answer = answer_of(&challenge, order).map_err(Refusal::Ours)?;
                reports.send(&FromAcme::Challenge { order: order.order, answer });
                let answered = answered.take().ok_or_else(|| Refusal::Ours(SEVERAL_NAMES.to_owned()))?;
                let in_time = tokio::time::timeout(ROUTER_PATIENCE, answered).await;
                if !matches!(in_time, Ok(Ok(()))) {
                    return Err(Refusal::Ours("the router does not answer the challenge; see howdah's log".to_owned()));
                }
            }
        }
        records.unless_stopping(challenge.set_ready()).await??;
    }
    let polled = records.unless_stopping(placed.poll_ready(&PATIENCE)).await?;
    match polled {
        Ok(OrderStatus::Ready | OrderStatus::Valid) => Ok(()),
        Ok(_) | Err(Error::Api(_)) => Err(reason_of_challenge(placed).await.or(polled.err()).map_or_else(
            || Refusal::Ours("the authority does not accept the challenge, and gives no reason".to_owned()),
            Refusal::Acme,
        )),
        Err(error) => Err(error.into()),
    }
}

/// The error of a challenge is more exact than that of the order.
async fn reason_of_challenge(placed: &mut Order) -> Option<Error> {
    let mut authorizations = placed.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.clone()) {
            return Some(Error::Api(problem));
        }
    }
    None
}

fn answer_of(challenge: &ChallengeHandle<'_>, order: &CertificateOrder) -> Result<ChallengeAnswer, String> {
    let authorization = challenge.key_authorization();
    if !is_token(&challenge.token) {
        return Err("the authority has sent a token that RFC 8555 does not allow".to_owned());
    }
    if order.challenge == OrderChallenge::Http {
        return Ok(ChallengeAnswer::Http(challenge.token.clone(), authorization.as_str().to_owned()));
    }
    let make = || -> Result<String, rcgen::Error> {
        let mut parameters = CertificateParams::new([order.domain.clone()])?;
        let digest = CustomExtension::new_acme_identifier(authorization.digest().as_ref());
        parameters.custom_extensions = vec![digest];
        let key = KeyPair::generate()?;
        Ok(parameters.self_signed(&key)?.pem() + &key.serialize_pem())
    };
    let pem = make().map_err(|error| format!("the certificate for the challenge cannot be made: {error}"))?;
    Ok(ChallengeAnswer::TlsAlpn(order.domain.clone(), Secret(pem)))
}

/// A new key, as PEM, and the request for its certificate.
fn request(domain: &str, kind: OrderKey) -> Result<(String, Vec<u8>), rcgen::Error> {
    let mut parameters = CertificateParams::new([domain.to_owned()])?;
    parameters.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate_for(match kind {
        OrderKey::P256 => &PKCS_ECDSA_P256_SHA256,
        OrderKey::P384 => &PKCS_ECDSA_P384_SHA384,
    })?;
    let request = parameters.serialize_request(&key)?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

/// RFC 8555, 8.3. The domain's visitors would get any other text from it, too.
fn is_token(text: &str) -> bool {
    (1..=MAX_TOKEN_CHARS).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn name_of(challenge: &OrderChallenge) -> &'static str {
    match challenge {
        OrderChallenge::Http => "http-01",
        OrderChallenge::TlsAlpn => "tls-alpn-01",
        OrderChallenge::Dns { .. } => "dns-01",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_no_characters_with_a_meaning() {
        assert!(is_token("LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0-_"));
        let long = "a".repeat(MAX_TOKEN_CHARS + 1);
        for text in ["", "<script>", "a/b", "a b", "a.b", "\u{e9}", "a\n", long.as_str()] {
            assert!(!is_token(text), "{text}");
        }
    }
}
