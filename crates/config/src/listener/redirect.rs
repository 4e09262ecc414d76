//! `redirect`: a listener that sends all clients to HTTPS.

use crate::error::{Error, quoted};
use crate::read::node::Node;

/// The default port of HTTPS.
const HTTPS_PORT: u16 = 443;

/// A redirect to the same URL with HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    /// The port of HTTPS; `None`: the default one, which a URL does not name.
    pub port: Option<u16>,
}

// === impl HttpsRedirect ===

impl HttpsRedirect {
    /// Reads `"https"` or `"https:8443"`.
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        if !node.is_string() {
            return Err(node.expected("\"https\" or \"https:PORT\""));
        }
        let text = node.string()?;
        let port = match text.strip_prefix("https") {
            Some("") => Some(HTTPS_PORT),
            Some(port) => port.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port > 0),
            None => None,
        };
        let port = port.ok_or_else(|| {
            node.error(format_args!(
                "{} is not possible here; write \"https\" or \"https:PORT\"; routes can send other redirects",
                quoted(&text)
            ))
        })?;
        Ok(Self { port: Some(port).filter(|port| *port != HTTPS_PORT) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn listener(json: &str) -> Result<(bool, Option<HttpsRedirect>), String> {
        let text = format!(r#"{{"routes": [], "listeners": {{"*:80": {json}}}}}"#);
        let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        let listener = &configuration.listeners[0];
        Ok((listener.pass.is_some(), listener.redirect))
    }

    #[test]
    fn a_listener_redirects_passes_or_both() {
        let to = |port| Some(HttpsRedirect { port });
        assert_eq!(listener(r#"{"redirect": "https"}"#), Ok((false, to(None))));
        assert_eq!(listener(r#"{"redirect": "https:443"}"#), Ok((false, to(None))));
        assert_eq!(listener(r#"{"redirect": "https:8443", "pass": "routes"}"#), Ok((true, to(Some(8443)))));
        assert_eq!(listener(r#"{"pass": "routes"}"#), Ok((true, None)));
    }

    #[test]
    fn a_wrong_redirect_is_named() {
        for wrong in ["http", "https:", "https:0", "https:65536", "https://example.com", "HTTPS"] {
            let error = listener(&format!(r#"{{"redirect": "{wrong}"}}"#)).expect_err(wrong);
            assert!(error.contains("redirect: ") && error.contains("write \"https\" or \"https:PORT\""), "{error}");
        }
        assert!(listener("{}").unwrap_err().contains("\"pass\" is missing"));
        let with_tls = listener(r#"{"redirect": "https", "tls": {"certificate": "x"}}"#).unwrap_err();
        assert!(with_tls.contains("this listener has HTTPS already"), "{with_tls}");
    }
}
