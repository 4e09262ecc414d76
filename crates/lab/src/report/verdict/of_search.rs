//! The limits that `howdah lab find-limit` found, in sentences.

use crate::report::words::{figure, label, objective};
use crate::results::{Limit, Results};

/// A sentence for each search.
pub(super) fn sentences(results: &Results) -> Vec<String> {
    results.limits.iter().map(|limit| sentence(results, limit)).collect()
}

/// The verdict of a lab that only searched for limits; `None` if it did not search.
pub(super) fn headline(results: &Results) -> Option<(String, Vec<String>)> {
    let mut held: Vec<_> = results.limits.iter().filter_map(|limit| Some((limit, limit.held?))).collect();
    if results.limits.is_empty() {
        return None;
    }
    held.sort_by(|a, b| b.1.total_cmp(&a.1));
    let Some((best, rate)) = held.first() else {
        return Some(("No stack holds any rate of this search under its objective.".to_owned(), Vec::new()));
    };
    let name = label(results, &best.stack);
    let loads = results.limits.iter().filter(|limit| limit.load != best.load).count();
    let text = match held.get(1) {
        _ if loads > 0 => "The highest rates that each stack holds are below, load by load.".to_owned(),
        Some((second, lower)) => format!(
            "{name} holds the highest rate: {} requests/s; {} is next with {}.",
            figure(*rate),
            label(results, &second.stack),
            figure(*lower)
        ),
        None => format!("{name} holds {} requests/s.", figure(*rate)),
    };
    let recommended = if loads > 0 { Vec::new() } else { vec![best.stack.clone()] };
    Some((text, recommended))
}

fn sentence(results: &Results, limit: &Limit) -> String {
    let name = label(results, &limit.stack);
    let load = results.load(&limit.load).map_or(limit.load.as_str(), |load| &load.label);
    let voided = limit.probes.iter().any(|probe| probe.voided);
    let end = match (limit.missed, voided) {
        (_, true) => "; the search ended there because the load generator was the bottleneck".to_owned(),
        (Some(missed), false) => format!("; it misses {}", figure(missed)),
        (None, false) => ", the highest rate of the search".to_owned(),
    };
    let objective = objective(Some(limit.objective));
    match limit.held {
        Some(held) => format!("{name} holds {} requests/s with {objective} ({load}){end}.", figure(held)),
        None if voided => {
            format!("{name}: no limit was found, because the load generator was the bottleneck ({load}).")
        }
        None => format!("{name} holds no rate of the search with {objective} ({load})."),
    }
}
