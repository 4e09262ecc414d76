//! Writes the CGI variables of a request (RFC 3875, and those that nginx and FPM add) for a script.

use crate::backends::script::Script;
use crate::request::protocol::protocol;
use crate::request::record::ids::TRACE_PARENT;
use crate::request::subject::Subject;
use crate::request::unsafe_fields::is_safe;
use howdah_channel::request::{NAMES, RequestHeadWriter, code};
use howdah_config::Scheme;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, USER_AGENT};
use http::request::Parts;
use std::cell::LazyCell;
use std::collections::HashMap;
use std::path::Path;

/// Collects the variables of a request.
pub trait Variables {
    /// Begins another request.
    fn restart(&mut self);

    /// Adds a variable that every request may have, by its place in [`NAMES`].
    fn known(&mut self, code: u16, value: &[u8]);

    /// Adds a variable by its name.
    fn named(&mut self, name: &[u8], value: &[u8]);
}

/// Writes the head of a request. The application may have chosen the name of the server's software.
///
/// A web server in front has described itself and the client: a script gets its description, except for the parts
/// that name files. Its variables that howdah does not know are added.
///
/// If several headers map to the same variable, a header with a safe name has priority, or else the first header; a header
/// with an unsafe name arrives here only if the configuration keeps it. `Proxy` is left out: programs take HTTP_PROXY for
/// their own setting (CVE-2016-5385).
pub fn write(
    head: &mut impl Variables,
    subject: &Subject<'_>,
    software: &str,
    root: &Path,
    script: &Script,
    body_len: Option<u64>,
) {
    let Subject { parts, peer, origin, host, path, .. } = subject;
    let root = root.as_os_str().as_encoded_bytes();
    let uri = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let front = peer.front.as_ref();
    let or_of_front = |code: u16, ours| front.and_then(|front| front.get(name(code))).map_or(ours, |value| &**value);
    head.restart();
    head.known(code::REQUEST_METHOD, parts.method.as_str().as_bytes());
    head.known(code::REQUEST_URI, or_of_front(code::REQUEST_URI, uri.as_bytes()));
    // A rewrite of a web server may have changed it, or removed it.
    let query = front.and_then(|front| front.get_or_empty("QUERY_STRING"));
    head.known(code::QUERY_STRING, query.map_or(subject.raw_query().as_bytes(), |query| &**query));
    head.known(code::SCRIPT_NAME, &script.name);
    head.known(code::SCRIPT_FILENAME, &script.filename);
    if !script.path_info.is_empty() {
        head.known(code::PATH_INFO, &script.path_info);
        let mut translated = root.to_vec();
        translated.extend_from_slice(&script.path_info);
        head.known(code::PATH_TRANSLATED, &translated);
    }
    head.known(code::DOCUMENT_ROOT, root);
    // A rewrite of howdah's own names another path than the web server did.
    let document_uri = if subject.is_rewritten { path.bytes() } else { or_of_front(code::DOCUMENT_URI, path.bytes()) };
    head.known(code::DOCUMENT_URI, document_uri);
    head.known(code::SERVER_PROTOCOL, or_of_front(code::SERVER_PROTOCOL, protocol(parts.version).as_bytes()));
    head.known(code::SERVER_SOFTWARE, or_of_front(code::SERVER_SOFTWARE, software.as_bytes()));
    let server_name = if host.is_empty() { peer.server_addr.as_str() } else { host };
    head.known(code::SERVER_NAME, or_of_front(code::SERVER_NAME, server_name.as_bytes()));
    head.known(code::SERVER_ADDR, peer.server_addr.as_bytes());
    head.known(code::SERVER_PORT, peer.server_port.as_bytes());
    head.known(code::REMOTE_ADDR, origin.address.as_bytes());
    head.known(code::REMOTE_PORT, origin.port.as_bytes());
    head.known(code::REQUEST_SCHEME, origin.scheme.as_str().as_bytes());
    if origin.scheme == Scheme::Https {
        head.known(code::HTTPS, b"on");
    }
    if let (Some(_), Some(value)) = (origin.trace_parent, parts.headers.get(TRACE_PARENT)) {
        head.named(b"TRACEPARENT", value.as_bytes());
    }
    if let Some(user) = &subject.user {
        head.named(b"REMOTE_USER", user.as_bytes());
        head.named(b"AUTH_TYPE", b"Basic");
    }
    if let Some(tls) = &peer.tls {
        head.named(b"SSL_PROTOCOL", tls.protocol.as_bytes());
        head.named(b"SSL_CIPHER", tls.cipher.as_bytes());
        match &tls.client {
            Some(client) => client.each_variable(|name, value| head.named(name.as_bytes(), value.as_bytes())),
            None => head.named(b"SSL_CLIENT_VERIFY", b"NONE"),
        }
    }
    head.known(code::GATEWAY_INTERFACE, b"CGI/1.1");
    head.known(code::REDIRECT_STATUS, or_of_front(code::REDIRECT_STATUS, b"200"));
    if let Some(len) = body_len {
        head.known(code::CONTENT_LENGTH, len.to_string().as_bytes());
    }
    if let Some(front) = front {
        // A password that howdah has verified counts.
        let is_ours = |name: &[u8]| subject.user.is_some() && matches!(name, b"REMOTE_USER" | b"AUTH_TYPE");
        front.others().filter(|(name, _)| !is_ours(name)).for_each(|(name, value)| head.named(name, value));
    }
    headers(head, parts);
}

fn headers(head: &mut impl Variables, parts: &Parts) {
    let mut name = Vec::with_capacity(64);
    let winners = LazyCell::new(|| winners(&parts.headers));
    for key in parts.headers.keys() {
        let mut values = parts.headers.get_all(key).iter();
        let Some(first) = values.next() else { continue };
        let joined;
        let value = match values.next() {
            None => first.as_bytes(),
            Some(second) => {
                // RFC 9110, 5.3; cookies are joined with semicolons (RFC 6265, 5.4).
                let separator: &[u8] = if key == COOKIE { b"; " } else { b", " };
                let mut all = first.as_bytes().to_vec();
                for value in std::iter::once(second).chain(values) {
                    all.extend_from_slice(separator);
                    all.extend_from_slice(value.as_bytes());
                }
                joined = all;
                &joined
            }
        };
        match *key {
            // `write` sets it to the length of the received body.
            CONTENT_LENGTH => {}
            CONTENT_TYPE => head.known(code::CONTENT_TYPE, value),
            COOKIE => head.known(code::HTTP_COOKIE, value),
            AUTHORIZATION => head.known(code::HTTP_AUTHORIZATION, value),
            HOST => head.known(code::HTTP_HOST, value),
            USER_AGENT => head.known(code::HTTP_USER_AGENT, value),
            _ => {
                let key = key.as_str();
                if key == "proxy" || !is_safe(key) && winners.get(&cgi_name(key)) != Some(&key) {
                    continue;
                }
                name.clear();
                name.extend_from_slice(b"HTTP_");
                name.extend(key.bytes().map(cgi_byte));
                head.named(&name, value);
            }
        }
    }
}

/// The name of a variable with this place in [`NAMES`].
pub fn name(code: u16) -> &'static str {
    NAMES[usize::from(code)]
}

impl Variables for RequestHeadWriter {
    fn restart(&mut self) {
        RequestHeadWriter::restart(self);
    }

    fn known(&mut self, code: u16, value: &[u8]) {
        RequestHeadWriter::known(self, code, value);
    }

    fn named(&mut self, name: &[u8], value: &[u8]) {
        RequestHeadWriter::named(self, name, value);
    }
}

/// The header that each variable is made of.
fn winners(headers: &HeaderMap) -> HashMap<Vec<u8>, &str> {
    let mut winners = HashMap::with_capacity(headers.keys_len());
    for key in headers.keys().map(HeaderName::as_str) {
        let winner = winners.entry(cgi_name(key)).or_insert(key);
        if is_safe(key) {
            *winner = key;
        }
    }
    winners
}

/// The name of the variable of a header, without its beginning.
fn cgi_name(key: &str) -> Vec<u8> {
    key.bytes().map(cgi_byte).collect()
}

/// Converts a byte of a header's name for the name of a variable. PHP itself would replace a dot by an underscore.
fn cgi_byte(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { b'_' }
}
