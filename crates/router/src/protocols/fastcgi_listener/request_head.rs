//! The variables of a request become a head, as HTTP has it, and a description of the client by its web server.
//!
//! `HTTP_…` are headers of the client. `REQUEST_URI` is the target; a client of FastCGI that sends none, such as `cgi-fcgi`,
//! has named a script and a path after it. The other variables are kept beside the head ([`Front`]).
//!
//! Headers about the connection between the client and its web server are dropped: FastCGI has a length
//! and an end of the body of its own.

use crate::net::front::Front;
use crate::net::peer::Peer;
use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::connection::limits::{MAX_HEAD_BYTES, MAX_HEADERS};
use bytes::Bytes;
use howdah_fastcgi::name_value;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri, Version};
use std::net::IpAddr;

/// A request without its body.
pub struct RequestHead {
    /// The head.
    pub parts: Parts,
    /// Both ends of the client's connection to its web server, as far as that describes them.
    pub peer: Peer,
    /// The length of the body, if it is announced.
    pub length: Option<u64>,
}

/// The most bytes of the variables of a request. A long target is in several of them.
pub const MAX_VARIABLES_BYTES: usize = 256 * 1024;
/// The most variables that are not headers.
const MAX_OTHERS: usize = 256;
/// The most variables, repeated ones included: each costs a search among the others.
const MAX_VARIABLES: usize = MAX_HEADERS + MAX_OTHERS;
/// The most bytes of a variable: a part of it is never longer than the head that a client may send.
const MAX_VALUE_BYTES: usize = MAX_HEAD_BYTES;
/// The longest name of a Unix socket, with `unix:` before it. Logs and limits keep addresses.
const SOCKET_BYTES: usize = 128;
/// The most digits of a length.
const LENGTH_DIGITS: usize = 18;

/// Reads a complete list of variables. `connection`: both ends of the web server's own connection.
///
/// # Errors
/// Why the request is refused.
pub fn read(list: Vec<u8>, connection: &Peer) -> Result<RequestHead, HeadRefusal> {
    let list = Bytes::from(list);
    let (mut headers, mut front) = (HeaderMap::new(), Front::default());
    for (number, pair) in name_value::pairs(&list).enumerate() {
        let (name, value) = pair.ok_or(HeadRefusal::Bad("the list of variables breaks off"))?;
        if number >= MAX_VARIABLES || value.len() > MAX_VALUE_BYTES {
            return Err(HeadRefusal::HeadTooLarge);
        }
        let value = list.slice_ref(value);
        match name.strip_prefix(b"HTTP_") {
            Some(name) => add_header(&mut headers, name, value)?,
            None if name.is_empty() || name.contains(&0) || value.contains(&0) => {
                return Err(HeadRefusal::Bad("a variable without a name, or with a NUL"));
            }
            None => front.set(list.slice_ref(name), value),
        }
        if headers.len() > MAX_HEADERS || front.len() > MAX_OTHERS {
            return Err(HeadRefusal::HeadTooLarge);
        }
    }
    let method = front.get("REQUEST_METHOD").and_then(|method| Method::from_bytes(method).ok());
    let version = version(&front);
    let length = length(&front)?;
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if let Some(kind) = front.get("CONTENT_TYPE") {
        headers.insert(CONTENT_TYPE, value_of(kind.clone(), "CONTENT_TYPE")?);
    }
    // nginx sends no HTTP_HOST for some requests of HTTP/3.
    if version != Version::HTTP_10
        && !headers.contains_key(HOST)
        && let Some(name) = front.get("SERVER_NAME")
    {
        headers.insert(HOST, value_of(name.clone(), "SERVER_NAME")?);
    }
    let mut request = Request::new(());
    *request.method_mut() = method.ok_or(HeadRefusal::Bad("REQUEST_METHOD"))?;
    *request.uri_mut() = target(&front)?;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    front.is_https = is_https(&front);
    let peer = peer(front, connection)?;
    Ok(RequestHead { parts: request.into_parts().0, peer, length })
}

/// The head of a request that is refused.
pub fn refused(connection: &Peer) -> RequestHead {
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_10;
    RequestHead { parts: request.into_parts().0, peer: connection.described_by(Some(Front::default())), length: None }
}

/// Adds a header of the client, by the name that follows `HTTP_`.
fn add_header(headers: &mut HeaderMap, name: &[u8], value: Bytes) -> Result<(), HeadRefusal> {
    let name: Vec<u8> = name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
    let name = HeaderName::from_bytes(&name).map_err(|_| HeadRefusal::Bad("the name of an HTTP_ variable"))?;
    // CONTENT_LENGTH and CONTENT_TYPE are what counts. The others are about the client's connection. Not all web servers write
    // the name in upper case, or replace its hyphens.
    let is_ours = [CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING, UPGRADE].contains(&name);
    if is_ours || name == "http2-settings" {
        return Ok(());
    }
    headers.append(name, value_of(value, "an HTTP_ variable")?);
    Ok(())
}

fn value_of(value: Bytes, what: &'static str) -> Result<HeaderValue, HeadRefusal> {
    HeaderValue::from_maybe_shared(value).map_err(|_| HeadRefusal::Bad(what))
}

/// A client of FastCGI that does not know the version needs no `Host`, like one of HTTP/1.0.
fn version(front: &Front) -> Version {
    match front.get("SERVER_PROTOCOL").map(|protocol| &**protocol) {
        None | Some(b"HTTP/1.0") => Version::HTTP_10,
        Some(b"HTTP/2.0" | b"HTTP/2") => Version::HTTP_2,
        Some(_) => Version::HTTP_11,
    }
}

fn length(front: &Front) -> Result<Option<u64>, HeadRefusal> {
    let Some(length) = front.get("CONTENT_LENGTH") else { return Ok(None) };
    let is_number = length.len() <= LENGTH_DIGITS && length.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(length).ok().filter(|_| is_number).and_then(|digits| digits.parse().ok());
    number.map(Some).ok_or(HeadRefusal::Bad("CONTENT_LENGTH"))
}

fn target(front: &Front) -> Result<Uri, HeadRefusal> {
    if let Some(target) = front.get("REQUEST_URI") {
        return match Uri::from_maybe_shared(target.clone()) {
            Ok(uri) => Ok(uri),
            // Web servers pass bytes on that a target must not have, and PHP-FPM does not look at them.
            Err(_) if target.starts_with(b"/") => encoded(target, b"%?&=").parse(),
            Err(_) => return Err(HeadRefusal::Bad("REQUEST_URI")),
        }
        .map_err(|_| HeadRefusal::Bad("REQUEST_URI"));
    }
    let script = front.get("SCRIPT_NAME").or_else(|| front.get("DOCUMENT_URI"));
    let mut target: String = script.into_iter().chain(front.get("PATH_INFO")).map(|path| encoded(path, b"")).collect();
    if let Some(query) = front.get("QUERY_STRING") {
        target.push('?');
        target.push_str(&encoded(query, b"%?&="));
    }
    if !target.starts_with('/') {
        return Err(HeadRefusal::Bad("neither REQUEST_URI nor SCRIPT_NAME"));
    }
    target.parse().map_err(|_| HeadRefusal::Bad("SCRIPT_NAME or QUERY_STRING"))
}

/// A text in which only letters, digits, the bytes of a path, and these bytes are themselves.
fn encoded(text: &[u8], kept: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"/-._~!$'()*+,;:@".contains(byte) || kept.contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            let digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value)]);
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    encoded
}

fn is_https(front: &Front) -> bool {
    match front.get("HTTPS") {
        Some(value) => !value.eq_ignore_ascii_case(b"off"),
        None => front.get("REQUEST_SCHEME").is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https")),
    }
}

/// Both ends of the client's connection. An end that the web server does not describe is its own.
fn peer(front: Front, connection: &Peer) -> Result<Peer, HeadRefusal> {
    let mut peer = connection.described_by(Some(front));
    let front = peer.front.take().unwrap_or_default();
    if let Some(address) = front.get("REMOTE_ADDR") {
        peer.remote_addr = address_of(address).ok_or(HeadRefusal::Bad("REMOTE_ADDR"))?.into();
        peer.remote_port = port(&front, "REMOTE_PORT").unwrap_or_default();
    }
    if let Some(address) = front.get("SERVER_ADDR") {
        peer.server_addr = address_of(address).ok_or(HeadRefusal::Bad("SERVER_ADDR"))?;
    }
    peer.server_port = port(&front, "SERVER_PORT").unwrap_or(peer.server_port);
    peer.front = Some(front);
    Ok(peer)
}

/// An IP address, or a Unix socket: nginx names that `unix:`, and HAProxy nothing or `-`.
fn address_of(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    match text.parse::<IpAddr>() {
        Ok(address) => Some(address.to_canonical().to_string()),
        Err(_) if text.starts_with("unix:") && text.len() <= SOCKET_BYTES && !text.contains(char::is_control) => {
            Some(text.to_owned())
        }
        Err(_) => None,
    }
}

fn port(front: &Front, name: &str) -> Option<String> {
    let port: u16 = std::str::from_utf8(front.get(name)?).ok()?.parse().ok()?;
    Some(port.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: [(&str, &str); 4] =
        [("REQUEST_METHOD", "GET"), ("REQUEST_URI", "/a?b"), ("SERVER_PROTOCOL", "HTTP/1.1"), ("HTTP_HOST", "x")];

    fn connection() -> Peer {
        Peer::of_unix_socket("/run/x", 1)
    }

    fn head(variables: &[(&str, &str)]) -> Result<RequestHead, HeadRefusal> {
        let mut list = Vec::new();
        variables.iter().for_each(|(name, value)| name_value::write(&mut list, name.as_bytes(), value.as_bytes()));
        read(list, &connection())
    }

    #[test]
    fn a_request_of_a_web_server_is_one_of_http() {
        let variables = [
            &GET[..],
            &[
                ("CONTENT_TYPE", "text/plain"),
                ("CONTENT_LENGTH", "7"),
                ("HTTP_CONTENT_LENGTH", "8"),
                ("HTTP_CONTENT_TYPE", "text/html"),
                ("HTTP_TRANSFER_ENCODING", "chunked"),
                ("HTTP_Transfer-Encoding", "chunked"),
                ("HTTP_content_length", "9"),
                ("HTTP_X_Two", "2"),
                ("REMOTE_ADDR", "192.0.2.1"),
                ("REMOTE_PORT", "5000"),
                ("SERVER_ADDR", "::ffff:192.0.2.2"),
                ("SERVER_PORT", "443"),
                ("HTTPS", "on"),
                ("GEO", "de"),
            ],
        ];
        let head = head(&variables.concat()).expect("a head");
        let RequestHead { parts, peer, length } = &head;
        assert_eq!((parts.method.as_str(), parts.uri.to_string().as_str()), ("GET", "/a?b"));
        let headers: Vec<_> = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let expected: [(&str, &[u8]); 4] =
            [("host", b"x"), ("x-two", b"2"), ("content-length", b"7"), ("content-type", b"text/plain")];
        assert_eq!(headers, expected);
        assert_eq!((length, &*peer.remote_addr, peer.remote_port.as_str()), (&Some(7), "192.0.2.1", "5000"));
        assert_eq!((peer.server_addr.as_str(), peer.server_port.as_str()), ("192.0.2.2", "443"));
        let front = peer.front.as_ref().expect("a web server");
        assert!(front.is_https && front.others().eq([(&b"GEO"[..], &b"de"[..])]));
    }

    #[test]
    fn a_client_without_a_target_names_a_script() {
        let variables =
            [("REQUEST_METHOD", "GET"), ("SCRIPT_NAME", "/a b.php"), ("PATH_INFO", "/\u{e9}"), ("QUERY_STRING", "q=1")];
        let RequestHead { parts, peer, .. } = head(&variables).expect("a head");
        assert_eq!((parts.uri.to_string().as_str(), parts.version), ("/a%20b.php/%C3%A9?q=1", Version::HTTP_10));
        assert_eq!((&*peer.remote_addr, peer.server_addr.as_str()), ("unix:", "unix:/run/x"));
    }

    #[test]
    fn a_target_that_web_servers_pass_on_is_encoded() {
        let table = [
            ("/a?q=\"b\"&c=<d>", "/a?q=%22b%22&c=%3Cd%3E"),
            ("/a b%20c", "/a%20b%20c"),
            ("/a\u{1}?\u{7f}#x", "/a%01?%7F%23x"),
            ("/?a[]=^`", "/?a[]=^`"),
        ];
        for (sent, expected) in table {
            let head = head(&[GET[0], ("REQUEST_URI", sent), GET[2], GET[3]]).expect(sent);
            assert_eq!(head.parts.uri.to_string(), expected, "{sent}");
            assert_eq!(
                head.peer.front.and_then(|front| front.get("REQUEST_URI").cloned()).as_deref(),
                Some(sent.as_bytes())
            );
        }
    }

    #[test]
    fn a_host_may_be_missing() {
        let variables = |name| [GET[0], GET[1], GET[2], ("SERVER_NAME", name)];
        let head = head(&variables("shop.example")).expect("a head");
        assert_eq!(head.parts.headers[HOST], "shop.example");
    }

    #[test]
    fn wrong_variables_are_named() {
        let long_socket = format!("unix:/{}", "x".repeat(SOCKET_BYTES));
        let with = |name, value| [&GET[..], &[(name, value)]].concat();
        let cases = [
            (vec![("REQUEST_URI", "/")], "REQUEST_METHOD"),
            (with("REQUEST_METHOD", "G T"), "REQUEST_METHOD"),
            (vec![("REQUEST_METHOD", "GET")], "neither REQUEST_URI nor SCRIPT_NAME"),
            (with("REQUEST_URI", "a b"), "REQUEST_URI"),
            (with("REQUEST_URI", "\u{1}"), "REQUEST_URI"),
            (with("CONTENT_LENGTH", "-1"), "CONTENT_LENGTH"),
            (with("CONTENT_LENGTH", "1, 2"), "CONTENT_LENGTH"),
            (with("CONTENT_LENGTH", "99999999999999999999"), "CONTENT_LENGTH"),
            (with("REMOTE_ADDR", "evil\n"), "REMOTE_ADDR"),
            (with("REMOTE_ADDR", "unix:\n"), "REMOTE_ADDR"),
            (with("REMOTE_ADDR", &long_socket), "REMOTE_ADDR"),
            (with("SERVER_ADDR", "x"), "SERVER_ADDR"),
            (with("HTTP_X Y", "1"), "the name of an HTTP_ variable"),
            (with("HTTP_", "1"), "the name of an HTTP_ variable"),
            (with("HTTP_X", "1\r\nY: 2"), "an HTTP_ variable"),
            (with("CONTENT_TYPE", "a\nb"), "CONTENT_TYPE"),
            (with("", "1"), "a variable without a name, or with a NUL"),
            (with("SCRIPT_FILENAME", "/x.php\0.jpg"), "a variable without a name, or with a NUL"),
        ];
        for (variables, expected) in cases {
            assert_eq!(head(&variables).err(), Some(HeadRefusal::Bad(expected)), "{variables:?}");
        }
        assert_eq!(
            read(vec![5, 5, 1], &connection()).err(),
            Some(HeadRefusal::Bad("the list of variables breaks off"))
        );
    }

    #[test]
    fn the_number_of_variables_has_a_limit() {
        for prefix in ["HTTP_X", "X"] {
            let names: Vec<_> = (0..300).map(|number| format!("{prefix}{number}")).collect();
            let variables: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
            assert_eq!(head(&[&GET[..], &variables].concat()).err(), Some(HeadRefusal::HeadTooLarge));
        }
    }

    #[test]
    fn repeated_variables_and_long_ones_are_refused() {
        let repeated = [("X", ""); MAX_VARIABLES];
        assert_eq!(head(&[&GET[..], &repeated].concat()).err(), Some(HeadRefusal::HeadTooLarge));
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        assert_eq!(head(&[&GET[..], &[("X", &long)]].concat()).err(), Some(HeadRefusal::HeadTooLarge));
        assert!(head(&[&GET[..], &[("X", &long[1..])]].concat()).is_ok());
    }
}
