//! Variables: the parts of a request and of its response that a text of the configuration may contain.

use crate::error::{did_you_mean, quoted};

/// The variables with a fixed name, in the order of the documentation.
const FIXED: [(&str, TemplateVariable); 15] = [
    ("application", TemplateVariable::Application),
    ("body_bytes_sent", TemplateVariable::BodyBytesSent),
    ("host", TemplateVariable::Host),
    ("method", TemplateVariable::Method),
    ("remote_addr", TemplateVariable::RemoteAddr),
    ("remote_user", TemplateVariable::RemoteUser),
    ("request_id", TemplateVariable::RequestId),
    ("request_line", TemplateVariable::RequestLine),
    ("request_time", TemplateVariable::RequestTime),
    ("request_uri", TemplateVariable::RequestUri),
    ("status", TemplateVariable::Status),
    ("time_iso8601", TemplateVariable::TimeIso8601),
    ("time_local", TemplateVariable::TimeLocal),
    ("trace_id", TemplateVariable::TraceId),
    ("uri", TemplateVariable::Uri),
];

/// The prefixes of variables that contain a name, such as that of a header.
const NAMED: [&str; 4] = ["arg_", "cookie_", "header_", "response_header_"];

/// A part of a request or of its response. An absent part is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TemplateVariable {
    /// `$application`: the application that answers the request.
    Application,
    /// `$body_bytes_sent`: the number of bytes of the response's body that were sent.
    BodyBytesSent,
    /// `$host`: see [`RequestView::host`](crate::RequestView::host).
    Host,
    /// `$method`: see [`RequestView::method`](crate::RequestView::method).
    Method,
    /// `$remote_addr`: the client's IP address without its port; for Unix sockets `unix:`.
    RemoteAddr,
    /// `$remote_user`: the user whose password was verified (`basic_auth`).
    RemoteUser,
    /// `$request_id`: 32 random hexadecimal digits for each request, or the id that the client sent
    /// ([`RequestIdSettings`](crate::RequestIdSettings)).
    RequestId,
    /// `$request_line`: `GET /x?y HTTP/1.1`, as the client sent it.
    RequestLine,
    /// `$request_time`: the seconds since the request began, with three decimals.
    RequestTime,
    /// `$request_uri`: path and query, as the client sent them.
    RequestUri,
    /// `$status`: the response's status.
    Status,
    /// `$time_iso8601`: the local time, as in `1986-12-31T19:40:00+03:00`.
    TimeIso8601,
    /// `$time_local`: the local time, as in `31/Dec/1986:19:40:00 +0300`.
    TimeLocal,
    /// `$trace_id`: the trace that the client's `traceparent` names (W3C Trace Context).
    TraceId,
    /// `$uri`: see [`RequestView::uri`](crate::RequestView::uri).
    Uri,
    /// `$arg_NAME`: the last argument with this name (in the case written), decoded.
    Argument(String),
    /// `$cookie_NAME`: the first cookie with this name (in the case written).
    Cookie(String),
    /// `$header_NAME`: a header of the request, the first one with this name. The name is in lower case, with dashes
    /// for underscores.
    Header(String),
    /// `$response_header_NAME`: a header of the response, the first one with this name. The name is in lower case, with
    /// dashes for underscores.
    ResponseHeader(String),
}

/// The values of variables for one request; the router implements it.
pub trait Variables {
    /// Appends the variable's value, or nothing if it is absent or not known yet. Returns whether it is present: a
    /// value may be present and empty.
    fn write(&self, variable: &TemplateVariable, out: &mut String) -> bool;
}

// === impl TemplateVariable ===

impl TemplateVariable {
    /// The variable with this name (without the `$`). The error follows the text that contains the name in a message.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        if let Some((_, variable)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return Ok(variable.clone());
        }
        let header = |name: &str| name.to_ascii_lowercase().replace('_', "-");
        let named = NAMED.iter().find_map(|prefix| Some((*prefix, name.strip_prefix(prefix)?)));
        match named {
            Some((prefix, "")) => Err(format!("has {prefix} without a name after it; add the name")),
            Some(("arg_", name)) => Ok(Self::Argument(name.to_owned())),
            Some(("cookie_", name)) => Ok(Self::Cookie(name.to_owned())),
            Some(("header_", name)) => Ok(Self::Header(header(name))),
            Some((_, name)) => Ok(Self::ResponseHeader(header(name))),
            None => Err(unknown(name)),
        }
    }
}

fn unknown(name: &str) -> String {
    let names = || FIXED.iter().map(|(fixed, _)| *fixed).chain(["dollar"]);
    if let Some(variable) = names().filter(|variable| name.starts_with(*variable)).max_by_key(|variable| variable.len())
    {
        let rest = &name[variable.len()..];
        return format!("has the unknown variable {}; did you mean ${{{variable}}}{}?", quoted(name), shortened(rest));
    }
    let similar = did_you_mean(name, names());
    let similar = if similar.is_empty() {
        "; write $uri, $host, $arg_NAME or another one of docs/configuration.md"
    } else {
        &similar
    };
    format!("has the unknown variable {}{similar}", quoted(name))
}

fn shortened(text: &str) -> &str {
    // Names are ASCII, so every index is a boundary.
    &text[..text.len().min(40)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_by_its_name() {
        let cases = [
            ("uri", TemplateVariable::Uri),
            ("request_time", TemplateVariable::RequestTime),
            ("arg_Foo_bar", TemplateVariable::Argument("Foo_bar".into())),
            ("cookie_PHPSESSID", TemplateVariable::Cookie("PHPSESSID".into())),
            ("header_User_Agent", TemplateVariable::Header("user-agent".into())),
            ("response_header_x_y", TemplateVariable::ResponseHeader("x-y".into())),
        ];
        for (name, expected) in cases {
            assert_eq!(TemplateVariable::named(name), Ok(expected), "{name}");
        }
        for (name, variable) in &FIXED {
            assert_eq!(TemplateVariable::named(name).as_ref(), Ok(variable));
        }
    }

    #[test]
    fn an_unknown_name_is_rejected_with_advice() {
        let cases = [
            ("url", "has the unknown variable \"url\"; did you mean \"uri\"?"),
            ("host_name", "has the unknown variable \"host_name\"; did you mean ${host}_name?"),
            ("request_uris", "did you mean ${request_uri}s?"),
            ("arg_", "has arg_ without a name after it; add the name"),
            ("", "has the unknown variable \"\"; write $uri"),
            ("geoip_country", "; write $uri, $host, $arg_NAME or another"),
        ];
        for (name, expected) in cases {
            let problem = TemplateVariable::named(name).expect_err(name);
            assert!(problem.contains(expected), "{name}: {problem}");
        }
    }
}
