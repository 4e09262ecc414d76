//! Chooses the next server of an upstream: smooth weighted round robin, as in nginx and Unit.
//!
//! In each turn every candidate gains its weight. The server with the highest gain gets the request, and pays the sum of
//! all weights. Therefore a server of weight 5 beside two of weight 1 does not get five requests in a row. Each thread
//! counts separately, and starts again with each configuration.

use crate::backends::proxy::health::server_health::ServerHealth;
use crate::backends::proxy::health::states::HealthStates;
use howdah_config::{Endpoint, FailureLimit, ProxySettings, Upstream};
use rustls::ClientConfig;
use std::cell::RefCell;
use std::sync::Arc;

/// The servers of an upstream, and the state of the round robin.
pub struct Balancer {
    /// The servers with a weight above 0.
    servers: Vec<Server>,
    /// The current gain of each server.
    gains: RefCell<Vec<f64>>,
    /// How requests are forwarded.
    pub settings: ProxySettings,
    /// The settings of TLS; `None`: without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// When a server counts as down.
    pub failure_limit: FailureLimit,
}

struct Server {
    endpoint: Endpoint,
    weight: f64,
    health: Arc<ServerHealth>,
}

// === impl Balancer ===

impl Balancer {
    /// The first turn goes to the server with the greatest weight; if several have it, to the first of them.
    pub fn new(name: &str, upstream: &Upstream, states: &HealthStates, tls: Option<&Arc<ClientConfig>>) -> Balancer {
        let used = upstream.servers.iter().filter(|server| server.weight > 0.0);
        let servers: Vec<_> = used
            .map(|server| Server {
                endpoint: server.endpoint.clone(),
                weight: server.weight,
                health: states.of(name, &server.endpoint),
            })
            .collect();
        Balancer {
            gains: RefCell::new(vec![0.0; servers.len()]),
            servers,
            settings: upstream.proxy.clone(),
            tls: tls.cloned(),
            failure_limit: upstream.failure_limit,
        }
    }

    /// Where the server with this index listens.
    pub fn endpoint(&self, server: usize) -> &Endpoint {
        &self.servers[server].endpoint
    }

    /// Whether the server with this index gets requests.
    pub fn health(&self, server: usize) -> &Arc<ServerHealth> {
        &self.servers[server].health
    }

    /// The index of the next server among the candidates of this turn; `None` if there are no candidates.
    pub fn next(&self, is_candidate: impl Fn(usize) -> bool) -> Option<usize> {
        let mut gains = self.gains.borrow_mut();
        let mut total = 0.0;
        let mut best: Option<usize> = None;
        for (index, server) in self.servers.iter().enumerate().filter(|(index, _)| is_candidate(*index)) {
            gains[index] += server.weight;
            total += server.weight;
            if best.is_none_or(|best| gains[index] > gains[best]) {
                best = Some(index);
            }
        }
        gains[best?] -= total;
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;

    fn balancer(weights: &[f64]) -> Balancer {
        let servers = weights.iter().enumerate();
        let servers: Vec<_> =
            servers.map(|(n, weight)| format!(r#""127.0.0.1:{}": {{"weight": {weight}}}"#, n + 1)).collect();
        let text = format!(r#"{{"upstreams": {{"u": {{"servers": {{{}}}}}}}}}"#, servers.join(","));
        let configuration = Configuration::parse(&text).expect("configuration");
        let mut states = HealthStates::default();
        states.update(&configuration);
        Balancer::new("u", &configuration.upstreams["u"], &states, None)
    }

    fn turns(balancer: &Balancer, count: usize, is_candidate: impl Fn(usize) -> bool) -> String {
        (0..count).map(|_| balancer.next(&is_candidate).map_or('-', |n| char::from(b'a' + n as u8))).collect()
    }

    #[test]
    fn turns_follow_the_weights_and_are_evenly_spread() {
        let cases: [(&[f64], &str); 6] = [
            (&[1.0], "aaaa"),
            (&[1.0, 1.0], "abababab"),
            (&[5.0, 1.0, 1.0], "aabacaaaabacaa"),
            (&[0.5, 1.0, 0.5], "bacbbacb"),
            (&[1.0, 0.0, 1.0], "abababab"),
            (&[0.001, 0.002], "babbab"),
        ];
        for (weights, expected) in cases {
            assert_eq!(turns(&balancer(weights), expected.len(), |_| true), expected, "{weights:?}");
        }
    }

    #[test]
    fn many_turns_give_each_server_its_share() {
        let weights = [1.0, 2.5, 0.25, 100.0];
        let balancer = balancer(&weights);
        let mut counts = [0.0; 4];
        for _ in 0..41_500 {
            counts[balancer.next(|_| true).expect("server")] += 1.0;
        }
        assert_eq!(counts, weights.map(|weight| weight * 400.0));
    }

    #[test]
    fn a_server_that_is_not_a_candidate_is_not_chosen_and_does_not_catch_up() {
        let balancer = balancer(&[1.0, 1.0]);
        assert_eq!(turns(&balancer, 4, |server| server == 1), "bbbb");
        assert_eq!(turns(&balancer, 2, |_| false), "--");
        assert_eq!(turns(&balancer, 4, |_| true), "abab");
    }
}
