//! The answers of applications and routes since the last reading become part of a sample.

use crate::commands::dashboard::history::record::{Answers, RouteAnswers, Sample};
use crate::control_client::traffic::{Row, Traffic, by_application};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How many routes a sample has at most: those with most answers.
const MAX_ROUTES: usize = 16;

/// Adds the traffic to a sample.
pub fn add(sample: &mut Sample, rows: &BTreeMap<Row, Traffic>) {
    for (name, traffic) in by_application(rows) {
        // Requests that no application has answered have the empty name.
        if name.is_empty() || sample.applications.contains_key(&name) {
            sample.applications.entry(name).or_default().answers = Some(Answers::of(&traffic));
        }
    }
    let mut busiest: Vec<_> = rows.iter().filter(|(_, traffic)| !traffic.is_nothing()).collect();
    busiest.sort_by_key(|(_, traffic)| Reverse(traffic.requests));
    busiest.truncate(MAX_ROUTES);
    sample.routes = busiest
        .into_iter()
        .map(|(row, traffic)| RouteAnswers {
            application: row.application.clone(),
            route: row.route.clone(),
            answers: Answers::of(traffic),
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::dashboard::history::record::Numbers;

    #[test]
    fn a_sample_has_applications_and_the_busiest_routes() {
        let row = |application: &str, route: String| Row { application: application.to_owned(), route };
        let traffic = |requests: u64| {
            let mut traffic = Traffic { requests, errors: 1, ..Traffic::default() };
            traffic.times[4] = requests;
            traffic.refused.insert("queue".to_owned(), 2);
            traffic
        };
        let mut rows: BTreeMap<_, _> =
            (1..=20).map(|number| (row("shop", format!("routes/{number}")), traffic(number))).collect();
        rows.insert(row("gone", String::new()), traffic(1000));
        rows.insert(row("", "listener".to_owned()), Traffic::default());
        let mut sample = Sample { applications: [("shop".to_owned(), Numbers::default())].into(), ..Sample::default() };
        add(&mut sample, &rows);
        let shop = sample.applications["shop"].answers.as_ref().unwrap();
        assert_eq!((shop.errors, &shop.times[..], shop.refused["queue"]), (20, &[0, 0, 0, 0, 210][..], 40));
        assert_eq!(sample.applications[""].answers, Some(Answers::default()));
        assert!(!sample.applications.contains_key("gone"), "it was removed meanwhile");
        assert_eq!(sample.routes.len(), MAX_ROUTES);
        assert_eq!((sample.routes[0].application.as_str(), sample.routes[1].route.as_str()), ("gone", "routes/20"));
    }
}
