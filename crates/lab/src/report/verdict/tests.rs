//! The verdict's words, as a table of labs.

use super::*;
use crate::report::fixture::{Figures, figures, lab, sample};
use crate::results::{Limit, Objective, Probe};

const FAST: [f64; 5] = [300.0, 303.0, 298.0, 301.0, 299.0];
const SLOW: [f64; 5] = [200.0, 203.0, 198.0, 201.0, 199.0];

fn all_text(verdict: &VerdictText) -> String {
    verdict.to_text()
}

fn failing(failed: f64, cell: Figures) -> Figures {
    Figures { failed, ..cell }
}

fn in_state(state: RunState, cell: Figures) -> Figures {
    Figures { state, ..cell }
}

#[track_caller]
fn check(results: &Results, recommended: &[&str], headline: &str, level: ConfidenceLevel, also: &[&str]) {
    let verdict = verdict(results);
    assert_eq!(verdict.headline, headline);
    assert_eq!(verdict.recommended, recommended);
    assert_eq!(verdict.confidence.level, level, "{}", verdict.confidence.sentence);
    for part in also {
        assert!(all_text(&verdict).contains(part), "{part:?} is missing in:\n{}", all_text(&verdict));
    }
}

#[test]
fn a_clear_winner_is_named_with_its_lead_and_interval() {
    let results = lab(&[figures("b", "clients", &SLOW), figures("a", "clients", &FAST)]);
    let headline = verdict(&results).headline;
    assert!(headline.starts_with("Run A: it completes 50 % more requests per second than B (+4"), "{headline}");
    check(
        &results,
        &["a"],
        &headline,
        ConfidenceLevel::High,
        &["load clients\n  A: 300 requests/s. It completes 50 % more", "holds at 95 % confidence over 5 rounds"],
    );
}

#[test]
fn a_winner_by_far_is_named_in_multiples() {
    let results = lab(&[figures("a", "clients", &FAST.map(|rate| rate * 2.0)), figures("b", "clients", &SLOW)]);
    let headline = verdict(&results).headline;
    assert!(headline.starts_with("Run A: it completes 3.00 times the requests per second of B"), "{headline}");
}

#[test]
fn under_an_open_load_the_percentile_decides() {
    let slow = Figures { milliseconds: 10.0, ..figures("b", "rate", &FAST) };
    let results = lab(&[slow, figures("a", "rate", &FAST)]);
    let headline = verdict(&results).headline;
    assert!(headline.starts_with("Run A: its p99 is 50 % lower than that of B"), "{headline}");
}

#[test]
fn a_tie_is_no_victory_and_other_metrics_break_it() {
    let lean = Figures { memory: 33_554_432.0, ..figures("b", "clients", &FAST) };
    check(
        &lab(&[figures("a", "clients", &FAST), lean, figures("c", "clients", &SLOW)]),
        &["a", "b"],
        "Run A or B: no stack is better than the others. Choose by memory, by CPU, or by what you know.",
        ConfidenceLevel::High,
        &[
            "No difference was found between B and A: B 300 requests/s and A 300 requests/s. These differences may be noise.",
            "B needs less memory: 50 % less than A.",
            "C is behind them: 200 requests/s.",
        ],
    );
}

#[test]
fn a_tie_by_few_rounds_is_an_open_question() {
    let [a, b] = [("a", [300.0, 200.0]), ("b", [200.0, 260.0])].map(|(name, rates)| figures(name, "clients", &rates));
    let text = all_text(&verdict(&lab(&[a, b])));
    assert!(text.contains("More rounds would show more: by these, the requests per second of B may differ"), "{text}");
    let [a, b] = ["a", "b"].map(|name| figures(name, "clients", &FAST));
    assert!(!all_text(&verdict(&lab(&[a, b]))).contains("More rounds"));
}

#[test]
fn a_single_round_shows_no_difference() {
    check(
        &lab(&[figures("a", "clients", &[300.0]), figures("b", "clients", &[200.0])]),
        &["a", "b"],
        "No stack can be preferred: a single round cannot separate a difference from noise. A and B met the objective.",
        ConfidenceLevel::None,
        &["run at least 3 rounds", "One round cannot show a difference: A 300 requests/s and B 200 requests/s."],
    );
}

#[test]
fn errors_are_not_outweighed_by_speed() {
    check(
        &lab(&[figures("a", "clients", &SLOW), failing(0.1, figures("b", "clients", &FAST))]),
        &["a"],
        "Run A: it is the only stack that meets the objective, with 200 requests/s.",
        ConfidenceLevel::High,
        &[
            "B looks better with 270 requests/s, but it does not qualify: 10 % of its requests failed; the limit is 1 %. \
           Speed does not make up for errors.",
        ],
    );
}

#[test]
fn a_lab_in_which_all_failed_recommends_nothing() {
    let cells = [failing(0.5, figures("a", "clients", &SLOW)), failing(0.1, figures("b", "clients", &FAST))];
    check(
        &lab(&cells),
        &[],
        "No stack can be recommended: none met the objective under any load.",
        ConfidenceLevel::High,
        &["No stack meets the objective (99 % right answers).", "A does not qualify: 50 % of its requests failed"],
    );
    let dead = || RunState::Failed { reason: "the process ended with exit code 1.".into(), log: vec!["boom".into()] };
    check(
        &lab(&[in_state(dead(), figures("a", "clients", &SLOW)), in_state(dead(), figures("b", "clients", &FAST))]),
        &[],
        "No stack can be recommended: each one failed before its load. Their logs are below.",
        ConfidenceLevel::None,
        &["A failed in 5 of 5 runs: the process ended with exit code 1.\n"],
    );
}

#[test]
fn a_stack_without_a_result_leaves_the_other_one() {
    let dead = RunState::Failed { reason: "port 1 is in use".into(), log: vec![] };
    let results = lab(&[figures("a", "clients", &SLOW), in_state(dead, figures("b", "clients", &FAST))]);
    let headline = "Run A: it is the only stack with a result.";
    check(&results, &["a"], headline, ConfidenceLevel::High, &["B failed in 5 of 5 runs: port 1 is in use."]);
}

#[test]
fn voided_runs_do_not_count_and_are_named() {
    let void = || RunState::Voided { reason: "97 % CPU".into() };
    check(
        &lab(&[in_state(void(), figures("a", "clients", &SLOW)), in_state(void(), figures("b", "clients", &FAST))]),
        &[],
        "No verdict: every run is void, because the load generator was the bottleneck. Give it a core of its own, or \
         lower the load.",
        ConfidenceLevel::None,
        &["10 of 10 runs are void and do not count, because the load generator was the bottleneck: A and B."],
    );
    let mut results = lab(&[figures("a", "clients", &FAST), figures("b", "clients", &SLOW)]);
    results.runs[0].state = void();
    let verdict = verdict(&results);
    assert_eq!(verdict.confidence.level, ConfidenceLevel::Fair);
    assert!(all_text(&verdict).contains("1 of 10 runs is void and does not count"), "{}", all_text(&verdict));
}

#[test]
fn one_stack_alone_is_measured_but_not_compared() {
    check(
        &lab(&[figures("a", "clients", &FAST)]),
        &[],
        "A was measured alone: there is no other stack to compare it with.",
        ConfidenceLevel::High,
        &["A: 300 requests/s, p99 7.54 ms, 100 % HTTP OK."],
    );
}

#[test]
fn a_winner_of_some_loads_is_named_with_their_number() {
    let loads = ["clients", "clients-2", "clients-3"];
    let a = loads.map(|load| figures("a", load, if load == "clients-3" { &SLOW } else { &FAST }));
    let b = loads.map(|load| figures("b", load, if load == "clients-3" { &FAST } else { &SLOW }));
    let cells: Vec<_> = a.into_iter().chain(b).collect();
    let expected = "Run A: it leads under 2 of 3 loads.";
    check(&lab(&cells), &["a"], expected, ConfidenceLevel::High, &["load clients-3\n  B: 300 requests/s."]);
    let expected = "Run A: it leads under all 2 loads.";
    let both: Vec<_> = cells.into_iter().filter(|cell| cell.load != "clients-3").collect();
    check(&lab(&both), &["a"], expected, ConfidenceLevel::High, &[]);
}

#[test]
fn few_rounds_short_loads_and_interruptions_lower_the_confidence() {
    let few = |count: usize| lab(&[figures("a", "clients", &FAST[..count]), figures("b", "clients", &SLOW[..count])]);
    assert_eq!(verdict(&few(3)).confidence.level, ConfidenceLevel::Fair);
    assert_eq!(verdict(&few(2)).confidence.level, ConfidenceLevel::Low);
    let quick = Results { quick: true, ..few(5) };
    assert!(verdict(&quick).confidence.sentence.ends_with("but --quick shortened the loads."));
    let interrupted = verdict(&Results { outcome: Outcome::Interrupted, ..few(5) });
    assert_eq!(interrupted.confidence.level, ConfidenceLevel::Low);
    assert!(interrupted.caveats[0].starts_with("The lab was interrupted"));
}

#[test]
fn a_search_for_limits_names_the_highest_rate() {
    let objective = Objective { percentile: 99.0, milliseconds: 200.0, error_share: 0.001 };
    let limit = |stack: &str, held: Option<f64>, missed: Option<f64>, voided: bool| Limit {
        stack: stack.to_owned(),
        load: "rate".to_owned(),
        objective,
        held,
        missed,
        probes: vec![Probe {
            rate: 1.0,
            latency_ms: None,
            error_share: 0.0,
            cpu_percent: None,
            held: held.is_some(),
            voided,
        }],
    };
    let mut results = lab(&[figures("a", "rate", &FAST), figures("b", "rate", &SLOW), figures("c", "rate", &SLOW)]);
    (results.runs, results.summaries, results.comparisons, results.verdict) = (vec![], vec![], vec![], None);
    results.limits = vec![
        limit("a", Some(800.0), Some(850.0), false),
        limit("b", Some(1200.0), None, false),
        limit("c", None, None, false),
    ];
    let holds =
        "holds 800 requests/s with p99 up to 200 ms, and up to 0.1 % failed requests (load rate); it misses 850.";
    check(
        &results,
        &["b"],
        "B holds the highest rate: 1,200 requests/s; A is next with 800.",
        ConfidenceLevel::Low,
        &[holds, "B holds 1,200", "the highest rate of the search.", "C holds no rate of the search"],
    );
    results.limits = vec![limit("c", None, Some(100.0), false)];
    let nothing = "No stack holds any rate of this search under its objective.";
    check(&results, &[], nothing, ConfidenceLevel::None, &[]);
    results.limits = vec![limit("a", Some(800.0), None, true)];
    check(&results, &["a"], "A holds 800 requests/s.", ConfidenceLevel::Low, &["the search ended there because"]);
}

#[test]
fn an_empty_lab_has_no_verdict() {
    let mut results = lab(&[]);
    check(&results, &[], "No verdict: no stack of this lab could be started.", ConfidenceLevel::None, &[]);
    results.skipped = sample().skipped;
    let text = all_text(&verdict(&results));
    assert!(text.contains("Not raced: NGINX Unit. The reasons are below."), "{text}");
}
