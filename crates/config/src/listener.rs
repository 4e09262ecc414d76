//! `listeners`: where requests come in, and where each of them goes first.

use std::collections::HashMap;

use crate::address::{self, Address};
use crate::error::{Error, quoted};
use crate::node::{Node, Options};
use crate::pass::{Destinations, Pass};
use crate::scope::Scope;
use crate::tls::Tls;

const OPTIONS: Options = Options { known: &["pass", "tls"], not_yet: &["forwarded", "client_ip", "backlog"] };

/// A socket on which requests come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where it listens.
    pub address: Address,
    /// Where its requests go.
    pub pass: Pass,
    /// TLS; `None` is none.
    pub tls: Option<Tls>,
}

/// The listeners, in the order of the text, each with an address of its own.
pub(crate) fn read_all(
    node: &Node<'_>,
    destinations: &Destinations<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::new();
    let mut keys = HashMap::new();
    for (key, node) in node.named()? {
        let address = address::parse(key).map_err(|problem| node.error(problem))?;
        if let Some(other) = keys.insert(address.clone(), key) {
            return Err(node.error(format_args!("this is the same address as {}; remove one", quoted(other))));
        }
        let object = node.object(&OPTIONS)?;
        let pass = object.require("pass", "where its requests go, as in \"pass\": \"routes\"")?;
        let tls = object.read("tls", |node| Tls::read(node, scope))?;
        listeners.push(Listener { address, pass: Pass::read(&pass, destinations)?, tls });
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use crate::Configuration;

    fn parse(listeners: &str) -> Result<Vec<String>, String> {
        Configuration::parse(&format!(r#"{{"routes": [], "listeners": {listeners}}}"#))
            .map(|configuration| configuration.listeners.iter().map(|l| l.address.to_string()).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn listeners_keep_their_order() {
        let json = r#"{"unix:/x": {"pass": "routes"}, "*:9": {"pass": "routes"}, "*:8": {"pass": "routes"}}"#;
        assert_eq!(parse(json), Ok(vec!["unix:/x".to_owned(), "*:9".to_owned(), "*:8".to_owned()]));
    }

    #[test]
    fn a_wrong_listener_is_refused() {
        let cases = [
            (
                r#"{"8080": {"pass": "routes"}}"#,
                "listeners/8080: \"8080\" is not an address to listen on; write *:8080 or 127.0.0.1:8080",
            ),
            (
                r#"{"*:80": {}}"#,
                "listeners/*:80: \"pass\" is missing; add where its requests go, as in \"pass\": \"routes\"",
            ),
            (r#"{"*:80": {"pas": "routes"}}"#, "listeners/*:80/pas: there is no such option; did you mean \"pass\"?"),
            (
                r#"{"*:80": {"pass": "routes", "tls": {}}}"#,
                "listeners/*:80/tls: \"certificate\" is missing; add the name of a certificate that is stored",
            ),
            (
                r#"{"*:80": {"pass": "routes"}, "0.0.0.0:80": {"pass": "routes"}}"#,
                "listeners/0.0.0.0:80: this is the same address as \"*:80\"; remove one",
            ),
            (r#"{"unix:/x/y": "routes"}"#, "listeners/unix:%2Fx%2Fy: expected an object, found the string \"routes\""),
            ("[]", "listeners: expected an object, found an array"),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(expected.to_owned()), "{json}");
        }
    }
}
