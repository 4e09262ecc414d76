//! The view that conditions have of a request, and the splitting of its query and cookies, which belongs to the
//! language.

use std::borrow::Cow;
use std::net::SocketAddr;

use crate::read::percent;
use crate::template::variable::Variables;

/// A request, as conditions and templates see it. An implementation may compute a part when it is first needed.
pub trait RequestView: Variables {
    /// In upper case.
    fn method(&self) -> &str;

    /// Whether the client used TLS, directly or according to a trusted proxy.
    fn scheme(&self) -> Scheme;

    /// In lower case, without the port and a dot at the end; empty if the request names no host.
    fn host(&self) -> &str;

    /// The path: percent-decoded, without `.` and `..` segments and doubled slashes, without the query.
    fn uri(&self) -> &str;

    /// The query, decoded with [`decode_query`].
    fn query(&self) -> &[u8];

    /// The arguments of the query, parsed with [`parse_arguments`].
    fn arguments(&self) -> &[Argument<'_>];

    /// The source of the request: the peer, or the client that a trusted proxy names.
    fn source(&self) -> Peer;

    /// The address at which the request arrived.
    fn destination(&self) -> Peer;

    /// Calls `visit` with the value of each header with this name, which is in lower case.
    fn for_each_header(&self, name: &str, visit: &mut dyn FnMut(&[u8]));

    /// Calls `visit` with the value of each cookie with this name.
    fn for_each_cookie(&self, name: &[u8], visit: &mut dyn FnMut(&[u8])) {
        self.for_each_header("cookie", &mut |header| {
            for (_, value) in cookies(header).filter(|(cookie, _)| *cookie == name) {
                visit(value);
            }
        });
    }
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// A Unix socket.
    Unix,
}

/// Whether a request came over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// Over TLS.
    Https,
}

/// An argument of the query, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// The text before the first `=`.
    pub name: Cow<'a, [u8]>,
    /// The text after the first `=`; empty without one.
    pub value: Cow<'a, [u8]>,
}

// === impl Scheme ===

impl Scheme {
    /// `http` or `https`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Decodes the percent escapes and the plus signs of a query. An incomplete escape stays as it is.
pub fn decode_query(query: &str) -> Cow<'_, [u8]> {
    percent::decode_form(query.as_bytes())
}

/// Parses the arguments of a query, in their order.
pub fn parse_arguments(query: &str) -> Vec<Argument<'_>> {
    let parts = query.as_bytes().split(|byte| *byte == b'&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = split_at_equals(part).unwrap_or((part, b""));
            Argument { name: percent::decode_form(name), value: percent::decode_form(value) }
        })
        .collect()
}

/// The names and values of the cookies in a `Cookie` header. A part without a `=` is skipped.
pub fn cookies(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    header.split(|byte| *byte == b';').filter_map(|part| split_at_equals(part.trim_ascii()))
}

fn split_at_equals(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = part.iter().position(|byte| *byte == b'=')?;
    Some((&part[..equals], &part[equals + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_and_decoded() {
        let arguments = parse_arguments("a=1&&b=x+y%26&c&=d&e=f=g%zz");
        let arguments: Vec<(String, String)> = arguments
            .iter()
            .map(|argument| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
                (text(&argument.name), text(&argument.value))
            })
            .collect();
        let expected = [("a", "1"), ("b", "x y&"), ("c", ""), ("", "d"), ("e", "f=g%zz")];
        assert_eq!(arguments, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(parse_arguments("").len(), 0);
        assert_eq!(parse_arguments("a=%C3")[0].value.as_ref(), b"\xC3");
    }

    #[test]
    fn cookies_are_split_and_trimmed() {
        let cookies: Vec<_> = cookies(b"a=1; b=2=3;c; =d ;e=").collect();
        let expected: [(&[u8], &[u8]); 4] = [(b"a", b"1"), (b"b", b"2=3"), (b"", b"d"), (b"e", b"")];
        assert_eq!(cookies, expected);
    }
}
