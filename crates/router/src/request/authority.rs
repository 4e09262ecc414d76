//! The host that a request is for: from its target or its `Host` header (RFC 9112, 3.2).
//!
//! All programs behind howdah must see the same host. Therefore the host of an absolute target replaces the header's. An
//! invalid host, or more than one, is answered 400: a program that makes a path of the host would open another folder,
//! and programs that read it differently would see different hosts.

use http::header::{HOST, HeaderValue};
use http::request::Parts;
use http::{Version, uri};

/// Why a request has no valid host: the part that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAuthority(pub &'static str);

/// Sets `Host` to the host of an absolute target, as the RFC requires. [`host`] validates it.
pub fn take_from_target(request: &mut Parts) {
    // Several headers, or no header where one is required, are an error that must not be repaired.
    let hosts = request.headers.get_all(HOST).iter().count();
    if let Some(authority) = request.uri.authority()
        && (hosts == 1 || hosts == 0 && request.version != Version::HTTP_11)
        && let Ok(value) = HeaderValue::from_str(authority.as_str())
    {
        request.headers.insert(HOST, value);
    }
}

/// The request's host: in lower case, without port and trailing dot. Empty if an HTTP/1.0 client sends no host.
///
/// # Errors
/// 400 for a missing host, an invalid host, or several hosts.
pub fn host(request: &Parts) -> Result<String, BadAuthority> {
    if request.uri.scheme().is_some_and(|scheme| *scheme != uri::Scheme::HTTP && *scheme != uri::Scheme::HTTPS) {
        return Err(BadAuthority("the target's scheme"));
    }
    let mut hosts = request.headers.get_all(HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(BadAuthority("more than one Host")),
        (None, None) if request.version == Version::HTTP_10 => return Ok(String::new()),
        (None, None) => return Err(BadAuthority("no Host")),
        (Some(header), None) => header,
    };
    let name = header.to_str().ok().and_then(name).ok_or(BadAuthority("Host"))?;
    Ok(name.to_ascii_lowercase())
}

/// The host of `host:port`, if it is valid (RFC 3986, 3.2).
fn name(authority: &str) -> Option<&str> {
    let is_port = |rest: &str| {
        rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if authority.starts_with('[') {
        let (address, port) = authority.split_at(authority.find(']')? + 1);
        let is_address =
            address[1..address.len() - 1].bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
        return (address.len() > 2 && is_address && is_port(port)).then_some(address);
    }
    let name_end = authority.bytes().position(|byte| byte == b':').unwrap_or(authority.len());
    let (name, port) = authority.split_at(name_end);
    let name = name.strip_suffix('.').unwrap_or(name);
    // A name with an empty label could be "..", which is a folder for a program that makes a path of it.
    let mut previous = b'.';
    let is_name = name.bytes().all(|byte| {
        let before = std::mem::replace(&mut previous, byte);
        if byte == b'.' { before != b'.' } else { is_name_byte(byte) }
    });
    let is_name = is_name && previous != b'.';
    (is_name && is_port(port)).then_some(name)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(target: &str, version: Version, hosts: &[&str]) -> Result<String, &'static str> {
        let mut request = http::Request::builder().uri(target).version(version);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (mut request, ()) = request.body(()).unwrap().into_parts();
        take_from_target(&mut request);
        host(&request).map_err(|BadAuthority(why)| why)
    }

    #[test]
    fn a_host_is_one_name() {
        let table: &[(&str, Result<&str, &str>)] = &[
            ("example.org", Ok("example.org")),
            ("EXAMPLE.org:80", Ok("example.org")),
            ("example.org.", Ok("example.org")),
            ("example.org.:80", Ok("example.org")),
            ("example.org:", Ok("example.org")),
            ("under_score", Ok("under_score")),
            ("192.0.2.1:8080", Ok("192.0.2.1")),
            ("[2001:DB8::1]", Ok("[2001:db8::1]")),
            ("[::1]:80", Ok("[::1]")),
            ("", Err("Host")),
            (".", Err("Host")),
            ("..", Err("Host")),
            ("a..b", Err("Host")),
            (".a", Err("Host")),
            ("a/b", Err("Host")),
            ("a\\b", Err("Host")),
            ("a b", Err("Host")),
            ("user@a", Err("Host")),
            ("a:80:90", Err("Host")),
            ("a:b", Err("Host")),
            ("a, b", Err("Host")),
            ("a?b", Err("Host")),
            ("a#b", Err("Host")),
            ("<a>", Err("Host")),
            ("[]", Err("Host")),
            ("[::1", Err("Host")),
            ("[::1]x", Err("Host")),
            ("[a/b]", Err("Host")),
            ("::1", Err("Host")),
        ];
        for (header, expected) in table {
            let host = of("/", Version::HTTP_11, &[header]);
            assert_eq!(host.as_deref().map_err(|why| *why), *expected, "{header:?}");
        }
    }

    #[test]
    fn the_target_has_priority_over_the_header() {
        let (new, old) = (Version::HTTP_11, Version::HTTP_10);
        type Case<'c> = (&'c str, Version, &'c [&'c str], Result<&'c str, &'c str>);
        let cases: &[Case<'_>] = &[
            ("/", new, &[], Err("no Host")),
            ("/", old, &[], Ok("")),
            ("/", old, &[""], Err("Host")),
            ("/", new, &["a", "a"], Err("more than one Host")),
            ("http://b/", new, &["a"], Ok("b")),
            ("HTTP://B:81/", new, &["a"], Ok("b")),
            ("https://b/", new, &["b"], Ok("b")),
            ("http://b/", new, &[], Err("no Host")),
            ("http://b/", old, &[], Ok("b")),
            ("http://b/", new, &["b", "b"], Err("more than one Host")),
            ("http://user@b/", new, &["b"], Err("Host")),
            ("ftp://b/", new, &["b"], Err("the target's scheme")),
        ];
        for (target, version, hosts, expected) in cases {
            let host = of(target, *version, hosts);
            assert_eq!(host.as_deref().map_err(|why| *why), *expected, "{target} {hosts:?}");
        }
    }
}
