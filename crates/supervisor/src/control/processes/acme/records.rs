//! The records that orders have in the DNS, as the process reports them.
//!
//! An order removes its record itself. If the process is killed before, its successor removes the record, after a pause
//! in which a command that still adds it may end. A successor that is killed, too, has none: the log names the record.

use howdah_protocol::messages::acme::{DnsRecord, RecordRemoval};
use howdah_protocol::test_time::divided_for_acme;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The orders that have a record, or are to get one.
#[derive(Debug, Default)]
pub struct OrderRecords {
    by_order: BTreeMap<u64, OrderRecord>,
}

#[derive(Debug)]
struct OrderRecord {
    /// The program that changes the DNS, and its arguments.
    command: Vec<String>,
    /// `None` until the order adds it.
    record: Option<DnsRecord>,
    remover: Remover,
}

/// The process that removes a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remover {
    /// The one that has added it.
    Order,
    /// Its successor, from this time on.
    SuccessorAt(Instant),
    /// Its successor, which has the message.
    Successor,
}

/// The pause before a successor removes a record.
const PAUSE: Duration = Duration::from_secs(10);

// === impl OrderRecords ===

impl OrderRecords {
    /// Whether no order has a record, or may get one.
    pub fn is_empty(&self) -> bool {
        self.by_order.is_empty()
    }

    /// Whether the process has something to do for them.
    pub fn are_in_work(&self) -> bool {
        self.by_order.values().any(|order| !matches!(order.remover, Remover::SuccessorAt(_)))
    }

    /// An order that will add a record with this command.
    pub fn on_order(&mut self, order: u64, command: Vec<String>) {
        self.by_order.insert(order, OrderRecord { command, record: None, remover: Remover::Order });
    }

    /// An order adds this record, or has removed it. A process can report no record of an order that does not exist.
    pub fn on_report(&mut self, order: u64, record: Option<DnsRecord>) {
        match (record, self.by_order.get_mut(&order)) {
            (Some(record), Some(known)) => known.record = Some(record),
            (Some(_), None) => {}
            (None, _) => self.on_result(order),
        }
    }

    /// An order has ended, and has removed its record before.
    pub fn on_result(&mut self, order: u64) {
        self.by_order.remove(&order);
    }

    /// The process has ended.
    pub fn on_process_end(&mut self, now: Instant) {
        self.by_order.retain(|_, order| {
            let is_lost = order.remover == Remover::Successor;
            if is_lost {
                order.log_as_left();
            }
            order.record.is_some() && !is_lost
        });
        for order in self.by_order.values_mut().filter(|order| order.remover == Remover::Order) {
            order.remover = Remover::SuccessorAt(now + divided_for_acme(PAUSE));
        }
    }

    /// When [`Self::take_due`] has something.
    pub fn next_deadline(&self) -> Option<Instant> {
        let at = |order: &OrderRecord| match order.remover {
            Remover::SuccessorAt(at) => Some(at),
            Remover::Order | Remover::Successor => None,
        };
        self.by_order.values().filter_map(at).min()
    }

    /// The records that a successor is to remove now: those that are due, or (`None`) all.
    pub fn take_due(&mut self, now: Option<Instant>) -> Vec<RecordRemoval> {
        let is_due = |at: Instant| now.is_none_or(|now| at <= now);
        let mut due = Vec::new();
        for (number, order) in &mut self.by_order {
            if let (Remover::SuccessorAt(at), Some(record)) = (order.remover, &order.record)
                && is_due(at)
            {
                due.push(RecordRemoval { order: *number, command: order.command.clone(), record: record.clone() });
                order.remover = Remover::Successor;
            }
        }
        due
    }

    /// No process removes them.
    pub fn give_up(&mut self) {
        std::mem::take(&mut self.by_order).values().for_each(OrderRecord::log_as_left);
    }
}

impl OrderRecord {
    fn log_as_left(&self) {
        if let Some(record) = &self.record {
            tracing::error!("the record {} stays in the DNS ({:?}); remove it yourself", record.name, record.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> DnsRecord {
        DnsRecord { name: name.to_owned(), value: "x".to_owned(), domain: "d".to_owned() }
    }

    #[test]
    fn the_record_of_a_process_that_was_killed_is_removed_once_by_its_successor() {
        let (mut records, now) = (OrderRecords::default(), Instant::now());
        for order in 1..=4 {
            records.on_order(order, vec![format!("command{order}")]);
        }
        records.on_report(1, Some(record("a")));
        records.on_report(2, Some(record("b")));
        records.on_report(2, None);
        records.on_report(3, Some(record("c")));
        records.on_result(3);
        records.on_report(7, Some(record("of no order")));
        assert!(records.are_in_work() && records.take_due(None).is_empty());
        records.on_process_end(now);
        assert!(!records.is_empty() && !records.are_in_work());
        let at = now + divided_for_acme(PAUSE);
        assert_eq!(records.next_deadline(), Some(at));
        assert!(records.take_due(Some(at - Duration::from_millis(1))).is_empty());
        let command = vec!["command1".to_owned()];
        assert_eq!(records.take_due(Some(at)), [RecordRemoval { order: 1, command, record: record("a") }]);
        assert!(records.are_in_work() && records.take_due(None).is_empty() && records.next_deadline().is_none());
        records.on_process_end(at);
        assert!(records.is_empty(), "a successor that dies has none");
    }

    #[test]
    fn a_stop_does_not_wait_for_the_pause() {
        let (mut records, now) = (OrderRecords::default(), Instant::now());
        records.on_order(1, Vec::new());
        records.on_report(1, Some(record("a")));
        records.on_process_end(now);
        assert_eq!(records.take_due(None).len(), 1);
        records.on_report(1, None);
        assert!(records.is_empty());
    }
}
