//! The present state: the status, and the workers of the busiest applications. All pages share a result for a moment, so that
//! any number of open pages costs howdah as much as one.

use crate::commands::dashboard::calls::howdah::Howdah;
use crate::control_client::name_segment;
use crate::control_client::traffic::{Counters, Window};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Mutex;

/// The last result.
#[derive(Debug, Default)]
pub struct Now {
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    reading: Option<Reading>,
    traffic: Window,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    value: Value,
    /// Since when howdah cannot be reached.
    unreachable_since: Option<u64>,
}

/// How long a result is current.
const CURRENT: Duration = Duration::from_millis(800);
/// The number of applications whose workers are shown.
const MAX_APPLICATIONS: usize = 12;

// === impl Now ===

impl Now {
    /// The result. If howdah cannot be reached, it has the reason instead: that is shown, too.
    pub async fn read(&self, howdah: &Howdah) -> Value {
        let mut last = self.last.lock().await;
        if let Some(reading) = last.reading.as_ref().filter(|reading| reading.at.elapsed() < CURRENT) {
            return reading.value.clone();
        }
        let time = milliseconds();
        let (value, unreachable_since) = match read(howdah).await {
            Ok((status, workers)) => {
                let rates = read_traffic(howdah, &mut last.traffic).await;
                let value = json!({
                    "time": time, "reachable": true, "status": status, "workers": workers, "rates": rates,
                });
                (value, None)
            }
            Err(reason) => {
                last.traffic.clear();
                let since = last.reading.as_ref().and_then(|reading| reading.unreachable_since).unwrap_or(time);
                let value = json!({ "time": time, "reachable": false, "reason": reason, "since": since });
                (value, Some(since))
            }
        };
        last.reading = Some(Reading { at: Instant::now(), value: value.clone(), unreachable_since });
        value
    }
}

async fn read(howdah: &Howdah) -> Result<(Value, Map<String, Value>), String> {
    let status = howdah.read_json("/status").await?;
    let mut workers = Map::new();
    for name in busiest(&status) {
        // An application that was removed meanwhile is left out.
        if let Ok(processes) = howdah.read_json(&workers_path(&name)?).await {
            workers.insert(name, processes.get("workers").cloned().unwrap_or_default());
        }
    }
    Ok((status, workers))
}

/// The rates of the last seconds; `None` until there are two readings, and of a howdah without metrics.
async fn read_traffic(howdah: &Howdah, window: &mut Window) -> Option<Value> {
    let metrics = howdah.read("/metrics").await.ok().filter(|response| response.rejection().is_none())?;
    window.add(Counters::read(&metrics.body), Instant::now());
    window.rates().map(|rates| rates.json())
}

/// The path of the workers of an application.
///
/// # Errors
/// The name is empty.
pub fn workers_path(name: &str) -> Result<String, String> {
    Ok(format!("/status/applications/{}/processes", name_segment(name)?))
}

/// The applications with most requests, and of a small configuration all.
fn busiest(status: &Value) -> Vec<String> {
    let applications = status.get("applications").and_then(Value::as_object);
    let mut found: Vec<_> = applications.into_iter().flatten().filter(|(name, _)| !name.is_empty()).collect();
    found.sort_by_key(|(_, application)| {
        let number =
            |name: &str| application.pointer(&format!("/requests/{name}")).and_then(Value::as_u64).unwrap_or(0);
        Reverse(number("active") + number("waiting"))
    });
    found.truncate(MAX_APPLICATIONS);
    found.into_iter().map(|(name, _)| name.clone()).collect()
}

/// The milliseconds since 1970.
pub fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_client::connection::tests::api;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn the_busiest_applications_come_first() {
        let applications: Map<String, Value> = (0..20)
            .map(|number| {
                (format!("app{number}"), json!({ "requests": { "active": number, "waiting": 20 - 2 * (number % 2) } }))
            })
            .collect();
        let found = busiest(&json!({ "applications": applications }));
        assert_eq!((found.len(), found[0].as_str(), found[1].as_str()), (MAX_APPLICATIONS, "app18", "app19"));
    }

    #[test]
    fn pages_share_a_result_and_an_unreachable_howdah_is_a_result() {
        let howdah = Howdah::new(api(vec![
            ("/status", (200, r#"{"applications": {"shop": {}, "gone": {}}}"#)),
            ("/status/applications/shop/processes", (200, r#"{"workers": [{"pid": 7}]}"#)),
        ]));
        let now = Now::default();
        let (first, second) = run(async { (now.read(&howdah).await, now.read(&howdah).await) });
        assert_eq!(first["workers"], json!({ "shop": [{ "pid": 7 }] }));
        assert_eq!(first, second);

        let nothing = Howdah::new(api(vec![]));
        let first = run(Now::default().read(&nothing));
        assert_eq!((&first["reachable"], &first["reason"]), (&json!(false), &json!("None.")));
    }
}
