//! Which orders of certificates begin: the places are shared between the authorities.
//!
//! The next place goes to the authority with the fewest orders under way. An authority that does not answer has half of
//! the places at most while another authority's names wait, and may have all of them if no others wait. Of an authority's
//! names, the one that has waited for longest is first.

use std::collections::BTreeMap;
use std::time::Instant;

/// An order that is due.
#[derive(Clone, Copy, Debug)]
pub struct WaitingOrder<'a> {
    /// The domain.
    pub name: &'a str,
    /// The directory of its authority.
    pub authority: &'a str,
    /// Since when it is due.
    pub since: Instant,
    /// Whether a client has asked for the domain.
    pub is_on_demand: bool,
}

/// The free places.
#[derive(Clone, Copy, Debug)]
pub struct FreePlaces {
    /// For all orders.
    pub all: usize,
    /// How many of them orders on demand may take.
    pub on_demand: usize,
}

/// The names whose orders begin now; `running` has the number of orders under way at each authority.
pub fn next_orders<'a>(
    mut waiting: Vec<WaitingOrder<'a>>,
    mut running: BTreeMap<&'a str, usize>,
    mut free: FreePlaces,
) -> Vec<&'a str> {
    waiting.sort_by_key(|order| order.since);
    let mut next = Vec::new();
    while free.all > 0 {
        let possible = waiting.iter().enumerate().filter(|(_, order)| !order.is_on_demand || free.on_demand > 0);
        let running_at = |order: &WaitingOrder<'_>| running.get(order.authority).copied().unwrap_or(0);
        // The first one of several with the same number.
        let Some((index, _)) = possible.min_by_key(|(_, order)| running_at(order)) else { break };
        let order = waiting.remove(index);
        *running.entry(order.authority).or_default() += 1;
        free.all -= 1;
        free.on_demand -= usize::from(order.is_on_demand);
        next.push(order.name);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn authorities_share_the_places_and_the_longest_wait_is_first() {
        let now = Instant::now();
        // The names that wait, with the first letter of their authority; the number is the time since they are due.
        let order = |name: &'static str, seconds| WaitingOrder {
            name,
            authority: &name[..1],
            since: now - Duration::from_secs(seconds),
            is_on_demand: name.ends_with('?'),
        };
        type Case =
            (&'static [(&'static str, u64)], &'static [(&'static str, usize)], (usize, usize), &'static [&'static str]);
        let table: [Case; 9] = [
            (&[], &[], (8, 4), &[]),
            (&[("a1", 0), ("a2", 0), ("a3", 0)], &[("a", 5)], (3, 4), &["a1", "a2", "a3"]),
            (&[("a1", 1), ("a2", 9), ("a3", 5)], &[], (2, 4), &["a2", "a3"]),
            // An authority without orders comes before one whose names have waited for longer.
            (&[("a1", 9), ("a2", 8), ("b1", 0)], &[("a", 4)], (2, 4), &["b1", "a1"]),
            (&[("a1", 9), ("b1", 0)], &[("a", 7)], (1, 4), &["b1"]),
            (&[("a1", 9), ("b1", 0)], &[("a", 8)], (0, 0), &[]),
            (&[("a1", 4), ("a2", 3), ("b1", 2), ("b2", 1), ("c1", 0)], &[], (4, 4), &["a1", "b1", "c1", "a2"]),
            (&[("a1?", 9), ("a2?", 9), ("a3", 1)], &[], (8, 1), &["a1?", "a3"]),
            (&[("a1?", 9), ("b1", 1)], &[("b", 3)], (8, 0), &["b1"]),
        ];
        for (waiting, running, (all, on_demand), expected) in table {
            let orders = waiting.iter().map(|(name, seconds)| order(name, *seconds)).collect();
            let next = next_orders(orders, running.iter().copied().collect(), FreePlaces { all, on_demand });
            assert_eq!(next, expected, "{waiting:?} {running:?}");
        }
    }

    #[test]
    fn no_authority_has_more_than_half_while_another_one_waits() {
        let now = Instant::now();
        let names: Vec<String> = (0..60).map(|number| format!("{number:02}")).collect();
        // The first 30 names are those of one authority.
        let authority = |index: usize| if index < 30 { "a" } else { "b" };
        let waiting = names.iter().enumerate().map(|(index, name)| WaitingOrder {
            name,
            authority: authority(index),
            since: now,
            is_on_demand: false,
        });
        for running in 0..=4 {
            let free = FreePlaces { all: 8 - running, on_demand: 4 };
            let next = next_orders(waiting.clone().collect(), BTreeMap::from([("a", running)]), free);
            let of_a = next.iter().filter(|name| **name < "30").count();
            assert_eq!((running + of_a, next.len() - of_a), (4, 4));
        }
    }
}
