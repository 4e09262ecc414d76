//! What howdah does, as `GET /status` tells it, in NGINX Unit's form. `draining`, which is ours, has former generations that
//! still finish something.

use crate::supervise::Supervisor;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The status, with the router's latest numbers.
pub fn of(supervisor: &Supervisor) -> Value {
    let load = &supervisor.load;
    let open = load.connections_accepted.saturating_sub(load.connections_closed);
    let mut applications = Map::new();
    for (name, id) in &supervisor.in_force().generations {
        let Some(generation) = supervisor.generations.iter().find(|generation| generation.id() == *id) else {
            continue;
        };
        let active = load.requests_active.get(id).copied().unwrap_or_default();
        let (running, starting) = generation.process_counts();
        let idle = running.saturating_sub(usize::try_from(active).unwrap_or(usize::MAX));
        let waiting = load.requests_waiting.get(id).copied().unwrap_or_default();
        let refused = load.requests_refused.get(id).copied().unwrap_or_default();
        let mut status = json!({
            "processes": { "running": running, "starting": starting, "idle": idle },
            "requests": { "active": active, "waiting": waiting, "refused": refused },
        });
        if let Some(reason) = generation.reason() {
            status["processes"]["auto"] = json!({
                "why": reason.to_string(),
                "cores": reason.cores,
                "waiting_share": reason.waiting_share,
                "memory_allows": reason.memory_allows,
                "max": reason.max,
            });
        }
        applications.insert(name.clone(), status);
    }
    let mut draining = BTreeMap::<&str, (u64, usize)>::new();
    for generation in supervisor.generations.iter().filter(|generation| supervisor.is_former(generation.id())) {
        let (generations, processes) = draining.entry(generation.name()).or_default();
        *generations += 1;
        *processes += generation.process_counts().0;
    }
    let draining: Map<_, _> = draining
        .into_iter()
        .map(|(name, (count, processes))| (name.to_owned(), json!({ "generations": count, "processes": processes })))
        .collect();
    json!({
        "connections": {
            "accepted": load.connections_accepted,
            "active": load.connections_active,
            "idle": open.saturating_sub(load.connections_active),
            "closed": load.connections_closed,
        },
        "requests": { "total": load.requests_total },
        "applications": applications,
        "draining": draining,
    })
}
