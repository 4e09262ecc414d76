//! `Host`, `Origin` and `Sec-Fetch-Site`: a page of another origin cannot choose them.
//!
//! A page of a stranger can send requests to any port of the machine that shows it, and can give this machine a name of
//! its own (DNS rebinding). Therefore the `Host` is an IP address, `localhost`, or a name that the operator has allowed; an
//! `Origin` is the page's own; and a change must have an `Origin`.

use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use std::net::IpAddr;

/// How much a request can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The page itself: a link may lead to it, also on another page. It has no data.
    Page,
    /// Reads data.
    Read,
    /// Changes something, or makes howdah work.
    Change,
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks that the request comes from our own page.
///
/// # Errors
/// The reason, for the person at the browser.
pub fn check(headers: &HeaderMap, effect: Effect, allowed_hosts: &[String]) -> Result<(), &'static str> {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        return Err("the request has no Host");
    };
    let host = host.to_ascii_lowercase();
    if headers.get_all(HOST).iter().count() > 1 || !is_allowed(&host, allowed_hosts) {
        return Err("the name of this machine in the URL is not allowed: use localhost or an IP address, or start \
                    howdah dashboard with --allow-host NAME");
    }
    match (headers.get(ORIGIN), effect) {
        (Some(origin), _) if !is_own(origin, &host) => return Err("the request comes from another web page"),
        (None, Effect::Change) => return Err("a change has no Origin: only the page of the dashboard can make one"),
        _ => {}
    }
    let is_foreign = match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        None | Some(b"same-origin") => false,
        // The user has typed the address.
        Some(b"none") => effect == Effect::Change,
        Some(_) => effect != Effect::Page,
    };
    if is_foreign { Err("the request comes from another web page") } else { Ok(()) }
}

/// Whether a browser got this name from the operator. `host` may have a port: any, because a tunnel may have another one.
fn is_allowed(host: &str, allowed_hosts: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name == "localhost"
        || bare.parse::<IpAddr>().is_ok()
        || allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

/// With https, a proxy before the dashboard has the certificate.
fn is_own(origin: &HeaderValue, host: &str) -> bool {
    let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
    ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_itself_may_ask() {
        use Effect::{Change, Page, Read};
        type Case = (Effect, &'static str, &'static [(&'static str, &'static str)], bool);
        let table: [Case; _] = [
            (Page, "127.0.0.1:8088", &[], true),
            (Page, "localhost:8088", &[], true),
            (Page, "LOCALHOST:9000", &[], true),
            (Page, "[::1]:8088", &[], true),
            (Page, "ops.example:8088", &[], true),
            (Page, "OPS.example", &[], true),
            (Page, "", &[], false),
            (Page, "localhost.evil.example", &[], false),
            (Page, "evil.example:8088", &[], false),
            (Page, "127.0.0.1.evil.example", &[], false),
            (Page, "127.0.0.1:8088@evil.example", &[], false),
            (Page, "127.0.0.1:", &[], false),
            // A link on another page leads to our page.
            (Page, "127.0.0.1:8088", &[("sec-fetch-site", "cross-site")], true),
            (Page, "127.0.0.1:8088", &[("origin", "http://evil.example")], false),
            (Read, "127.0.0.1:8088", &[], true),
            (Read, "127.0.0.1:8088", &[("sec-fetch-site", "same-origin")], true),
            (Read, "127.0.0.1:8088", &[("sec-fetch-site", "none")], true),
            (Read, "127.0.0.1:8088", &[("sec-fetch-site", "same-site")], false),
            (Read, "127.0.0.1:8088", &[("sec-fetch-site", "cross-site")], false),
            (Read, "evil.example:8088", &[("sec-fetch-site", "same-origin")], false),
            (Change, "127.0.0.1:8088", &[], false),
            (Change, "127.0.0.1:8088", &[("origin", "http://127.0.0.1:8088")], true),
            (Change, "ops.example", &[("origin", "https://ops.example")], true),
            (Change, "127.0.0.1:8088", &[("origin", "http://127.0.0.1:8080")], false),
            (Change, "127.0.0.1:8088", &[("origin", "http://localhost:8088")], false),
            (Change, "127.0.0.1:8088", &[("origin", "null")], false),
            (Change, "127.0.0.1:8088", &[("origin", "file://127.0.0.1:8088")], false),
            (Change, "127.0.0.1:8088", &[("origin", "http://127.0.0.1:8088"), ("sec-fetch-site", "none")], false),
            (Change, "evil.example", &[("origin", "http://evil.example")], false),
        ];
        for (effect, host, more, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            for (name, value) in more {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            let checked = check(&headers, effect, &["ops.example".to_owned()]);
            assert_eq!(checked.is_ok(), expected, "{effect:?} {host} {more:?}: {checked:?}");
        }
        assert!(check(&HeaderMap::new(), Effect::Page, &[]).is_err());
        let mut headers = HeaderMap::new();
        headers.append(HOST, HeaderValue::from_static("localhost"));
        headers.append(HOST, HeaderValue::from_static("evil.example"));
        assert!(check(&headers, Effect::Page, &[]).is_err());
    }
}
