//! The states of all servers of upstreams. A server that the next configuration has, too, keeps its state.

use crate::backends::proxy::health::server_health::ServerHealth;
use crate::report::short_reason;
use howdah_config::{Configuration, Endpoint};
use howdah_protocol::messages::router::ServerTrouble;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The states, by upstream and server.
#[derive(Clone, Default)]
pub struct HealthStates {
    upstreams: HashMap<String, HashMap<Endpoint, Arc<ServerHealth>>>,
}

/// The most bytes of servers in a report, which must fit into one message.
const REPORT_BYTES: usize = 32 * 1024;
/// The same of the numbers of requests.
const ACTIVE_BYTES: usize = 12 * 1024;

// === impl HealthStates ===

impl HealthStates {
    /// The states for the next configuration.
    pub fn update(&mut self, configuration: &Configuration) {
        let mut upstreams: HashMap<String, HashMap<Endpoint, Arc<ServerHealth>>> = HashMap::new();
        for (name, upstream) in &configuration.upstreams {
            let known = self.upstreams.get(name);
            let servers = upstream.servers.iter().map(|server| {
                let known = known.and_then(|known| known.get(&server.endpoint)).cloned();
                let health = known.unwrap_or_else(|| Arc::new(ServerHealth::new(name, &server.endpoint)));
                health.set_weight(server.weight);
                if upstream.health_check.is_none() || server.weight == 0.0 {
                    health.forget_checks();
                }
                (server.endpoint.clone(), health)
            });
            upstreams.insert(name.clone(), servers.collect());
        }
        self.upstreams = upstreams;
    }

    /// The state of a server.
    pub fn of(&self, upstream: &str, server: &Endpoint) -> Arc<ServerHealth> {
        let known = self.upstreams.get(upstream).and_then(|servers| servers.get(server));
        Arc::clone(known.expect("`update` made one for each server of the configuration"))
    }

    /// The servers that get no requests, by upstream and address. With thousands of them, the report is cut.
    pub fn troubles(&self) -> BTreeMap<String, BTreeMap<String, ServerTrouble>> {
        let mut left = REPORT_BYTES;
        let mut report: BTreeMap<String, BTreeMap<String, ServerTrouble>> = BTreeMap::new();
        for (name, servers) in &self.upstreams {
            for (endpoint, health) in servers {
                let Some(trouble) = health.trouble() else { continue };
                let (trouble, endpoint) = (trouble.map(|reason| short_reason(&reason)), endpoint.to_string());
                let size = name.len() + endpoint.len() + trouble.reason().len() + 32;
                left = left.saturating_sub(size);
                if left > 0 {
                    report.entry(name.clone()).or_default().insert(endpoint, trouble);
                }
            }
        }
        report
    }

    /// The requests of servers, by upstream and address: of all that drain, and of those that have some. With hundreds of
    /// them, the report is cut.
    pub fn active(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let mut left = ACTIVE_BYTES;
        let mut report: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for drains in [true, false] {
            for (name, servers) in &self.upstreams {
                for (endpoint, health) in servers.iter().filter(|(_, health)| health.drains() == drains) {
                    let active = health.active();
                    if active == 0 && !drains {
                        continue;
                    }
                    let endpoint = endpoint.to_string();
                    left = left.saturating_sub(name.len() + endpoint.len() + 32);
                    if left > 0 {
                        report.entry(name.clone()).or_default().insert(endpoint, active);
                    }
                }
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::proxy::health::server_health::RequestFailure;
    use howdah_config::FailureLimit;

    fn configuration(upstreams: &str) -> Configuration {
        Configuration::parse(&format!(r#"{{"upstreams": {{{upstreams}}}}}"#)).expect("configuration")
    }

    fn fail(health: &ServerHealth, reason: &str) {
        health.failed(RequestFailure::Connection, FailureLimit::Connections, reason);
    }

    #[test]
    fn a_server_keeps_its_state_in_its_upstream() {
        let [one, two]: [Endpoint; 2] = ["10.0.0.1:80", "10.0.0.2:80"].map(|text| text.parse().expect("endpoint"));
        let mut states = HealthStates::default();
        states.update(&configuration(r#""u": {"servers": {"10.0.0.1:80": {}}}"#));
        fail(&states.of("u", &one), "refused");
        let both = r#"{"servers": {"10.0.0.1:80": {"weight": 2}, "10.0.0.2:80": {}}, "connect_timeout": 1}"#;
        states.update(&configuration(&format!(r#""u": {both}, "v": {both}"#)));
        let is_up = |states: &HealthStates, upstream, server| states.of(upstream, server).is_up();
        assert!(!is_up(&states, "u", &one) && is_up(&states, "u", &two) && is_up(&states, "v", &one));
        states.update(&configuration(r#""u": {"servers": {}}"#));
        states.update(&configuration(&format!(r#""u": {both}"#)));
        assert!(is_up(&states, "u", &one), "a server that was removed begins again");
    }

    #[test]
    fn a_report_fits_into_a_message() {
        let servers: Vec<String> = (0..10_000).map(|n| format!(r#""10.1.{}.{}:80": {{}}"#, n / 250, n % 250)).collect();
        let configuration = configuration(&format!(r#""u": {{"servers": {{{}}}}}"#, servers.join(",")));
        let mut states = HealthStates::default();
        states.update(&configuration);
        assert!(states.troubles().is_empty());
        for server in &configuration.upstreams["u"].servers {
            fail(&states.of("u", &server.endpoint), &"x".repeat(1000));
        }
        let text = serde_json::to_string(&states.troubles()).expect("JSON");
        assert!((16 * 1024..REPORT_BYTES).contains(&text.len()), "{}", text.len());
    }

    #[test]
    fn requests_of_servers_that_drain_are_reported_until_the_last_one_ends() {
        let text = r#""u": {"servers": {"10.0.0.1:80": {"drain": true}, "10.0.0.2:80": {}, "10.0.0.3:80": {}}}"#;
        let configuration = configuration(text);
        let mut states = HealthStates::default();
        states.update(&configuration);
        let servers: Vec<_> = configuration.upstreams["u"].servers.iter().map(|one| one.endpoint.clone()).collect();
        let requests = [&servers[0], &servers[0], &servers[1]].map(|server| states.of("u", server).begin());
        let report = |counts: &[(&str, u64)]| {
            BTreeMap::from([(
                "u".to_owned(),
                counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            )])
        };
        assert_eq!(states.active(), report(&[("10.0.0.1:80", 2), ("10.0.0.2:80", 1)]));
        drop(requests);
        assert_eq!(states.active(), report(&[("10.0.0.1:80", 0)]));
    }
}
