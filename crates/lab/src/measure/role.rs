//! Which process of a stack has which job: `front` reads the clients' connections, `php` runs PHP.
//!
//! A manifest names the processes of a role by a regular expression of their titles, or as `@started` (those that the lab
//! started) or `@forked` (all others). A process has at most one role: the first that fits.

use super::process_tree::Process;
use regex::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::str::FromStr;

/// A role.
#[derive(Clone, Debug)]
pub struct Role {
    /// `front`, `php`
    pub name: String,
    /// Its processes.
    pub processes: Processes,
}

/// The processes of a role.
#[derive(Clone, Debug)]
pub enum Processes {
    /// The processes whose title matches.
    Titled(Regex),
    /// The processes that the lab started.
    Started,
    /// The descendants of those.
    Forked,
}

/// The role of a process; `None` for one without. `roots` are the processes that the lab started.
pub fn of<'a>(roles: &'a [Role], roots: &[u32], process: &Process) -> Option<&'a Role> {
    if roles.is_empty() {
        return None;
    }
    let title = title(process.pid);
    roles.iter().find(|role| match &role.processes {
        Processes::Titled(pattern) => pattern.is_match(&title),
        Processes::Started => roots.contains(&process.pid),
        Processes::Forked => !roots.contains(&process.pid),
    })
}

/// The pids of each role.
pub fn pids(roles: &[Role], roots: &[u32]) -> BTreeMap<String, Vec<u32>> {
    let mut pids: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for process in super::process_tree::tree(roots) {
        if let Some(role) = of(roles, roots, &process) {
            pids.entry(role.name.clone()).or_default().push(process.pid);
        }
    }
    pids
}

/// The command line of a process, or the title that it has set.
fn title(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}

impl FromStr for Processes {
    type Err = String;

    fn from_str(text: &str) -> Result<Processes, String> {
        Ok(match text {
            "@started" => Processes::Started,
            "@forked" => Processes::Forked,
            _ => Processes::Titled(Regex::new(text).map_err(|error| error.to_string())?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn processes_have_the_first_role_that_fits() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let roots = [child.id()];
        let role = |name: &str, processes: &str| Role { name: name.into(), processes: processes.parse().unwrap() };
        let titled = [role("php", "^sleep 60$"), role("front", "@started")];
        // A forked process has its parent's title until it executes its own program.
        let by_title = loop {
            let by_title = pids(&titled, &roots);
            if by_title.contains_key("php") {
                break by_title;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let by_birth = pids(&[role("php", "@forked")], &roots);
        let sleep = by_title["php"].clone();
        let mut kill = Command::new("kill").args(sleep.iter().map(ToString::to_string)).spawn().unwrap();
        kill.wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((sleep.len(), &by_title["front"]), (1, &vec![child.id()]));
        assert_eq!(by_birth, BTreeMap::from([("php".to_owned(), sleep)]));
        assert!("(".parse::<Processes>().is_err());
    }
}
