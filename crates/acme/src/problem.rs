//! The errors of authorities (RFC 8555, 6.7) with their remedies.

use howdah_protocol::messages::acme::{FailureCause, OrderChallenge, OrderFailure};
use instant_acme::{Error, Problem};

const PREFIX: &str = "urn:ietf:params:acme:error:";
/// An authority chooses these texts.
const MAX_DETAIL_CHARS: usize = 400;
/// Of a whole reason: some errors quote an authority, too.
const MAX_REASON_CHARS: usize = 1000;

/// Why an order has failed.
pub fn describe(error: &Error, domain: &str, challenge: &OrderChallenge) -> OrderFailure {
    match error {
        Error::Api(problem) => of_authority(problem, domain, challenge),
        Error::Timeout(_) => failure(
            FailureCause::Authority,
            "the authority has not finished the order in time; howdah tries again".to_owned(),
        ),
        Error::Json(_) => failure(
            FailureCause::Authority,
            "the authority's answer is not ACME; check the URL of the directory".to_owned(),
        ),
        error => failure(FailureCause::Authority, format!("the authority cannot be used: {error}")),
    }
}

/// The failure of a challenge or of a request, as the authority reports it.
fn of_authority(problem: &Problem, domain: &str, challenge: &OrderChallenge) -> OrderFailure {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix(PREFIX).unwrap_or(kind);
    // The problem of one name is in a subproblem.
    let (kind, detail) = match problem.subproblems.first() {
        Some(first) if kind == "compound" => {
            let kind = first.r#type.as_deref().unwrap_or_default();
            (kind.strip_prefix(PREFIX).unwrap_or(kind), first.detail.as_deref())
        }
        _ => (kind, problem.detail.as_deref()),
    };
    let (cause, advice) = advice(kind, domain, challenge);
    let reason = match detail {
        Some(detail) => format!("{advice} (the authority: {:?})", shortened(detail, MAX_DETAIL_CHARS)),
        None if kind.is_empty() => advice,
        None => format!("{advice} (the authority: {:?})", shortened(kind, MAX_DETAIL_CHARS)),
    };
    failure(cause, reason)
}

/// The remedy for each type of error.
fn advice(kind: &str, domain: &str, challenge: &OrderChallenge) -> (FailureCause, String) {
    let port = match challenge {
        OrderChallenge::Http => 80,
        OrderChallenge::TlsAlpn => 443,
        OrderChallenge::Dns { .. } => 53,
    };
    match (kind, challenge) {
        ("dns", _) => {
            let advice =
                format!("the DNS has no address for {domain}; add an A or AAAA record that leads to this machine");
            (FailureCause::Challenge, advice)
        }
        ("caa", _) => {
            let advice =
                format!("the DNS forbids this authority for {domain}; change the CAA record, or ask another authority");
            (FailureCause::Authority, advice)
        }
        ("connection" | "tls", OrderChallenge::Dns { .. }) => {
            (FailureCause::Challenge, format!("the name servers of {domain} do not answer the authority"))
        }
        ("connection", _) => {
            let advice = format!(
                "port {port} of {domain} cannot be reached from outside; open it in the firewall, and have a listener on it"
            );
            (FailureCause::Challenge, advice)
        }
        ("tls", _) => {
            let advice = format!(
                "another program answers on port {port} of {domain}, such as a proxy that ends TLS; \
                 let it pass TLS on, or write \"challenges\": \"http-01\""
            );
            (FailureCause::Challenge, advice)
        }
        ("unauthorized" | "incorrectResponse", OrderChallenge::Dns { .. }) => {
            let advice = format!(
                "the record _acme-challenge.{} has not the right value; check the command in \"dns\", or write a longer \"wait\"",
                domain.trim_start_matches("*.")
            );
            (FailureCause::Challenge, advice)
        }
        ("unauthorized" | "incorrectResponse", _) => {
            let advice =
                format!("another machine answers for {domain}; let all its A and AAAA records lead to this one");
            (FailureCause::Challenge, advice)
        }
        ("rateLimited", _) => {
            (FailureCause::Authority, "the authority's rate limit is reached; howdah waits".to_owned())
        }
        ("rejectedIdentifier" | "unsupportedIdentifier", _) => {
            (FailureCause::Authority, format!("the authority issues no certificates for {domain}; correct the name"))
        }
        ("externalAccountRequired", _) => {
            let advice = "the authority wants an account that it knows; add \"external_account\"";
            (FailureCause::Authority, advice.to_owned())
        }
        ("userActionRequired", _) => {
            (FailureCause::Authority, "the authority wants you to agree to new terms; see its website".to_owned())
        }
        ("invalidContact" | "unsupportedContact", _) => {
            (FailureCause::Authority, "the authority does not accept the address in \"contact\"; correct it".to_owned())
        }
        ("serverInternal", _) => {
            (FailureCause::Authority, "the authority is out of order; howdah tries again".to_owned())
        }
        _ => (FailureCause::Authority, format!("the authority refuses the order for {domain}")),
    }
}

fn failure(cause: FailureCause, reason: String) -> OrderFailure {
    OrderFailure { cause, reason: shortened(&reason, MAX_REASON_CHARS), retry_after_seconds: None }
}

fn shortened(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: &str, detail: Option<&str>) -> Problem {
        Problem {
            r#type: Some(format!("{PREFIX}{kind}")),
            detail: detail.map(str::to_owned),
            status: Some(400),
            subproblems: Vec::new(),
        }
    }

    #[test]
    fn each_problem_has_a_remedy() {
        let dns = || OrderChallenge::Dns { command: Vec::new(), wait_seconds: 0 };
        let cases = [
            ("dns", OrderChallenge::Http, FailureCause::Challenge, "add an A or AAAA record"),
            ("connection", OrderChallenge::Http, FailureCause::Challenge, "port 80 of shop.example cannot be reached"),
            (
                "connection",
                OrderChallenge::TlsAlpn,
                FailureCause::Challenge,
                "port 443 of shop.example cannot be reached",
            ),
            ("unauthorized", OrderChallenge::Http, FailureCause::Challenge, "another machine answers for shop.example"),
            ("unauthorized", dns(), FailureCause::Challenge, "check the command in \"dns\""),
            ("tls", OrderChallenge::TlsAlpn, FailureCause::Challenge, "write \"challenges\": \"http-01\""),
            ("caa", OrderChallenge::Http, FailureCause::Authority, "change the CAA record"),
            ("rateLimited", OrderChallenge::Http, FailureCause::Authority, "rate limit is reached"),
            ("externalAccountRequired", dns(), FailureCause::Authority, "add \"external_account\""),
            ("somethingNew", OrderChallenge::Http, FailureCause::Authority, "refuses the order for shop.example"),
        ];
        for (kind, challenge, cause, expected) in cases {
            let failure = describe(&Error::Api(problem(kind, Some("it\nis so"))), "shop.example", &challenge);
            assert_eq!(failure.cause, cause, "{kind}");
            assert!(failure.reason.contains(expected), "{kind}: {}", failure.reason);
            assert!(failure.reason.ends_with("(the authority: \"it\\nis so\")"), "one line: {}", failure.reason);
        }
    }

    #[test]
    fn the_authority_cannot_fill_the_log() {
        let long = "x".repeat(100_000);
        let failure = describe(&Error::Api(problem("dns", Some(&long))), "shop.example", &OrderChallenge::Http);
        assert!(failure.reason.len() < 600);
        let errors = [Error::Api(problem(&long, None)), Error::Other(long.clone().into()), Error::Str("x")];
        for error in errors {
            assert!(describe(&error, "shop.example", &OrderChallenge::Http).reason.len() <= MAX_REASON_CHARS);
        }
    }
}
