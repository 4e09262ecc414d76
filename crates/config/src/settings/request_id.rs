//! `settings/http/request_id`: each request has an id, which applications, logs and the client can compare.

use crate::error::Error;
use crate::read::node::{Node, Options};

pub(crate) const OPTIONS: Options = Options { known: &["accept", "response"], unsupported: &[] };

/// Each request has an id, in its header `X-Request-Id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestIdSettings {
    /// Whether the id that a client sends is kept, if it is well-formed. Default: true.
    pub accept: bool,
    /// Whether the response has it, too. Default: false.
    pub response: bool,
}

// === impl RequestIdSettings ===

impl RequestIdSettings {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let flag = |key, default| Ok(object.read(key, Node::boolean)?.unwrap_or(default));
        Ok(Self { accept: flag("accept", true)?, response: flag("response", false)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn parse(request_id: &str) -> Result<Option<RequestIdSettings>, String> {
        let text = format!(r#"{{"settings": {{"http": {{"request_id": {request_id}}}}}}}"#);
        let parsed = Configuration::parse(&text).map_err(|error| error.to_string());
        parsed.map(|configuration| configuration.settings.http.request_id)
    }

    #[test]
    fn the_settings_have_defaults() {
        assert_eq!(parse("{}"), Ok(Some(RequestIdSettings { accept: true, response: false })));
        let both = parse(r#"{"accept": false, "response": true}"#);
        assert_eq!(both, Ok(Some(RequestIdSettings { accept: false, response: true })));
        assert_eq!(Configuration::default().settings.http.request_id, None);
    }

    #[test]
    fn an_error_names_the_setting() {
        let error = "settings/http/request_id/accept: expected true or false, found the number 1";
        assert_eq!(parse(r#"{"accept": 1}"#), Err(error.to_owned()));
        assert!(parse("true").unwrap_err().starts_with("settings/http/request_id: expected an object"));
        assert!(
            parse(r#"{"header": "x"}"#).unwrap_err().starts_with("settings/http/request_id/header: there is no such")
        );
    }
}
