//! The names of upstreams, which `howdah config check --full` resolves on this machine.
//!
//! A running howdah does not refuse such a name, because it may be known later: its requests are answered 502.

use howdah_config::{ActionKind, Configuration, Endpoint};
use std::collections::BTreeSet;
use std::net::ToSocketAddrs;

/// Resolves the names.
///
/// # Errors
/// The names that have no address, and why.
pub fn check(configuration: &Configuration) -> Result<(), String> {
    let servers = configuration.upstreams.values().flat_map(|upstream| &upstream.servers);
    let servers = servers.map(|server| &server.endpoint);
    let proxies = configuration.routes.actions().filter_map(|action| match &action.kind {
        ActionKind::Proxy(endpoint, _) => Some(endpoint),
        _ => None,
    });
    let problems: Vec<String> =
        servers.chain(proxies).collect::<BTreeSet<_>>().into_iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn problem(endpoint: &Endpoint) -> Option<String> {
    let Endpoint::Name { host, port } = endpoint else { return None };
    let error = match (host.as_str(), *port).to_socket_addrs() {
        Ok(addresses) if addresses.len() > 0 => return None,
        Ok(_) => "it has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "cannot resolve the name of the upstream \"{endpoint}\": {error}; correct it, or add it to DNS or /etc/hosts"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_that_has_no_address_is_an_error() {
        let (one, two) = ("x".repeat(64), "y".repeat(64));
        let text = format!(
            r#"{{
                "upstreams": {{"u": {{"servers": {{"{one}:80": {{}}, "localhost:81": {{}}, "127.0.0.1:82": {{}}}}}}}},
                "routes": [{{"action": {{"proxy": "http://{two}:83"}}}}, {{"action": {{"proxy": "http://localhost:84"}}}}]
            }}"#
        );
        let error = check(&Configuration::parse(&text).unwrap()).unwrap_err();
        assert_eq!(error.matches("cannot resolve").count(), 2, "{error}");
        assert!(error.contains(&format!("\"{one}:80\"")) && error.contains(&format!("\"{two}:83\"")), "{error}");
        assert_eq!(check(&Configuration::default()), Ok(()));
    }
}
