//! Two labs, and what changed between them.

use super::*;
use crate::report::fixture::{Figures, figures, lab, sample};
use crate::results::{Metric, Outcome};

const RATES: [f64; 5] = [300.0, 303.0, 298.0, 301.0, 299.0];

fn change<'a>(comparison: &'a ResultsComparison, stack: &str, metric: Metric) -> &'a Change {
    comparison.changes.iter().find(|change| change.stack == stack && change.metric == metric).expect("compared")
}

#[test]
fn the_same_results_have_no_difference() {
    let results = sample();
    let comparison = compare(&results, &results);
    let figures = comparison.changes.len();
    assert_eq!(comparison.count(Judgement::Noise), figures);
    assert_eq!(
        comparison.headline,
        format!("No difference was found in {figures} figures: what differs may be noise.")
    );
    assert_eq!(comparison.conditions, []);
}

#[test]
fn better_worse_and_noise_are_distinguished() {
    let before = lab(&[figures("a", "clients", &RATES), figures("b", "clients", &RATES)]);
    let after = lab(&[
        figures("a", "clients", &RATES.map(|rate| rate * 1.2)),
        Figures { milliseconds: 10.0, ..figures("b", "clients", &RATES) },
    ]);
    let comparison = compare(&before, &after);
    let faster = change(&comparison, "A", Metric::RequestsPerSecond);
    assert_eq!(faster.judgement, Judgement::Better);
    assert!((faster.difference.ratio - 1.2).abs() < 0.01 && faster.before < faster.after);
    assert_eq!(change(&comparison, "B", Metric::LatencyP99).judgement, Judgement::Worse);
    assert_eq!(change(&comparison, "B", Metric::RequestsPerSecond).judgement, Judgement::Noise);
    assert!(comparison.headline.starts_with("Better in 2 and worse in 3 of 14 figures."), "{}", comparison.headline);
    let text = to_text(&comparison);
    assert!(text.contains("load clients\n  A\n    requests per second      300 -> 360               +20 %"), "{text}");
    assert!(text.contains("chance alone makes up to about 1 look like one"), "{text}");
}

#[test]
fn one_round_gives_no_statement() {
    let (before, after) = (lab(&[figures("a", "clients", &[300.0])]), lab(&[figures("a", "clients", &RATES)]));
    let comparison = compare(&before, &after);
    assert_eq!(comparison.headline, "No statement: a single round cannot separate a difference from noise.");
    assert!(to_text(&comparison).contains("no statement: a single round"));
}

#[test]
fn stacks_and_loads_without_a_partner_are_named() {
    let before = lab(&[figures("a", "clients", &RATES), figures("b", "clients", &RATES)]);
    let mut after = lab(&[figures("a", "clients", &RATES), figures("a", "rate", &RATES)]);
    let comparison = compare(&before, &after);
    for note in ["Only the first result has the stack B.", "Only the second result has the load load rate."] {
        assert!(comparison.notes.iter().any(|other| other == note), "{note}: {:?}", comparison.notes);
    }
    after.loads[0].timeout_seconds = 1.0;
    let comparison = compare(&before, &after);
    assert!(comparison.headline.starts_with("Nothing can be compared"), "{}", comparison.headline);
    assert!(comparison.notes.iter().any(|note| note.contains("its figures are not compared")));
}

#[test]
fn other_conditions_are_listed_because_they_may_be_the_reason() {
    let before = sample();
    let mut after = sample();
    after.machine.cores = 4;
    after.stacks[0].settings.insert("mode".to_owned(), "worker".to_owned());
    after.stacks[0].files[1].content.push_str("; more\n");
    after.stacks[1].php.as_mut().unwrap().opcache = false;
    after.outcome = Outcome::Interrupted;
    after.verdict.as_mut().unwrap().recommended = vec!["php-s".to_owned()];
    let comparison = compare(&before, &after);
    let found: Vec<_> = comparison.conditions.iter().map(|one| (one.name.as_str(), one.after.as_str())).collect();
    assert_eq!(
        found,
        [
            ("cores", "4"),
            ("howdah: settings", "mode=worker"),
            ("howdah: files with another content", "php.ini"),
            ("nginx + PHP-FPM, static, unix socket: opcache", "off"),
        ]
    );
    for note in
        ["The verdict changed: it recommended howdah, now php -S.", "The lab of the second result was interrupted."]
    {
        assert!(comparison.notes.iter().any(|other| other == note), "{note}: {:?}", comparison.notes);
    }
}

#[test]
fn the_page_is_whole_and_escapes_names() {
    let (before, mut after) = (sample(), sample());
    after.stacks[0].label = "<script>alert(1)</script>".to_owned();
    after.machine.cpu = "<b>".to_owned();
    let html = to_html(&compare(&before, &after), "<i>A.json", "B.json").unwrap();
    assert!(!html.contains("<script") && !html.contains("<b>") && !html.contains("<i>"));
    assert!(html.contains("script-src &#x27;none&#x27;"));
    assert_eq!(html.matches("<tbody>").count(), html.matches("</tbody>").count());
    let error = write_html(&compare(&before, &after), "A", "B", Path::new("/nowhere/c.html")).unwrap_err();
    assert!(error.starts_with("/nowhere/c.html: "), "{error}");
}
