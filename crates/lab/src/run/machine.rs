//! The machine, and whether it is fit for the lab: open files, backlogs, ports, other load.

use crate::load::Pace;
use crate::plan::Plan;
use crate::results::{Check, CheckState, Machine};
use crate::stacks::process;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::process::Stdio;

/// Descriptors of the generator beside its connections.
const OTHER_FILES: u64 = 100;
/// Load of other programs, in cores, above which figures are not trusted.
const OTHER_LOAD: f64 = 0.3;

/// Describes the machine, and raises the limit of open files as far as the system allows.
pub fn describe() -> Machine {
    raise_open_files();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let meminfo = read("/proc/meminfo");
    let memory_kib =
        meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    let release = read("/etc/os-release");
    let system = release.lines().find_map(|line| Some(line.strip_prefix("PRETTY_NAME=")?.trim_matches('"').to_owned()));
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let ports = read("/proc/sys/net/ipv4/ip_local_port_range");
    let mut ports = ports.split_whitespace().filter_map(|port| port.parse::<u32>().ok());
    let (first, last) = (ports.next().unwrap_or(32_768), ports.next().unwrap_or(60_999));
    Machine {
        cpu: field("model name").or_else(|| field("Hardware")).unwrap_or_else(|| "unknown".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from) as u32,
        governor: Some(governor.trim().to_owned()).filter(|governor| !governor.is_empty()),
        memory_bytes: memory_kib.unwrap_or(0_u64) * 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        system: system.unwrap_or_else(|| "unknown".to_owned()),
        is_virtual: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        load_average: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        somaxconn: read("/proc/sys/net/core/somaxconn").trim().parse().unwrap_or(4096),
        open_files: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        local_ports: last.saturating_sub(first) + 1,
    }
}

/// Checks whether the machine is fit for the loads of a plan.
pub fn check(machine: &Machine, plan: &Plan) -> Vec<Check> {
    let check = |name: &str, state: CheckState, finding: String| Check { name: name.to_owned(), state, finding };
    let mut checks = Vec::new();
    let connections = plan.loads.iter().map(|load| match load.pace {
        Pace::Open { connections, .. } | Pace::Closed { connections, .. } => u64::from(connections),
    });
    let connections = connections.max().unwrap_or(0);
    let needed = 2 * connections + OTHER_FILES;
    checks.push(if machine.open_files < needed {
        let text = format!("{connections} connections need {needed} open files, the limit is {}", machine.open_files);
        check("open files", CheckState::Failed, format!("{text}: ulimit -n {needed}"))
    } else {
        check("open files", CheckState::Passed, format!("up to {} open files", machine.open_files))
    });
    checks.push(if u64::from(machine.somaxconn) < connections {
        let text = format!("{connections} connections at a time, but backlogs are limited to {}", machine.somaxconn);
        check("backlog", CheckState::Warning, format!("{text}: sysctl net.core.somaxconn={connections}"))
    } else {
        check("backlog", CheckState::Passed, format!("net.core.somaxconn is {}", machine.somaxconn))
    });
    if u64::from(machine.local_ports) < connections {
        let text = format!("{connections} connections, but only {} local ports", machine.local_ports);
        checks.push(check("ports", CheckState::Failed, format!("{text}: sysctl net.ipv4.ip_local_port_range")));
    }
    let wrong = plan.generator_cores.iter().chain(&plan.stack_cores).find(|core| **core >= machine.cores);
    if let Some(core) = wrong {
        let finding = format!("there is no core {core}; the machine has {} cores, counted from 0", machine.cores);
        checks.push(check("cores", CheckState::Failed, finding));
    } else if plan.generator_cores.is_empty() || plan.stack_cores.is_empty() {
        let finding =
            "load generator and stacks share the cores; with \"cores\" in lab.json they have their own".to_owned();
        checks.push(check("cores", CheckState::Warning, finding));
    } else if plan.generator_cores.iter().any(|core| plan.stack_cores.contains(core)) {
        let finding = "load generator and stacks share a core".to_owned();
        checks.push(check("cores", CheckState::Warning, finding));
    } else {
        checks.push(check("cores", CheckState::Passed, "load generator and stacks have their own cores".to_owned()));
    }
    checks.push(if machine.load_average > OTHER_LOAD {
        let text = format!("the load average is {:.2}: other programs disturb the measurement", machine.load_average);
        check("idle machine", CheckState::Warning, text)
    } else {
        check("idle machine", CheckState::Passed, format!("the load average is {:.2}", machine.load_average))
    });
    checks
}

/// Whether PHP's user can read the application; `None` if PHP runs as the lab's user.
pub fn check_application(plan: &Plan) -> Option<Check> {
    let user = plan.application.user.as_ref()?;
    let root = &plan.application.root;
    let words = ["sh", "-c", "test -r \"$0\" && test -x \"$0\"", root.to_str()?].map(str::to_owned);
    let mut command = process::command(Some(user), &words).ok()?;
    let is_readable = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?.success();
    let (state, finding) = match is_readable {
        true => (CheckState::Passed, format!("{user}, PHP's user, can read {}", root.display())),
        false => (
            CheckState::Failed,
            format!(
                "{user}, PHP's user, cannot read {}: change the permissions of it and of the folders above it, copy it to \
                 another place, or choose another application/user in lab.json",
                root.display()
            ),
        ),
    };
    Some(Check { name: "application".to_owned(), state, finding })
}

/// Raises the limit of open files as far as the system allows.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // The supervisor of a stack may raise it further, for itself.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::Library;
    use serde_json::json;

    fn plan(cores: serde_json::Value) -> Plan {
        let folder = tempfile::tempdir().unwrap();
        let lab = json!({"title": "x", "application": {"root": ".", "php": "8.2", "user": "daemon"}, "stacks": ["php-s"],
            "loads": [{"name": "a", "connections": 3000, "duration": "1s"}], "cores": cores});
        Plan::from_json(&lab.to_string(), folder.path(), &Library::load(None).unwrap(), false).unwrap()
    }

    #[test]
    fn this_machine_is_described() {
        let machine = describe();
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty(), "{machine:?}");
        assert!(machine.somaxconn > 0 && machine.open_files > 0 && machine.local_ports > 0, "{machine:?}");
    }

    #[test]
    fn an_unfit_machine_is_named_with_a_remedy() {
        let fit = Machine {
            cores: 2,
            open_files: 100_000,
            somaxconn: 4096,
            local_ports: 28_000,
            load_average: 0.1,
            ..describe()
        };
        let state = |machine: &Machine, cores: serde_json::Value, name: &str| {
            let checks = check(machine, &plan(cores));
            let found = checks.into_iter().find(|check| check.name == name);
            found.map(|check| (check.state, check.finding))
        };
        let own = || json!({"generator": [0], "stacks": [1]});
        for name in ["open files", "backlog", "cores", "idle machine"] {
            assert_eq!(state(&fit, own(), name).unwrap().0, CheckState::Passed, "{name}");
        }
        for (machine, cores, name, expected, text) in [
            (Machine { open_files: 1024, ..fit.clone() }, own(), "open files", CheckState::Failed, "ulimit -n 6100"),
            (Machine { somaxconn: 128, ..fit.clone() }, own(), "backlog", CheckState::Warning, "somaxconn=3000"),
            (Machine { local_ports: 100, ..fit.clone() }, own(), "ports", CheckState::Failed, "ip_local_port_range"),
            (
                Machine { load_average: 3.0, ..fit.clone() },
                own(),
                "idle machine",
                CheckState::Warning,
                "other programs",
            ),
            (fit.clone(), json!({"generator": [0], "stacks": [7]}), "cores", CheckState::Failed, "no core 7"),
            (fit.clone(), json!({"generator": [0], "stacks": [0]}), "cores", CheckState::Warning, "share a core"),
            (fit.clone(), json!({}), "cores", CheckState::Warning, "share the cores"),
        ] {
            let (found, finding) = state(&machine, cores, name).unwrap();
            assert_eq!(found, expected, "{name}");
            assert!(finding.contains(text), "{finding}");
        }
    }
}
