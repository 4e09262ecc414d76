//! Are all stacks treated equally? Each is started once before the race, with a php.ini that lets PHP report about itself;
//! each target is requested twice.
//!
//! A stack that does not start, or that gives another response than the first one, is not raced: an error is fast. Other
//! differences are checks of the report.

use crate::load::single::{self, Answer};
use crate::load::target::Target;
use crate::plan::{Plan, Source, StackPlan};
use crate::results::{Check, CheckState, PhpFacts};
use crate::stacks::php::{Facts, SET_BY_CLI};
use regex::Regex;
use std::time::Duration;

/// An observed stack.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Its name.
    pub stack: String,
    /// Its PHP; `None` if it did not report.
    pub facts: Option<Facts>,
    /// Its answers: two for each target.
    pub answers: Vec<(Answer, Answer)>,
}

const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest part of a body in a message.
const EXCERPT: usize = 120;
/// Bodies that differ from request to request must have nearly the same length.
const LENGTH_TOLERANCE: f64 = 0.1;

/// The different targets of all loads.
pub fn targets(plan: &Plan) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for target in plan.loads.iter().flat_map(|load| &load.targets) {
        let is_same =
            |other: &Target| (&other.method, &other.path, &other.body) == (&target.method, &target.path, &target.body);
        // A recorded log may have a thousand targets; the most frequent ones show a difference, too.
        if targets.len() < 50 && !targets.iter().any(is_same) {
            targets.push(target.clone());
        }
    }
    targets
}

/// Requests each target twice.
///
/// # Errors
/// A response is not right, or there is no response.
pub fn observe(
    endpoint: &crate::load::connection::Endpoint,
    host: &str,
    targets: &[Target],
) -> Result<Vec<(Answer, Answer)>, String> {
    let ask = |target: &Target| {
        let answer = single::request(endpoint, host, target, TIMEOUT)
            .map_err(|reason| format!("{} {}: {reason}", target.method, target.path))?;
        if !answer.is_right {
            return Err(describe_wrong(target, &answer));
        }
        Ok(answer)
    };
    targets.iter().map(|target| Ok((ask(target)?, ask(target)?))).collect()
}

/// A wrong answer in a sentence.
pub fn describe_wrong(target: &Target, answer: &Answer) -> String {
    let expected = target.checks.describe().join(", ");
    let body = excerpt(&answer.body);
    format!("{} {}: status {}, body {body:?}; expected: {expected}", target.method, target.path, answer.status)
}

/// The difference between the answers of two stacks; `None` if they are alike. `varies` is left out of bodies.
pub fn difference(targets: &[Target], one: &Observation, other: &Observation, varies: &[Regex]) -> Option<String> {
    let pairs = one.answers.iter().zip(&other.answers).zip(targets);
    let mut differences = pairs.filter_map(|(((a, a_again), (b, _)), target)| {
        let place = format!("{} {}", target.method, target.path);
        if a.status != b.status {
            return Some(format!("{place}: status {} instead of {}", b.status, a.status));
        }
        let media_type = |answer: &Answer| {
            let value = answer.header("content-type").unwrap_or("(none)").to_ascii_lowercase();
            value.replace(' ', "")
        };
        if media_type(a) != media_type(b) {
            return Some(format!("{place}: Content-Type {} instead of {}", media_type(b), media_type(a)));
        }
        let (text, again, theirs) =
            (essence(&a.body, varies), essence(&a_again.body, varies), essence(&b.body, varies));
        if text == again {
            return (text != theirs).then(|| first_difference(&place, &text, &theirs));
        }
        let (length, theirs) = (text.len() as f64, theirs.len() as f64);
        let is_far = (length - theirs).abs() > LENGTH_TOLERANCE * length.max(1.0);
        is_far.then(|| format!("{place}: a body of {theirs} bytes instead of {length}"))
    });
    differences.next()
}

/// Whether a stack's own answers differ: then only status, type and length can be compared.
pub fn changes_by_itself(observation: &Observation, varies: &[Regex]) -> bool {
    observation.answers.iter().any(|(a, b)| essence(&a.body, varies) != essence(&b.body, varies))
}

/// The checks of the report. The first observation is the baseline.
pub fn checks(plan: &Plan, observations: &[Observation]) -> Vec<Check> {
    let Some(first) = observations.first() else { return Vec::new() };
    let mut checks = vec![same_response(plan, first)];
    let reporting: Vec<_> = observations.iter().filter_map(|o| Some((o.stack.as_str(), o.facts.as_ref()?))).collect();
    let silent: Vec<_> = observations.iter().filter(|o| o.facts.is_none()).map(|o| o.stack.as_str()).collect();
    if !silent.is_empty() {
        let finding = format!("PHP of {} did not report about itself", silent.join(", "));
        checks.push(Check { name: "PHP".to_owned(), state: CheckState::Warning, finding });
    }
    checks.extend(same_version(&reporting));
    checks.extend(opcache(plan, &reporting));
    checks.extend(same_settings(plan, &reporting));
    checks.push(workers(plan, observations));
    checks
}

/// PHP's facts, as results.json has them.
pub fn php_facts(observation: &Observation) -> Option<PhpFacts> {
    observation.facts.as_ref().map(Facts::summary)
}

fn same_response(plan: &Plan, first: &Observation) -> Check {
    let name = "the same response".to_owned();
    if changes_by_itself(first, &plan.varies) {
        let finding = "bodies differ from request to request; compared: status, Content-Type, and a length within 10 % \
                       (\"varies\" in lab.json names the parts that differ)";
        return Check { name, state: CheckState::Warning, finding: finding.to_owned() };
    }
    let but =
        if plan.varies.is_empty() { String::new() } else { format!(" but for {} stated patterns", plan.varies.len()) };
    Check {
        name,
        state: CheckState::Passed,
        finding: format!("all stacks gave the same status, Content-Type and body{but}"),
    }
}

fn same_version(reporting: &[(&str, &Facts)]) -> Option<Check> {
    let (_, first) = reporting.first()?;
    let version = first.summary().version;
    let others = reporting.iter().filter(|(_, facts)| facts.summary().version != version);
    let others: Vec<_> = others.map(|(stack, facts)| format!("{stack} has {}", facts.summary().version)).collect();
    let state = if others.is_empty() { CheckState::Passed } else { CheckState::Warning };
    let rest = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    Some(Check { name: "PHP's version".to_owned(), state, finding: format!("PHP {version}{rest}") })
}

fn opcache(plan: &Plan, reporting: &[(&str, &Facts)]) -> Option<Check> {
    let off: Vec<_> = reporting.iter().filter(|(_, facts)| !facts.summary().opcache).map(|(stack, _)| *stack).collect();
    if reporting.is_empty() {
        return None;
    }
    let is_stated = |name: &&str| {
        plan.stacks.iter().any(|stack| stack.name == **name && stack.ini.contains_key("opcache.enable"))
            || plan.application.ini.settings.contains_key("opcache.enable")
    };
    let (state, finding) = match off.as_slice() {
        [] => (CheckState::Passed, "opcache is on in all stacks".to_owned()),
        names if names.iter().all(is_stated) => {
            (CheckState::Warning, format!("opcache is off in {}, as lab.json states", names.join(", ")))
        }
        names => (CheckState::Failed, format!("opcache is off in {}", names.join(", "))),
    };
    Some(Check { name: "opcache".to_owned(), state, finding })
}

fn same_settings(plan: &Plan, reporting: &[(&str, &Facts)]) -> Option<Check> {
    let ((baseline, first), others) = reporting.split_first()?;
    let mut found = Vec::new();
    let mut is_unstated = false;
    for (stack, facts) in others {
        let stated = plan.stacks.iter().filter(|s| s.name == *stack || s.name == *baseline).flat_map(|s| s.ini.keys());
        let stated: Vec<_> = stated.collect();
        let is_cli = facts.summary().sapi.starts_with("cli") || first.summary().sapi.starts_with("cli");
        for (name, theirs, ours) in facts.differences(first) {
            let is_of_cli = is_cli && SET_BY_CLI.contains(&name);
            let is_stated = stated.iter().any(|stated| *stated == name);
            is_unstated |= !is_of_cli && !is_stated;
            let reason = if is_of_cli {
                " (set by PHP's command line)"
            } else if is_stated {
                " (stated)"
            } else {
                ""
            };
            found.push(format!("{stack}: {name} is {theirs:?} instead of {ours:?}{reason}"));
        }
    }
    let state = match (found.is_empty(), is_unstated) {
        (true, _) => CheckState::Passed,
        (false, _) => CheckState::Warning,
    };
    let finding = if found.is_empty() {
        "all stacks have the same php.ini settings".to_owned()
    } else {
        let more = found.len().saturating_sub(12);
        found.truncate(12);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        format!("{}{more}", found.join("; "))
    };
    Some(Check { name: "php.ini".to_owned(), state, finding })
}

fn workers(plan: &Plan, observations: &[Observation]) -> Check {
    let is_raced = |stack: &&StackPlan| observations.iter().any(|o| o.stack == stack.name);
    let others = plan.stacks.iter().filter(is_raced).filter_map(|stack| {
        let policy = worker_policy(plan, stack);
        (policy.0 != Some(plan.workers)).then(|| format!("{}: {}", stack.name, policy.1))
    });
    let others: Vec<_> = others.collect();
    let state = if others.is_empty() { CheckState::Passed } else { CheckState::Warning };
    let rest = if others.is_empty() { String::new() } else { format!("; {}", others.join("; ")) };
    Check { name: "workers".to_owned(), state, finding: format!("{} PHP processes{rest}", plan.workers) }
}

/// The number of a stack's PHP processes, if the lab decides about it, and the policy in words.
pub fn worker_policy(plan: &Plan, stack: &StackPlan) -> (Option<u32>, String) {
    match &stack.source {
        _ if !stack.worker_policy.is_empty() => (None, stack.worker_policy.clone()),
        Source::Started(spec) if stack.has_own_workers => {
            (Some(spec.workers), format!("{}, as lab.json states", spec.workers))
        }
        _ => (Some(plan.workers), format!("{}, as for all stacks", plan.workers)),
    }
}

/// The text of a body without the parts that vary.
fn essence(body: &[u8], varies: &[Regex]) -> String {
    let text = String::from_utf8_lossy(body).into_owned();
    varies.iter().fold(text, |text, pattern| pattern.replace_all(&text, "").into_owned())
}

fn first_difference(place: &str, text: &str, theirs: &str) -> String {
    let lines = text.lines().zip(theirs.lines()).find(|(a, b)| a != b);
    let (a, b) = lines.unwrap_or((text, theirs));
    format!("{place}: another body: {:?} instead of {:?}", excerpt(b.as_bytes()), excerpt(a.as_bytes()))
}

fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let short: String = text.trim().chars().take(EXCERPT).collect();
    if short.len() < text.trim().len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, media_type: &str, body: &str) -> Answer {
        let headers = vec![("content-type".to_owned(), media_type.to_owned())];
        Answer { status, headers, body: body.as_bytes().to_vec(), is_right: true }
    }

    fn observation(first: &str, second: &str) -> Observation {
        let answers =
            vec![(answer(200, "text/html; charset=UTF-8", first), answer(200, "text/html; charset=UTF-8", second))];
        Observation { stack: "x".into(), facts: None, answers }
    }

    #[test]
    fn another_response_is_named() {
        let targets = [Target::get("/a")];
        let varies = [Regex::new("pid [0-9]+").unwrap()];
        let baseline = observation("hello\npid 7", "hello\npid 8");
        assert_eq!(difference(&targets, &baseline, &observation("hello\npid 9", "hello\npid 9"), &varies), None);
        let error = difference(&targets, &baseline, &observation("oh no\npid 9", "oh no\npid 9"), &varies).unwrap();
        assert_eq!(error, "GET /a: another body: \"oh no\" instead of \"hello\"");
        let mut other = observation("hello\npid 9", "hello\npid 9");
        other.answers[0].0.headers[0].1 = "text/html;charset=utf-8".into();
        assert_eq!(difference(&targets, &baseline, &other, &varies), None);
        other.answers[0].0.headers[0].1 = "text/plain".into();
        assert!(difference(&targets, &baseline, &other, &varies).unwrap().contains("Content-Type text/plain"));
    }

    #[test]
    fn pages_that_change_by_themselves_are_compared_by_their_length() {
        let targets = [Target::get("/a")];
        let baseline = observation("random 12345", "random 98765");
        assert!(changes_by_itself(&baseline, &[]));
        assert_eq!(difference(&targets, &baseline, &observation("random 55555", "x"), &[]), None);
        let error = difference(&targets, &baseline, &observation("random", "x"), &[]).unwrap();
        assert!(error.contains("6 bytes instead of 12"), "{error}");
    }

    fn reporting(stack: &str, version: &str, opcache: bool, memory_limit: &str) -> Observation {
        let facts = serde_json::json!({ "version": version, "sapi": "fpm-fcgi", "opcache": opcache, "extensions": [],
            "ini": { "memory_limit": memory_limit } });
        Observation {
            stack: stack.into(),
            facts: serde_json::from_value(facts).unwrap(),
            ..observation("hello", "hello")
        }
    }

    #[test]
    fn opcache_that_is_off_and_other_settings_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let lab = serde_json::json!({"title": "x", "application": {"root": ".", "php": "8.2", "user": "daemon"},
            "stacks": ["howdah", "nginx-fpm", { "name": "php-s", "ini": { "opcache.enable": "0" } }],
            "loads": [{"name": "a", "connections": 1, "duration": "1s"}]});
        let library = crate::stacks::Library::load(None).unwrap();
        let plan = Plan::from_json(&lab.to_string(), folder.path(), &library, false).unwrap();
        let find = |observations: &[Observation], name: &str| {
            checks(&plan, observations).into_iter().find(|check| check.name == name).unwrap()
        };
        let alike = [reporting("howdah", "8.2.1", true, "128M"), reporting("nginx-fpm", "8.2.1", true, "128M")];
        for name in ["the same response", "PHP's version", "opcache", "php.ini"] {
            assert_eq!(find(&alike, name).state, CheckState::Passed, "{name}");
        }
        let other = [alike[0].clone(), reporting("nginx-fpm", "8.3.1", false, "1G")];
        assert_eq!(find(&other, "opcache").state, CheckState::Failed);
        assert!(find(&other, "opcache").finding.contains("off in nginx-fpm"));
        assert_eq!(find(&other, "PHP's version").finding, "PHP 8.2.1; nginx-fpm has 8.3.1");
        let settings = find(&other, "php.ini");
        assert_eq!(settings.state, CheckState::Warning);
        assert!(settings.finding.contains("nginx-fpm: memory_limit is \"1G\" instead of \"128M\""), "{settings:?}");
        // lab.json states that opcache is off there.
        let stated = [alike[0].clone(), reporting("php-s", "8.2.1", false, "128M")];
        assert_eq!(find(&stated, "opcache").state, CheckState::Warning);
        let silent = [alike[0].clone(), observation("hello", "hello")];
        assert!(find(&silent, "PHP").finding.contains("did not report"));
    }
}
