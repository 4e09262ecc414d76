//! The page: complete, self-contained, and safe for texts of strangers.

use super::fixture::{figures, lab, sample};
use super::*;
use crate::results::{Results, RunState};

/// Text that would run or end an element if it were not escaped.
const HOSTILE: &str = r#"</script><script>alert(1)</script><img src=x onerror="alert(2)">'"&{{ 7*7 }}{% x %}--><!--"#;

#[test]
fn the_report_has_its_parts_and_refers_to_no_other_file() {
    let html = html(&sample()).unwrap();
    for part in ["id=\"verdict\"", "id=\"tables\"", "id=\"charts\"", "id=\"method\"", "id=\"runs\"", "howdah.json"] {
        assert!(html.contains(part), "{part}");
    }
    for reference in ["src=", "@import", "url(", "<link", "href=\"http", "fetch("] {
        assert!(!html.contains(reference), "{reference}");
    }
    assert!(html.len() < 400_000, "{} bytes", html.len());
}

#[test]
fn texts_of_strangers_are_text() {
    let mut results = sample();
    results.title = HOSTILE.to_owned();
    results.description = HOSTILE.to_owned();
    results.command = vec![HOSTILE.to_owned()];
    results.lab = serde_json::json!({ HOSTILE: HOSTILE });
    results.machine.cpu = HOSTILE.to_owned();
    results.method.notes = vec![HOSTILE.to_owned()];
    for stack in &mut results.stacks {
        stack.label = HOSTILE.to_owned();
        stack.notes = vec![HOSTILE.to_owned()];
        for file in &mut stack.files {
            (file.path, file.content) = (HOSTILE.to_owned(), HOSTILE.to_owned());
        }
        for command in &mut stack.commands {
            command.command = vec![HOSTILE.to_owned()];
            command.environment = [(HOSTILE.to_owned(), HOSTILE.to_owned())].into();
        }
    }
    for load in &mut results.loads {
        load.label = HOSTILE.to_owned();
        load.targets[0].path = HOSTILE.to_owned();
        load.targets[0].checks = vec![HOSTILE.to_owned()];
    }
    for run in &mut results.runs {
        run.state = RunState::Failed { reason: HOSTILE.to_owned(), log: vec![HOSTILE.to_owned()] };
    }
    results.skipped[0].log = vec![HOSTILE.to_owned()];
    let page = html(&results).unwrap();
    // The report's own: one element with data, one with the script.
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("<img"), "an element of a stranger");
    assert!(page.contains("{{ 7*7 }}"), "no template is run in a text");
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["stacks"][0]["label"], HOSTILE);
}

#[test]
fn the_policy_allows_the_reports_own_style_and_script_only() {
    let html = html(&sample()).unwrap();
    let policy = html.split("Content-Security-Policy\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(policy.starts_with("default-src &#x27;none&#x27;;"), "{policy}");
    assert!(!policy.contains("unsafe") && policy.matches("sha256-").count() == 2, "{policy}");
}

#[test]
fn each_state_of_a_lab_has_a_report() {
    let voided = RunState::Voided { reason: "late".into() };
    let one = || figures("a", "clients", &[1.0, 2.0]);
    let labs: Vec<(&str, Results)> = vec![
        ("empty", lab(&[])),
        ("one stack", lab(&[one()])),
        ("one round", lab(&[figures("a", "rate", &[1.0]), figures("b", "rate", &[1.0])])),
        ("all void", lab(&[fixture::Figures { state: voided, ..one() }])),
        ("no answer", lab(&[fixture::Figures { failed: 1.0, ..one() }])),
        ("search only", Results { runs: vec![], summaries: vec![], comparisons: vec![], verdict: None, ..sample() }),
    ];
    for (name, results) in labs {
        let page = html(&results).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains("class=\"headline\""), "{name}");
    }
}

#[test]
fn a_report_that_cannot_be_written_names_its_path() {
    let error = write_html(&sample(), Path::new("/nowhere/report.html")).unwrap_err();
    assert!(error.starts_with("/nowhere/report.html: "), "{error}");
}
