//! Plans a FastCGI application: checks that howdah sees its scripts. Whether its server listens is no part of the plan: it
//! may be started later, and requests wait for it.

use crate::os::identity::UserAccount;
use crate::plan::defaults::{Defaults, missing};
use crate::plan::php::application::Release;
use crate::plan::sent_folders;
use howdah_config::{Endpoint, FastCgiApplication, FastCgiLimits, FastCgiTarget};
use howdah_protocol::messages::generation_paths::{FixedScript, TargetPaths};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that a generation of a FastCGI application needs.
#[derive(Clone, Debug)]
pub struct FastCgiPlan {
    /// The application's name.
    pub name: String,
    /// Where its server listens.
    pub addresses: Vec<Endpoint>,
    /// The scripts, with the folder in which the server has them if that is another one.
    pub targets: Vec<(TargetPaths, Option<PathBuf>)>,
    /// Further variables of each request.
    pub parameters: BTreeMap<String, String>,
    /// The most connections to each address.
    pub connections: u16,
    /// How long a connection may wait for another request.
    pub keep_alive: Duration,
    /// The limits of its requests.
    pub limits: FastCgiLimits,
    /// No process of howdah runs its code.
    pub account: UserAccount,
    /// howdah follows no links of it.
    pub release: Release,
}

/// Plans a FastCGI application.
///
/// # Errors
/// With the path of the option and what to do.
pub fn plan(name: &str, application: &FastCgiApplication, defaults: &Defaults) -> Result<FastCgiPlan, String> {
    let at = |option: &str, problem: String| defaults.at(name, option, problem);
    for (target, FastCgiTarget { scripts, .. }) in &application.targets {
        // The file of a fixed script is looked up by the server alone.
        if scripts.script.is_none() && !scripts.root.is_dir() {
            let option = target.as_ref().map_or("/root".to_owned(), |target| format!("/targets/{target}/root"));
            let advice = "; if only the FastCGI server has the scripts, name one as \"script\"";
            return Err(at(&option, missing(&scripts.root, "folder") + advice));
        }
    }
    if let Some((option, problem)) = sent_folders::problem(&application.send_file) {
        return Err(at(&option, problem));
    }
    Ok(FastCgiPlan {
        name: name.to_owned(),
        addresses: application.addresses.clone(),
        targets: application
            .targets
            .iter()
            .map(|(name, target)| (paths(name, target), target.remote_root.clone()))
            .collect(),
        parameters: application.parameters.clone(),
        connections: application.connections,
        keep_alive: application.keep_alive,
        limits: application.limits,
        account: UserAccount::default(),
        release: Release::default(),
    })
}

/// The paths as they are configured. Links are the server's matter, as behind nginx: its processes live longer than a
/// release.
fn paths(name: &Option<String>, FastCgiTarget { scripts, .. }: &FastCgiTarget) -> TargetPaths {
    let fixed = |script: &String| FixedScript { name: script.clone(), filename: scripts.root.join(script) };
    TargetPaths {
        name: name.clone(),
        root: scripts.root.clone(),
        script: scripts.script.as_ref().map(fixed),
        index: scripts.index.clone(),
        front_controller: scripts.front_controller.as_ref().map(fixed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;

    fn planned(options: &str) -> Result<FastCgiPlan, String> {
        let text = format!(r#"{{"applications": {{"x": {{"type": "fastcgi", "address": "unix:/none", {options}}}}}}}"#);
        let configuration = Configuration::parse(&text).expect(&text);
        let defaults =
            Defaults { account: UserAccount::default(), router: None, state_folder: None, has_configuration: true };
        plan("x", configuration.applications["x"].as_fastcgi().expect("a FastCGI application"), &defaults)
    }

    #[test]
    fn only_a_fixed_script_needs_no_folder() {
        let error = planned(r#""root": "/no/such""#).expect_err("no folder");
        let expected = "applications/x/root: \"/no/such\" does not exist; create the folder or correct the path; if only the \
                        FastCGI server has the scripts, name one as \"script\"";
        assert_eq!(error, expected);
        let plan = planned(r#""root": "/no/such", "script": "index.php", "remote_root": "/app""#).expect("a plan");
        let (target, remote) = &plan.targets[0];
        assert_eq!(target.script.as_ref().map(|script| script.filename.clone()), Some("/no/such/index.php".into()));
        assert_eq!(remote, &Some("/app".into()));
        assert!(planned(r#""targets": {"a": {"root": "/no"}}"#).expect_err("no folder").contains("x/targets/a/root: "));
    }
}
