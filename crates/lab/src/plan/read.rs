//! lab.json becomes a [`Plan`].

use super::application::{self, Application};
use super::bars::{self, BarPlan};
use super::capacity::{self, Capacity};
use super::file::{LabFile, part};
use super::load::{self, LoadPlan};
use super::stack::{self, Source, StackPlan, is_name};
use crate::stacks::Library;
use regex::Regex;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A lab.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The title of the report.
    pub title: String,
    /// A text about the lab.
    pub description: String,
    /// The application.
    pub application: Application,
    /// The stacks.
    pub stacks: Vec<StackPlan>,
    /// The loads.
    pub loads: Vec<LoadPlan>,
    /// The number of PHP processes of stacks without their own.
    pub workers: u32,
    /// Rounds.
    pub rounds: u32,
    /// The seed of the random order and of the bootstrap.
    pub seed: u64,
    /// The cores of the load generator; empty: any.
    pub generator_cores: Vec<u32>,
    /// The cores of the stacks; empty: any.
    pub stack_cores: Vec<u32>,
    /// Threads of the load generator.
    pub threads: usize,
    /// Helpers of the application.
    pub services: Vec<Service>,
    /// Parts of bodies that are not compared.
    pub varies: Vec<Regex>,
    /// How the capacity is measured that rates in percent refer to.
    pub capacity: Option<Capacity>,
    /// Whether each run is followed by another one in which perf counts system calls and instructions.
    pub counts_events: bool,
    /// The promises of the lab.
    pub bars: Vec<BarPlan>,
    /// Whether the loads were shortened.
    pub is_quick: bool,
    /// lab.json.
    pub text: Value,
}

/// A helper of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its command; templates with `port`, `folder` (its own) and `lab` (that of lab.json).
    pub command: Vec<String>,
    /// A command that is run before its start.
    pub prepare: Vec<String>,
    /// How to install it.
    pub install: String,
    /// The folder of lab.json.
    pub lab: PathBuf,
}

const DEFAULT_ROUNDS: u32 = 5;
const QUICK_ROUNDS: u32 = 3;
const MAX_ROUNDS: u32 = 1000;

// === impl Plan ===

impl Plan {
    /// Reads lab.json.
    ///
    /// # Errors
    /// The message has the file and the path of the wrong value in it.
    pub fn read(path: &Path, library: &Library, is_quick: bool) -> Result<Plan, String> {
        let text = fs::read_to_string(path).map_err(|error| {
            format!("{}; `howdah lab init` writes a lab.json for an application", crate::reason::at(path, &error))
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Plan::from_json(&text, folder, library, is_quick).map_err(|reason| format!("{}: {reason}", path.display()))
    }

    /// Reads the text of a lab.json in this folder.
    ///
    /// # Errors
    /// The message begins with the path of the wrong value.
    pub fn from_json(text: &str, folder: &Path, library: &Library, is_quick: bool) -> Result<Plan, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let file: LabFile = part(&value)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let workers = file.workers.unwrap_or(cores);
        if workers == 0 {
            return Err("workers: at least 1".to_owned());
        }
        let rounds = match file.rounds {
            Some(rounds) if is_quick => file.quick.rounds.unwrap_or(rounds.min(QUICK_ROUNDS)),
            None if is_quick => file.quick.rounds.unwrap_or(QUICK_ROUNDS),
            rounds => rounds.unwrap_or(DEFAULT_ROUNDS),
        };
        if !(1..=MAX_ROUNDS).contains(&rounds) {
            return Err(format!("rounds: a number from 1 to {MAX_ROUNDS}"));
        }
        let application = application::read(&file.application, folder)?;
        let stacks = stack::read(&file.stacks, library, &application, workers, folder)?;
        let quick = is_quick.then_some(&file.quick);
        let loads = load::read(&file.loads, (file.targets.as_ref(), &file.checks), quick, folder)?;
        let varies: Result<Vec<_>, _> = file.varies.iter().map(|pattern| Regex::new(pattern)).collect();
        let service = |(index, service): (usize, &super::file::ServiceFile)| {
            if !is_name(&service.name) || service.command.is_empty() {
                return Err(format!("services[{index}]: a name of a to z, 0 to 9 and -, and a command"));
            }
            Ok(Service {
                name: service.name.clone(),
                command: service.command.clone(),
                prepare: service.prepare.clone(),
                install: service.install.clone(),
                lab: folder.canonicalize().unwrap_or_else(|_| folder.to_owned()),
            })
        };
        let names: Vec<_> = stacks.iter().map(|stack| stack.name.as_str()).collect();
        let capacity = capacity::read(file.capacity.as_ref(), &loads, &names, &file.checks, folder)?;
        let bars = bars::read(&file.bars, &loads, &names)?;
        let services = file.services.iter().enumerate().map(service).collect::<Result<_, String>>()?;
        Ok(Plan {
            title: file.title,
            description: file.description,
            application,
            stacks,
            loads,
            workers,
            rounds,
            seed: file.seed.unwrap_or(1),
            generator_cores: file.cores.generator,
            stack_cores: file.cores.stacks,
            threads: file.threads.unwrap_or(1).max(1),
            services,
            capacity,
            counts_events: file.counts,
            bars,
            varies: varies.map_err(|error| format!("varies: {error}"))?,
            is_quick,
            text: value,
        })
    }

    /// Keeps these stacks only, in this order.
    ///
    /// # Errors
    /// There is no such stack; the message names all.
    pub fn select(&mut self, names: &[String]) -> Result<(), String> {
        let all: Vec<_> = self.stacks.iter().map(|stack| stack.name.clone()).collect();
        let find = |name: &String| {
            let found = self.stacks.iter().find(|stack| &stack.name == name).cloned();
            found.ok_or_else(|| format!("--stacks: the lab has no stack {name:?}; it has {}", all.join(", ")))
        };
        self.stacks = names.iter().map(find).collect::<Result<_, _>>()?;
        self.bars = bars::of_stacks(std::mem::take(&mut self.bars), names);
        Ok(())
    }

    /// Keeps these loads only, in this order.
    ///
    /// # Errors
    /// There is no such load; the message names all.
    pub fn select_loads(&mut self, names: &[String]) -> Result<(), String> {
        let all: Vec<_> = self.loads.iter().map(|load| load.name.clone()).collect();
        let find = |name: &String| {
            let found = self.loads.iter().find(|load| &load.name == name).cloned();
            found.ok_or_else(|| format!("--loads: the lab has no load {name:?}; it has {}", all.join(", ")))
        };
        self.loads = names.iter().map(find).collect::<Result<_, _>>()?;
        self.bars.retain(|bar| bar.question.loads().all(|load| names.contains(load)));
        Ok(())
    }

    /// Changes the number of PHP processes of all stacks without their own.
    pub fn set_workers(&mut self, workers: u32) {
        self.workers = workers;
        for stack in self.stacks.iter_mut().filter(|stack| !stack.has_own_workers) {
            if let Source::Started(spec) = &mut stack.source {
                spec.workers = workers;
            }
        }
    }

    /// Gives all loads this time. Loads that end with a number of requests stay.
    pub fn set_duration(&mut self, length: Duration) {
        self.loads = self.loads.iter().map(|load| load.lasting(length)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Pace;
    use serde_json::json;

    fn read(change: impl FnOnce(&mut Value)) -> Result<Plan, String> {
        read_as(change, false)
    }

    fn read_as(change: impl FnOnce(&mut Value), is_quick: bool) -> Result<Plan, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("index.php"), "<?php").unwrap();
        let mut lab = json!({
            "title": "A test",
            "application": { "root": ".", "front_controller": "index.php", "php": "8.2", "user": "daemon" },
            "stacks": ["howdah", { "name": "fpm-tcp", "stack": "nginx-fpm", "settings": { "socket": "tcp", "pools": 4 } }],
            "loads": [
                { "name": "c50", "connections": 50, "duration": "30s" },
                { "name": "ab", "connections": 20, "requests": 10000, "keep_alive": false },
                { "name": "rate", "schedule": "line(1, 100, 60s) const(100, 540s)", "objective": "p99 < 200ms, errors < 0.1%" }
            ],
            "targets": ["/", { "path": "/form", "method": "POST", "body": "a=b", "weight": 3, "checks": { "status": [302] } }],
            "checks": { "contains": "hello" }
        });
        change(&mut lab);
        Plan::from_json(&lab.to_string(), folder.path(), &Library::load(None).unwrap(), is_quick)
    }

    #[test]
    fn a_choice_of_stacks_and_loads_keeps_the_bars_that_they_can_meet() {
        let mut plan = read(|lab| {
            lab["bars"] = json!([
                { "loads": ["c50", "ab"], "stack": "howdah", "figure": "requests_per_second", "than": ["fpm-tcp"], "at_least": 2 },
                { "loads": ["c50"], "stack": "howdah", "figure": "failed", "at_most": 0 },
                { "loads": ["ab"], "stack": "howdah", "figure": "latency_p99", "than_load": "c50", "at_most": 1 },
            ]);
        })
        .unwrap();
        let promises = |plan: &Plan| plan.bars.iter().map(|bar| bar.question.to_string()).collect::<Vec<_>>();
        assert_eq!(promises(&plan)[0], "c50: howdah: requests_per_second at least 2 × fpm-tcp");
        assert_eq!(promises(&plan)[3], "ab: howdah: latency_p99 at most 1 × that under c50");
        let mut ours = plan.clone();
        ours.select(&["howdah".to_owned()]).unwrap();
        assert_eq!(promises(&ours).len(), 2, "nothing to compare with: {:?}", promises(&ours));
        plan.select_loads(&["c50".to_owned()]).unwrap();
        assert_eq!(promises(&plan).len(), 2, "{:?}", promises(&plan));
        assert!(plan.select_loads(&["x".to_owned()]).unwrap_err().contains("it has c50"));
        plan.set_duration(Duration::from_secs(3));
        assert!(matches!(plan.loads[0].pace, Pace::Closed { length: Some(length), .. } if length.as_secs() == 3));
        plan.set_workers(7);
        let workers = plan.stacks.iter().filter_map(|stack| match &stack.source {
            Source::Started(spec) => Some(spec.workers),
            _ => None,
        });
        assert_eq!(workers.collect::<Vec<_>>(), [7, 7]);
    }

    #[test]
    fn a_lab_is_read() {
        let plan = read(|_| {}).unwrap();
        assert_eq!((plan.rounds, plan.stacks.len(), plan.loads.len()), (5, 2, 3));
        assert_eq!(plan.stacks[1].label, "nginx + PHP-FPM, static, tcp, 4 pools");
        let Source::Started(spec) = &plan.stacks[1].source else { panic!("{:?}", plan.stacks[1]) };
        assert_eq!((spec.settings["socket"].as_str(), spec.settings["backlog"].as_str()), ("tcp", "511"));
        let targets = &plan.loads[0].targets;
        assert_eq!(targets[0].checks.contains.as_deref(), Some("hello"));
        assert_eq!((targets[1].checks.statuses.as_slice(), targets[1].weight), (&[302][..], 3));
        assert_eq!(plan.loads[1].label, "20 connections, 10000 requests, a new connection for each request");
        assert_eq!(plan.loads[2].objective.unwrap().error_share, 0.001);
    }

    #[test]
    fn a_quick_lab_has_the_same_rates_in_less_time() {
        let plan = read_as(|_| {}, true).unwrap();
        assert_eq!(plan.rounds, 3);
        assert!(matches!(&plan.loads[0].pace, Pace::Closed { length: Some(length), .. } if length.as_secs() == 5));
        assert!(matches!(&plan.loads[1].pace, Pace::Closed { requests: Some(1000), .. }));
        assert_eq!(plan.loads[2].label, "line(1, 100, 500ms) const(100, 4500ms)");
    }

    #[test]
    fn a_stack_without_its_script_is_kept_as_unusable() {
        let plan = read(|lab| lab["stacks"] = json!(["howdah", "howdah-worker"])).unwrap();
        assert!(
            matches!(&plan.stacks[1].source, Source::Unusable { remedy, .. } if remedy.contains("application/scripts/howdah-worker"))
        );
    }

    #[test]
    fn other_stacks_are_commands_and_urls() {
        let plan = read(|lab| {
            lab["stacks"] = json!([
                { "name": "mine", "command": ["php", "-S", "127.0.0.1:{{ port }}"] },
                { "name": "other", "url": "http://127.0.0.1:8080" }
            ]);
        });
        let plan = plan.unwrap();
        assert!(matches!(&plan.stacks[0].source, Source::Started(spec) if spec.definition.name == "custom"));
        assert!(matches!(&plan.stacks[1].source, Source::Running { endpoint, .. } if endpoint.is_local()));
    }

    #[test]
    fn the_examples_are_labs() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/labs");
        let library = Library::load(None).unwrap();
        let folders = fs::read_dir(examples).unwrap().flatten().map(|entry| entry.path().join("lab.json"));
        let labs: Vec<_> = folders.filter(|path| path.is_file()).collect();
        assert_eq!(labs.len(), 5);
        for path in labs {
            for is_quick in [false, true] {
                let plan = Plan::read(&path, &library, is_quick).unwrap_or_else(|reason| panic!("{reason}"));
                assert!(plan.stacks.len() > 1, "{}", path.display());
            }
        }
    }

    #[test]
    fn a_selection_keeps_its_order() {
        let mut plan = read(|_| {}).unwrap();
        plan.select(&["fpm-tcp".to_owned()]).unwrap();
        assert_eq!(plan.stacks.len(), 1);
        assert!(plan.select(&["x".to_owned()]).unwrap_err().contains("fpm-tcp"));
    }

    #[test]
    fn wrong_values_are_named_by_their_path() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 31] = [
            (|lab| lab["stacks"][1]["setings"] = json!({}), "stacks[1]: setings: unknown field"),
            (|lab| lab["targets"][1]["weigth"] = json!(2), "loads[0]/targets[1]/weigth: unknown field"),
            (|lab| lab["titel"] = json!("x"), "unknown field `titel`"),
            (|lab| lab["loads"][0]["conections"] = json!(5), "loads[0].conections: unknown field"),
            (|lab| lab["workers"] = json!("two"), "workers: invalid type"),
            (|lab| lab["workers"] = json!(0), "workers: at least 1"),
            (|lab| lab["rounds"] = json!(0), "rounds: a number from 1"),
            (|lab| lab["application"]["root"] = json!("/does/not/exist"), "application/root: "),
            (|lab| lab["application"]["front_controller"] = json!("app.php"), "application/front_controller: "),
            (|lab| lab["application"]["php"] = json!("eight"), "application/php: "),
            (|lab| lab["stacks"] = json!([]), "stacks: an empty list"),
            (|lab| lab["stacks"] = json!(["ngnix-fpm"]), "stacks[0]: stack: no stack"),
            (|lab| lab["stacks"][1]["settings"]["socket"] = json!("udp"), "stacks[1]: settings/socket: "),
            (
                |lab| lab["stacks"][1]["settings"]["sokcet"] = json!("tcp"),
                "stacks[1]: settings/sokcet: no such setting",
            ),
            (|lab| lab["stacks"][1]["settings"]["pools"] = json!("many"), "stacks[1]: settings/pools: "),
            (|lab| lab["stacks"][1]["name"] = json!("howdah"), "stacks[1]: "),
            (|lab| lab["loads"] = json!([]), "loads: an empty list"),
            (|lab| lab["loads"][2]["schedule"] = json!("cosnt(1, 5s)"), "loads[2]/schedule: "),
            (|lab| lab["loads"][0]["duration"] = json!("long"), "loads[0]/duration: "),
            (|lab| lab["loads"][0] = json!({"name": "x"}), "loads[0]/schedule: write a schedule"),
            (|lab| lab["loads"][0]["autostop"] = json!(["errors"]), "loads[0]/autostop: "),
            (|lab| lab["targets"] = json!(["index.php"]), "loads[0]/targets[0]/path: "),
            (|lab| lab["checks"]["matches"] = json!("("), "checks/matches: "),
            (|lab| lab["varies"] = json!(["("]), "varies: "),
            (
                |lab| lab["loads"][2]["schedule"] = json!("const(60%, 3s)"),
                "capacity: the load rate has rates in percent",
            ),
            (
                |lab| lab["capacity"] = json!({"targets": ["/"], "connections": 8, "duration": "3s", "stack": "x"}),
                "capacity/stack: ",
            ),
            (
                |lab| lab["capacity"] = json!({"targets": ["/"], "connections": 0, "duration": "3s"}),
                "capacity: connections",
            ),
            (
                |lab| lab["bars"] = json!([{"loads": ["x"], "stack": "howdah", "figure": "failed", "at_most": 0}]),
                "bars[0]/loads: ",
            ),
            (
                |lab| lab["bars"] = json!([{"loads": ["c50"], "stack": "x", "figure": "failed", "at_most": 0}]),
                "bars[0]/stack: ",
            ),
            (
                |lab| lab["bars"] = json!([{"loads": ["c50"], "stack": "howdah", "figure": "p99", "at_most": 0}]),
                "bars[0]/figure: ",
            ),
            (
                |lab| lab["bars"] = json!([{"loads": ["c50"], "stack": "howdah", "figure": "failed"}]),
                "bars[0]/at_least: ",
            ),
        ];
        for (change, expected) in cases {
            let error = read(change).unwrap_err();
            let is_duplicate = expected == "stacks[1]: " && error.contains("stacks[1]/name");
            assert!(error.contains(expected) || is_duplicate, "{expected:?}: {error}");
        }
    }
}
