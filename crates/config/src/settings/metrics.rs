//! `settings/metrics`: where Prometheus reads the numbers of howdah.

use std::net::SocketAddr;

use crate::address::Address;
use crate::error::{Error, quoted};
use crate::matching::address_pattern::AddressPatterns;
use crate::read::node::{Node, Options};

pub(crate) const OPTIONS: Options = Options { known: &["listen", "allow"], unsupported: &[] };

/// A listener of its own for `GET /metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The address and port.
    pub listen: SocketAddr,
    /// The addresses that may read the numbers; `None`: those of this machine.
    pub allow: Option<AddressPatterns>,
}

// === impl MetricsSettings ===

impl MetricsSettings {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let listen = object.require("listen", "an address and a port, as in \"127.0.0.1:9900\"")?;
        let allow = object.read("allow", AddressPatterns::read)?;
        let text = listen.string()?;
        let address = match text.parse::<Address>() {
            Ok(Address::Tcp(address)) => address,
            Ok(Address::Unix(_) | Address::Abstract(_)) => {
                let advice = "Prometheus reads over TCP only; write an address and a port, as in \"127.0.0.1:9900\"";
                return Err(listen.error(format_args!("{} is a Unix socket; {advice}", quoted(&text))));
            }
            Err(error) => return Err(listen.error(error.to_string())),
        };
        if !address.ip().to_canonical().is_loopback() && allow.is_none() {
            let advice = "add \"allow\" with the addresses of your Prometheus, as in \"allow\": [\"192.0.2.7\"]";
            return Err(listen.error(format_args!("{} can be reached from other machines; {advice}", quoted(&text))));
        }
        Ok(Self { listen: address, allow })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn parse(metrics: &str) -> Result<MetricsSettings, String> {
        let parsed = Configuration::parse(&format!(r#"{{"settings": {{"metrics": {metrics}}}}}"#));
        parsed.map(|configuration| configuration.settings.metrics.expect("settings")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_listener_of_this_machine_needs_no_list() {
        for text in ["127.0.0.1:9900", "[::1]:9900", "127.0.0.2:0"] {
            let settings = parse(&format!(r#"{{"listen": {text:?}}}"#)).expect(text);
            assert_eq!((settings.listen.to_string(), settings.allow), (text.to_owned(), None));
        }
        let other = parse(r#"{"listen": "*:9900", "allow": ["192.0.2.7", "::1"]}"#).expect("settings");
        assert!(other.listen.ip().is_unspecified() && other.allow.is_some());
    }

    #[test]
    fn an_error_names_the_option() {
        let reachable = "can be reached from other machines; add \"allow\" with the addresses of your Prometheus, as in \
                         \"allow\": [\"192.0.2.7\"]";
        let cases = [
            ("{}", ": \"listen\" is missing; add an address and a port, as in \"127.0.0.1:9900\"".to_owned()),
            (r#"{"listen": "*:9900"}"#, format!("/listen: \"*:9900\" {reachable}")),
            (r#"{"listen": "192.0.2.1:9900"}"#, format!("/listen: \"192.0.2.1:9900\" {reachable}")),
            (
                r#"{"listen": "unix:/run/metrics.sock"}"#,
                "/listen: \"unix:/run/metrics.sock\" is a Unix socket; Prometheus reads over TCP only; write an address \
                 and a port, as in \"127.0.0.1:9900\""
                    .to_owned(),
            ),
            (r#"{"listen": "127.0.0.1:9900", "port": 1}"#, "/port: there is no such option; remove it".to_owned()),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(format!("settings/metrics{expected}")), "{json}");
        }
        assert!(parse(r#"{"listen": 9900}"#).unwrap_err().starts_with("settings/metrics/listen: "));
        assert!(
            parse(r#"{"listen": "127.0.0.1:9900", "allow": 5}"#).unwrap_err().starts_with("settings/metrics/allow: ")
        );
    }
}
