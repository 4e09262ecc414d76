//! The records in the DNS: each is removed before the end of its order, and before the end of the process.
//!
//! The supervisor knows them. If the process is killed, the next one removes them.

use crate::dns_hook;
use crate::reports::Reports;
use howdah_protocol::messages::acme::{DnsRecord, FromAcme};
use tokio::sync::watch;

/// The records of all orders.
pub struct Records {
    reports: Reports,
    /// How many are not removed yet.
    open: watch::Sender<usize>,
    is_stopping: watch::Sender<bool>,
}

/// Why an order ends.
const STOPPING: &str = "howdah is shutting down";

// === impl Records ===

impl Records {
    /// Without records.
    pub fn new(reports: Reports) -> Records {
        Records { reports, open: watch::Sender::new(0), is_stopping: watch::Sender::new(false) }
    }

    /// Adds the record of an order. It is put into `record` before the command runs: also after a failure, it must be removed.
    ///
    /// # Errors
    /// A phrase.
    pub async fn add(
        &self,
        order: u64,
        command: &[String],
        added: DnsRecord,
        record: &mut Option<DnsRecord>,
    ) -> Result<(), String> {
        if *self.is_stopping.borrow() {
            return Err(STOPPING.to_owned());
        }
        let added = record.insert(added);
        self.open.send_modify(|open| *open += 1);
        self.reports.send(&FromAcme::Record { order, record: Some(added.clone()) });
        dns_hook::change(command, "add", added).await
    }

    /// Removes the record of an order, if it has one. `record` has it until the command has ended.
    pub async fn remove(&self, order: u64, command: &[String], record: &mut Option<DnsRecord>) {
        let Some(added) = record else { return };
        if let Err(reason) = dns_hook::change(command, "remove", added).await {
            tracing::warn!("{reason}; remove the record {} yourself", added.name);
        }
        *record = None;
        self.open.send_modify(|open| *open -= 1);
        self.reports.send(&FromAcme::Record { order, record: None });
    }

    /// A former process has left a record, which is removed now: it counts from here on.
    pub fn on_left(&self) {
        self.open.send_modify(|open| *open += 1);
    }

    /// Ends the orders that have records, and returns when all records are removed.
    pub async fn stop(&self) {
        self.is_stopping.send_replace(true);
        // It cannot fail: the sender is here.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// The result of a part of an order, unless the process stops before.
    ///
    /// # Errors
    /// A phrase.
    pub async fn unless_stopping<T>(&self, part: impl Future<Output = T>) -> Result<T, String> {
        let mut is_stopping = self.is_stopping.subscribe();
        tokio::select! {
            biased;
            _ = is_stopping.wait_for(|is_stopping| *is_stopping) => Err(STOPPING.to_owned()),
            result = part => Ok(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::sockets::control_socket::ControlSocket;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn a_stop_waits_until_all_records_are_removed() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let records = Records::new(Reports::to(Arc::new(theirs)));
        let file = std::env::temp_dir().join(format!("howdah-records-{}", std::process::id()));
        let script = format!("sleep 0.2; echo $HOWDAH_DNS_VALUE $0 >> {}", file.display());
        let command = ["sh", "-c", &script].map(str::to_owned);
        let added = |value: &str| DnsRecord { name: "n".into(), value: value.into(), domain: "d".into() };
        let mut record = None;
        let order = async {
            records.add(1, &command, added("a"), &mut record).await.unwrap();
            let ended = records.unless_stopping(tokio::time::sleep(Duration::from_secs(3600))).await;
            assert_eq!(ended, Err(STOPPING.to_owned()));
            records.remove(1, &command, &mut record).await;
        };
        records.on_left();
        let left = async { records.remove(2, &command, &mut Some(added("b"))).await };
        // It begins while the command adds the record.
        tokio::join!(order, left, records.stop());
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["a add", "a remove", "b remove"]);
        assert!(records.add(3, &command, added("c"), &mut record).await.is_err() && record.is_none(), "no others");
        drop(records);
        let mut reports = Vec::new();
        while let Some((report, _)) = ours.wait_for_long::<FromAcme>().unwrap() {
            let FromAcme::Record { order, record } = report else { panic!("{report:?}") };
            reports.push((order, record.is_some()));
        }
        assert_eq!(reports, [(1, true), (2, false), (1, false)]);
    }
}
