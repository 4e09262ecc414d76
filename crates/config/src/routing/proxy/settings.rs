//! How requests are forwarded to HTTP servers: options of the action `proxy`, and of `upstreams`.

use std::time::Duration;

use crate::error::Error;
use crate::read::duration;
use crate::read::node::Object;
use crate::read::scope::Scope;
use crate::routing::proxy::tls::ProxyTls;

/// The options, beside those that name the servers.
pub(crate) const NAMES: [&str; 4] = ["forwarded_headers", "connect_timeout", "response_timeout", "tls"];

const MAX_SECONDS: f64 = 86400.0;
const MIN_SECONDS: f64 = 0.1;

/// How requests are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// Whether the server gets `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`. Default: false.
    pub forwarded_headers: bool,
    /// The time in which a server must accept a connection. Default: 10 s.
    pub connect_timeout: Duration,
    /// The time in which a server neither reads nor sends. Default: 60 s.
    pub response_timeout: Duration,
    /// TLS to the server; `None`: without TLS.
    pub tls: Option<ProxyTls>,
}

// === impl ProxySettings ===

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            forwarded_headers: false,
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(60),
            tls: None,
        }
    }
}

impl ProxySettings {
    /// Reads the options of an object that has further ones.
    pub(crate) fn read(object: &Object<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let tls = object.read("tls", |node| ProxyTls::read(node, scope))?;
        Ok(Self { tls, ..Self::read_without_tls(object)? })
    }

    /// Reads the options of an object that has further ones, and no `tls`.
    pub(crate) fn read_without_tls(object: &Object<'_>) -> Result<Self, Error> {
        let default = Self::default();
        let timeout = |key| object.read(key, |node| duration::seconds(node, MIN_SECONDS..=MAX_SECONDS));
        Ok(Self {
            forwarded_headers: object
                .read("forwarded_headers", |node| node.boolean())?
                .unwrap_or(default.forwarded_headers),
            connect_timeout: timeout("connect_timeout")?.unwrap_or(default.connect_timeout),
            response_timeout: timeout("response_timeout")?.unwrap_or(default.response_timeout),
            tls: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActionKind, Configuration};

    fn of_action(json: &str) -> Result<ProxySettings, String> {
        let text = format!(r#"{{"routes": [{{"action": {{"proxy": "http://127.0.0.1:1"{json}}}}}]}}"#);
        let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        match &configuration.routes.find(None).expect("routes").steps()[0].action.kind {
            ActionKind::Proxy(_, settings) => Ok(settings.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn of_upstream(json: &str) -> Result<ProxySettings, String> {
        let text = format!(r#"{{"upstreams": {{"u": {{"servers": {{"127.0.0.1:1": {{}}}}{json}}}}}}}"#);
        let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        Ok(configuration.upstreams["u"].proxy.clone())
    }

    #[test]
    fn an_action_and_an_upstream_have_the_same_options() {
        let all = r#", "forwarded_headers": true, "connect_timeout": "500ms", "response_timeout": 120"#;
        let expected = ProxySettings {
            forwarded_headers: true,
            connect_timeout: Duration::from_millis(500),
            response_timeout: Duration::from_secs(120),
            tls: None,
        };
        for read in [of_action, of_upstream] {
            assert_eq!(read(""), Ok(ProxySettings::default()));
            assert_eq!(read(all).as_ref(), Ok(&expected));
            let error = read(r#", "response_timeout": 0"#).unwrap_err();
            assert!(error.ends_with("response_timeout: 0 is out of range; write 0.1 to 86400 seconds"), "{error}");
        }
    }
}
