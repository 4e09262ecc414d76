//! Plans an application of any type: checks its options against this machine.

use crate::plan::defaults::{Defaults, Strictness};
use crate::plan::fastcgi::{self, FastCgiPlan};
use crate::plan::php;
use crate::plan::php::application::PhpPlan;
use crate::plan::program::{self, ProgramPlan};
use howdah_config::Application;
use std::path::PathBuf;

/// Everything that a generation needs, checked against the machine.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Of a PHP application.
    Php(Box<PhpPlan>),
    /// Of an application that is another program.
    Program(Box<ProgramPlan>),
    /// Of an application that another server runs.
    FastCgi(Box<FastCgiPlan>),
}

// === impl Plan ===

impl Plan {
    /// The application's name.
    pub fn name(&self) -> &str {
        match self {
            Plan::Php(plan) => &plan.name,
            Plan::Program(plan) => &plan.name,
            Plan::FastCgi(plan) => &plan.name,
        }
    }

    /// Notes scripts that were written since the last generation. Other programs have none.
    pub fn set_written(&mut self, written: Vec<PathBuf>) {
        if let Plan::Php(plan) = self {
            plan.written = written;
        }
    }
}

/// Plans an application.
///
/// # Errors
/// With the path of the option and what to do.
pub fn plan(
    name: &str,
    application: &Application,
    defaults: &Defaults,
    strictness: Strictness,
) -> Result<Plan, String> {
    match application {
        Application::Php(application) => {
            php::application::plan(name, application, defaults, strictness).map(Box::new).map(Plan::Php)
        }
        Application::Http(application) => {
            program::plan_http(name, application, defaults).map(Box::new).map(Plan::Program)
        }
        Application::RoadRunner(application) => {
            program::plan_roadrunner(name, application, defaults).map(Box::new).map(Plan::Program)
        }
        Application::FastCgi(application) => {
            fastcgi::plan(name, application, defaults).map(Box::new).map(Plan::FastCgi)
        }
    }
}
