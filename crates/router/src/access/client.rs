//! The clients of `rate_limit` and `connection_limit`, and what all threads together keep for each.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A client of one limit: an IPv4 address, or the /64 of an IPv6 address, because a provider gives a customer many of
/// these; and the index of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitedClient {
    /// The address, or the first of the network.
    pub network: IpAddr,
    limit: usize,
}

/// A value for each client. Clients are spread over several locks.
#[derive(Debug)]
pub struct ClientMap<V> {
    shards: [Mutex<HashMap<LimitedClient, V>>; SHARDS],
    hasher: RandomState,
}

/// One request of a client, in a count. Dropped, it counts no more: only clients with a request are in memory.
#[derive(Debug)]
pub struct CountedRequest {
    counts: Arc<ClientMap<u32>>,
    client: LimitedClient,
}

const SHARDS: usize = 16;

/// The client with this address: the address, or the first one of its /64.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

// === impl LimitedClient ===

impl LimitedClient {
    /// The client with this address of the limit with this index.
    pub fn new(address: IpAddr, limit: usize) -> LimitedClient {
        LimitedClient { network: client_network(address), limit }
    }
}

// === impl ClientMap ===

impl<V> ClientMap<V> {
    /// The part of the map that has this client, and others. Each statement of a caller leaves it complete.
    pub fn shard(&self, client: &LimitedClient) -> MutexGuard<'_, HashMap<LimitedClient, V>> {
        let shard = &self.shards[self.hasher.hash_one(client) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many clients each part has.
    #[cfg(test)]
    pub fn shard_lengths(&self) -> impl Iterator<Item = usize> {
        self.shards.iter().map(|shard| shard.lock().unwrap().len())
    }
}

impl<V> Default for ClientMap<V> {
    fn default() -> ClientMap<V> {
        ClientMap { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }
}

// === impl CountedRequest ===

impl CountedRequest {
    /// Counts one more; `None` if the client has this number already.
    pub fn begin(counts: &Arc<ClientMap<u32>>, client: LimitedClient, most: u32) -> Option<CountedRequest> {
        let mut shard = counts.shard(&client);
        let count = shard.get(&client).copied().unwrap_or_default();
        (count < most).then(|| {
            shard.insert(client, count + 1);
            CountedRequest { counts: Arc::clone(counts), client }
        })
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let mut counts = self.counts.shard(&self.client);
        match counts.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.client)),
        }
    }
}
