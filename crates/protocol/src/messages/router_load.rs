//! A load report that is longer than a message: the router sends it in parts, and the supervisor puts them together.
//!
//! The first part has only the numbers of the router, so that its length does not depend on the configuration. The number
//! of parts is limited, because the supervisor does not trust the router with its memory. Entries that do not fit into
//! them are left out.

use crate::messages::router::RouterLoad;
use crate::sockets::control_socket::MESSAGE_BYTES;
use serde::Serialize;

/// A report in parts.
#[derive(Debug)]
pub struct LoadParts {
    /// Each fits into a message.
    pub parts: Vec<RouterLoad>,
    /// The number of entries that did not fit into the parts.
    pub left_out: usize,
    /// The bytes that are free in the last part.
    free: usize,
}

/// The parts of a report that have arrived.
#[derive(Debug, Default)]
pub struct ArrivingLoad(Vec<RouterLoad>);

/// The most parts of a report: at most 2 MiB.
const MAX_PARTS: usize = 32;
/// The most bytes of a part's entries. The rest of a message is for names of fields and for the numbers.
const PART_BYTES: usize = MESSAGE_BYTES - 4096;
/// The bytes of an entry besides its keys and its value: quotes and brackets.
const ENTRY_BYTES: usize = 16;

// === impl LoadParts ===

impl LoadParts {
    /// The parts of a report.
    pub fn of(load: RouterLoad) -> LoadParts {
        let RouterLoad {
            connections_accepted,
            connections_closed,
            connections_active,
            requests_total,
            requests_active,
            requests_waiting,
            requests_rejected,
            upstream_troubles,
            upstream_active,
            fastcgi_servers,
            more: _,
        } = load;
        let numbers = RouterLoad {
            connections_accepted,
            connections_closed,
            connections_active,
            requests_total,
            ..RouterLoad::default()
        };
        let mut all = LoadParts { parts: vec![numbers], left_out: 0, free: 0 };
        for (id, number) in requests_active {
            all.add(&(id, number), |part| part.requests_active.extend([(id, number)]));
        }
        for (id, number) in requests_waiting {
            all.add(&(id, number), |part| part.requests_waiting.extend([(id, number)]));
        }
        for (id, number) in requests_rejected {
            all.add(&(id, number), |part| part.requests_rejected.extend([(id, number)]));
        }
        for (id, servers) in fastcgi_servers {
            for (address, load) in servers {
                all.add(&(id, &address, &load), |part| {
                    part.fastcgi_servers.entry(id).or_default().insert(address.clone(), load.clone());
                });
            }
        }
        for (name, servers) in upstream_troubles {
            for (address, trouble) in servers {
                all.add(&(&name, &address, &trouble), |part| {
                    part.upstream_troubles.entry(name.clone()).or_default().insert(address.clone(), trouble.clone());
                });
            }
        }
        for (name, servers) in upstream_active {
            for (address, number) in servers {
                all.add(&(&name, &address, number), |part| {
                    part.upstream_active.entry(name.clone()).or_default().insert(address.clone(), number);
                });
            }
        }
        let last = all.parts.len() - 1;
        all.parts[..last].iter_mut().for_each(|part| part.more = true);
        all
    }

    fn add(&mut self, entry: &impl Serialize, insert: impl FnOnce(&mut RouterLoad)) {
        let bytes = serde_json::to_vec(entry).map_or(usize::MAX, |text| text.len().saturating_add(ENTRY_BYTES));
        if bytes > self.free {
            if self.parts.len() == MAX_PARTS || bytes > PART_BYTES {
                self.left_out += 1;
                return;
            }
            self.parts.push(RouterLoad::default());
            self.free = PART_BYTES;
        }
        self.free -= bytes;
        if let Some(part) = self.parts.last_mut() {
            insert(part);
        }
    }
}

// === impl ArrivingLoad ===

impl ArrivingLoad {
    /// Adds a part. Returns the report when it is complete, or when it has too many parts.
    pub fn add(&mut self, part: RouterLoad) -> Option<RouterLoad> {
        let is_last = !part.more || self.0.len() + 1 >= MAX_PARTS;
        self.0.push(part);
        if !is_last {
            return None;
        }
        let mut parts = std::mem::take(&mut self.0).into_iter();
        let mut whole = parts.next()?;
        whole.more = false;
        for part in parts {
            whole.requests_active.extend(part.requests_active);
            whole.requests_waiting.extend(part.requests_waiting);
            whole.requests_rejected.extend(part.requests_rejected);
            for (id, servers) in part.fastcgi_servers {
                whole.fastcgi_servers.entry(id).or_default().extend(servers);
            }
            for (name, servers) in part.upstream_troubles {
                whole.upstream_troubles.entry(name).or_default().extend(servers);
            }
            for (name, servers) in part.upstream_active {
                whole.upstream_active.entry(name).or_default().extend(servers);
            }
        }
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::router::{FastCgiServerLoad, FromRouter, ServerTrouble};
    use std::collections::BTreeMap;

    /// A report with this number of generations and servers.
    fn report(count: u64) -> RouterLoad {
        let numbers = || (0..count).map(|id| (u64::MAX - id, u64::MAX - id)).collect::<BTreeMap<u64, u64>>();
        let reason = || "\"refused\"\n".repeat(20);
        let load = || FastCgiServerLoad { connections: u64::MAX, idle: u64::MAX, trouble: Some(reason()) };
        let address = |id: u64| format!("unix:/run/\"{id}\".sock");
        RouterLoad {
            connections_accepted: u64::MAX,
            connections_closed: 2,
            connections_active: 3,
            requests_total: 4,
            requests_active: numbers(),
            requests_waiting: numbers(),
            requests_rejected: numbers(),
            upstream_troubles: BTreeMap::from([(
                "u".to_owned(),
                (0..count).map(|id| (address(id), ServerTrouble::Down(reason()))).collect(),
            )]),
            upstream_active: BTreeMap::from([("u".to_owned(), (0..count).map(|id| (address(id), id)).collect())]),
            fastcgi_servers: (0..count).map(|id| (id, BTreeMap::from([(address(id), load())]))).collect(),
            more: false,
        }
    }

    #[test]
    fn a_report_of_a_thousand_generations_and_servers_arrives_in_parts_that_fit_into_messages() {
        let report = report(1000);
        let length = |load: &RouterLoad| serde_json::to_vec(&FromRouter::Load(load.clone())).unwrap().len();
        assert!(length(&report) > 4 * MESSAGE_BYTES);
        let LoadParts { parts, left_out, .. } = LoadParts::of(report.clone());
        assert!(parts.len() > 4 && left_out == 0, "{} parts, {left_out} left out", parts.len());
        assert!(parts.iter().all(|part| length(part) <= MESSAGE_BYTES));
        assert!(length(&parts[0]) < 512, "the first part answers the heartbeat");
        let mut arriving = ArrivingLoad::default();
        let arrived: Vec<_> = parts.into_iter().map(|part| arriving.add(part)).collect();
        assert!(arrived[..arrived.len() - 1].iter().all(Option::is_none));
        assert!(arrived.last().unwrap().as_ref() == Some(&report));
        assert_eq!(arriving.add(RouterLoad::default()), Some(RouterLoad::default()), "the next report");
    }

    #[test]
    fn the_number_of_parts_is_limited() {
        let LoadParts { parts, left_out, .. } = LoadParts::of(report(10_000));
        assert!(parts.len() == MAX_PARTS && left_out > 0 && !parts[MAX_PARTS - 1].more);
        let mut arriving = ArrivingLoad::default();
        let endless = RouterLoad { more: true, ..RouterLoad::default() };
        let complete = (0..10 * MAX_PARTS).filter(|_| arriving.add(endless.clone()).is_some()).count();
        assert_eq!(complete, 10);
        let long = "x".repeat(MESSAGE_BYTES);
        let servers = BTreeMap::from([(long, 1)]);
        let load = RouterLoad { upstream_active: BTreeMap::from([("u".to_owned(), servers)]), ..RouterLoad::default() };
        let LoadParts { parts, left_out, .. } = LoadParts::of(load);
        assert_eq!((parts, left_out), (vec![RouterLoad::default()], 1), "an entry that fits into no message");
    }
}
