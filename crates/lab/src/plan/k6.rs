//! The loads of a lab as a k6 script and a TestRun of k6-operator, for load from many machines.
//!
//! Each load is a scenario of its own; they run one after the other. The URL of the server is the variable BASE_URL.

use super::load::LoadPlan;
use crate::load::Pace;
use crate::load::schedule::{Part, Schedule};
use crate::load::target::Target;
use serde_json::{Value, json};
use std::time::Duration;

/// The pause between two scenarios.
const PAUSE: Duration = Duration::from_secs(5);
/// In JavaScript, these end a line, too.
const LINE_ENDS: [char; 2] = ['\u{2028}', '\u{2029}'];
/// The time that k6 gives a number of requests.
const LONGEST: &str = "1h";

/// A k6 script for these loads.
pub fn script(title: &str, loads: &[LoadPlan]) -> String {
    let mut scenarios = serde_json::Map::new();
    let mut thresholds = serde_json::Map::new();
    let mut start = Duration::ZERO;
    for load in loads {
        let (mut scenario, length) = scenario(load);
        scenario["exec"] = json!(function(load));
        scenario["startTime"] = json!(format!("{}s", start.as_secs()));
        scenarios.insert(load.name.clone(), scenario);
        if let Some(objective) = &load.objective {
            let of = |metric: &str| format!("{metric}{{scenario:{}}}", load.name);
            let latency = format!("p({})<{}", objective.percentile, objective.milliseconds);
            thresholds.insert(of("http_req_duration"), json!([latency]));
            thresholds.insert(of("checks"), json!([format!("rate>={}", 1.0 - objective.error_share)]));
        }
        start += length + load.timeout + PAUSE;
    }
    let is_reusing = loads.iter().all(|load| load.keep_alive);
    let options = json!({ "scenarios": scenarios, "thresholds": thresholds, "noVUConnectionReuse": false,
        "noConnectionReuse": !is_reusing, "discardResponseBodies": false });
    let functions: String = loads.iter().map(of_load).collect();
    format!(
        "// {}: made by `howdah lab k6`. BASE_URL=http://127.0.0.1:8080 k6 run lab.js\n\
         import http from 'k6/http';\nimport {{ check }} from 'k6';\nimport exec from 'k6/execution';\n\n\
         const base = __ENV.BASE_URL;\nif (!base) {{ throw new Error('set BASE_URL to the URL of the server'); }}\n\n\
         export const options = {options:#};\n\n{HELPERS}{functions}",
        title.replace(|c: char| c.is_control() || LINE_ENDS.contains(&c), " ")
    )
}

/// The TestRun of k6-operator that runs the script on this number of machines.
pub fn test_run(name: &str, parallelism: u32) -> String {
    format!(
        "# kubectl create configmap {name} --from-file=lab.js && kubectl apply -f testrun.yaml\n\
         apiVersion: k6.io/v1alpha1\nkind: TestRun\nmetadata:\n  name: {name}\nspec:\n  parallelism: {parallelism}\n  script:\n    \
         configMap:\n      name: {name}\n      file: lab.js\n  runner:\n    env:\n      - name: BASE_URL\n        value: \
         http://CHANGE-ME:8080\n"
    )
}

/// The helpers of a script: the weighted choice, and the checks.
const HELPERS: &str = "function pick(targets) {
  const total = targets.reduce((sum, target) => sum + target.weight, 0);
  let position = exec.scenario.iterationInTest % total;
  return targets.find((target) => (position -= target.weight) < 0);
}

function request(targets, timeout) {
  const target = pick(targets);
  const response = http.request(target.method, base + target.path, target.body, { headers: target.headers, timeout, redirects: 0 });
  const c = target.checks;
  check(response, {
    right: (r) => (c.statuses.length ? c.statuses.includes(r.status) : r.status >= 200 && r.status < 400)
      && (c.contains === null || (r.body || '').includes(c.contains))
      && (c.lacks === null || !(r.body || '').includes(c.lacks))
      && (c.matches === null || new RegExp(c.matches).test(r.body || ''))
      && Object.entries(c.headers).every(([name, value]) =>
        Object.entries(r.headers).some(([n, v]) => n.toLowerCase() === name && v.includes(value))),
  });
}

";

/// A scenario, and its duration.
fn scenario(load: &LoadPlan) -> (Value, Duration) {
    let seconds = |length: Duration| format!("{}ms", length.as_millis());
    match &load.pace {
        Pace::Open { schedule, connections } => {
            let scenario = json!({ "executor": "ramping-arrival-rate", "startRate": first_rate(schedule), "timeUnit": "1s",
                "preAllocatedVUs": (*connections).min(100), "maxVUs": connections, "stages": stages(schedule) });
            (scenario, schedule.length())
        }
        Pace::Closed { connections, length: Some(length), requests: None } => {
            (json!({ "executor": "constant-vus", "vus": connections, "duration": seconds(*length) }), *length)
        }
        Pace::Closed { connections, length, requests } => {
            let iterations = requests.unwrap_or(1).max(u64::from(*connections));
            let longest = length.map_or(LONGEST.to_owned(), seconds);
            let scenario = json!({ "executor": "shared-iterations", "vus": connections, "iterations": iterations,
                "maxDuration": longest });
            (scenario, length.unwrap_or(Duration::from_secs(3600)))
        }
    }
}

fn first_rate(schedule: &Schedule) -> u64 {
    match schedule.parts().first() {
        Some(Part::Line { from, .. }) => from.round() as u64,
        _ => 0,
    }
}

/// k6 ramps from the rate before to the target: a jump is a stage of no time. `once` is a second at that rate.
fn stages(schedule: &Schedule) -> Vec<Value> {
    let mut stages = Vec::new();
    for part in schedule.parts() {
        match *part {
            Part::Line { from, to, length } => {
                stages.push(json!({ "target": from.round() as u64, "duration": "0s" }));
                stages.push(json!({ "target": to.round() as u64, "duration": format!("{}ms", length.as_millis()) }));
            }
            Part::Once(requests) => {
                stages.push(json!({ "target": requests, "duration": "0s" }));
                stages.push(json!({ "target": requests, "duration": "1s" }));
            }
        }
    }
    stages
}

fn function(load: &LoadPlan) -> String {
    format!("load_{}", load.name.replace('-', "_"))
}

fn of_load(load: &LoadPlan) -> String {
    let target = |target: &Target| {
        let checks = &target.checks;
        json!({
            "method": target.method,
            "path": target.path,
            "headers": target.headers.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "body": if target.body.is_empty() { Value::Null } else { json!(String::from_utf8_lossy(&target.body)) },
            "weight": target.weight,
            "checks": {
                "statuses": checks.statuses,
                "contains": checks.contains,
                "lacks": checks.lacks,
                "matches": checks.matches.as_ref().map(|regex| regex.as_str()),
                "headers": checks.headers.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            },
        })
    };
    let targets: Vec<_> = load.targets.iter().map(target).collect();
    let (name, timeout) = (function(load), load.timeout.as_millis());
    let constant = format!("targets_of_{}", load.name.replace('-', "_"));
    format!(
        "const {constant} = {:#};\n\nexport function {name}() {{\n  request({constant}, '{timeout}ms');\n}}\n\n",
        Value::Array(targets)
    )
}

#[cfg(test)]
mod tests {
    use super::super::read::Plan;
    use super::*;
    use crate::stacks::Library;

    fn k6_title(title: &str) -> String {
        script(title, &[]).lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn each_load_is_a_scenario_with_its_requests() {
        let folder = tempfile::tempdir().unwrap();
        let lab = json!({"title": "x", "application": {"root": ".", "php": "8.2", "user": "daemon"}, "stacks": ["php-s"],
        "targets": [{"path": "/a", "method": "POST", "body": "a=b", "weight": 2, "checks": {"contains": "it's"}}, "/"],
        "loads": [
            {"name": "c-50", "connections": 50, "duration": "30s"},
            {"name": "ab", "connections": 20, "requests": 1000},
            {"name": "rate", "schedule": "line(1, 100, 60s) const(100, 540s)", "objective": "p99 < 200ms, errors < 0.1%"}
        ]});
        let plan = Plan::from_json(&lab.to_string(), folder.path(), &Library::load(None).unwrap(), false).unwrap();
        let script = script("A lab", &plan.loads);
        let options = script.split("export const options = ").nth(1).unwrap().split(";\n").next().unwrap();
        let options: Value = serde_json::from_str(options).unwrap();
        let scenarios = &options["scenarios"];
        assert_eq!(scenarios["c-50"]["executor"], "constant-vus");
        assert_eq!((&scenarios["ab"]["iterations"], &scenarios["ab"]["startTime"]), (&json!(1000), &json!("45s")));
        assert_eq!(scenarios["rate"]["startRate"], 1);
        assert_eq!(scenarios["rate"]["stages"][1], json!({"target": 100, "duration": "60000ms"}));
        assert_eq!(options["thresholds"]["http_req_duration{scenario:rate}"], json!(["p(99)<200"]));
        assert!(
            script.contains("export function load_c_50()") && script.contains("\"contains\": \"it's\""),
            "{script}"
        );
        let title = k6_title("a\rb\u{2028}c\u{2029}d\ne");
        assert_eq!(title, "// a b c d e: made by `howdah lab k6`. BASE_URL=http://127.0.0.1:8080 k6 run lab.js");
        assert!(test_run("shop", 4).contains("parallelism: 4"));
    }
}
