//! `applications`: the applications that answer requests, each of a type.

pub(crate) mod fastcgi;
pub(crate) mod isolation;
pub(crate) mod limits;
pub(crate) mod php;
pub(crate) mod process_settings;
pub(crate) mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::application::fastcgi::{self as fastcgi_application, FastCgiApplication};
use crate::application::php::PhpApplication;
use crate::application::php::reload::Reload;
use crate::application::php::send_file::SendFile;
use crate::application::process_settings::ProcessSettings;
use crate::application::program::http::{self as http_application, HttpApplication};
use crate::application::program::roadrunner::{self as roadrunner_application, RoadRunnerApplication};
use crate::error::Error;
use crate::read::node::Node;
use crate::read::scope::Scope;

/// An application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Application {
    /// `"type": "php"`: scripts, which howdah runs itself.
    Php(Box<PhpApplication>),
    /// `"type": "http"`: a program that is an HTTP server.
    Http(Box<HttpApplication>),
    /// `"type": "roadrunner"`: a program that is a worker of RoadRunner.
    RoadRunner(Box<RoadRunnerApplication>),
    /// `"type": "fastcgi"`: scripts, which a FastCGI server runs that howdah does not start.
    FastCgi(Box<FastCgiApplication>),
}

// === impl Application ===

impl Application {
    /// The PHP application; `None` if it is of another type.
    pub fn as_php(&self) -> Option<&PhpApplication> {
        match self {
            Self::Php(application) => Some(application),
            Self::Http(_) | Self::RoadRunner(_) | Self::FastCgi(_) => None,
        }
    }

    /// The HTTP application; `None` if it is of another type.
    pub fn as_http(&self) -> Option<&HttpApplication> {
        match self {
            Self::Http(application) => Some(application),
            Self::Php(_) | Self::RoadRunner(_) | Self::FastCgi(_) => None,
        }
    }

    /// The RoadRunner application; `None` if it is of another type.
    pub fn as_roadrunner(&self) -> Option<&RoadRunnerApplication> {
        match self {
            Self::RoadRunner(application) => Some(application),
            Self::Php(_) | Self::Http(_) | Self::FastCgi(_) => None,
        }
    }

    /// The FastCGI application; `None` if it is of another type.
    pub fn as_fastcgi(&self) -> Option<&FastCgiApplication> {
        match self {
            Self::FastCgi(application) => Some(application),
            Self::Php(_) | Self::Http(_) | Self::RoadRunner(_) => None,
        }
    }

    /// The folders whose files its scripts may have howdah send.
    pub fn send_file(&self) -> &SendFile {
        match self {
            Self::Php(application) => &application.send_file,
            Self::FastCgi(application) => &application.send_file,
            Self::Http(application) => &application.program.send_file,
            Self::RoadRunner(application) => &application.program.send_file,
        }
    }

    /// The files to which its standard output and standard error are appended; `None`: howdah's log.
    pub fn outputs(&self) -> [Option<&Path>; 2] {
        let Some(settings) = self.process_settings() else { return [None, None] };
        [settings.stdout.as_deref(), settings.stderr.as_deref()]
    }

    /// When howdah starts a new generation on its own. Other programs have no links that howdah follows.
    pub fn reload(&self) -> Reload {
        self.as_php().map_or(Reload::Never, |application| application.reload)
    }

    /// `None` if howdah starts no processes for it.
    fn process_settings(&self) -> Option<&ProcessSettings> {
        match self {
            Self::Php(application) => Some(&application.process_settings),
            Self::Http(application) => Some(&application.program.process_settings),
            Self::RoadRunner(application) => Some(&application.program.process_settings),
            Self::FastCgi(_) => None,
        }
    }

    fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let is = |kind| node.member("type").is_some_and(|node| node.is_string_of(kind));
        if is(http_application::TYPE) {
            return HttpApplication::read(node).map(Box::new).map(Self::Http);
        }
        if is(roadrunner_application::TYPE) {
            return RoadRunnerApplication::read(node).map(Box::new).map(Self::RoadRunner);
        }
        if is(fastcgi_application::TYPE) {
            return FastCgiApplication::read(node).map(Box::new).map(Self::FastCgi);
        }
        PhpApplication::read(node, scope).map(Box::new).map(Self::Php)
    }
}

/// The names of the applications with `"drain": true`: they finish their requests and get no others.
pub(crate) fn read_drained(node: &Node<'_>) -> Result<BTreeSet<String>, Error> {
    let mut drained = BTreeSet::new();
    for (name, application) in node.named()? {
        if let Some(drains) = application.member("drain")
            && drains.boolean()?
        {
            drained.insert(name.to_owned());
        }
    }
    Ok(drained)
}

/// Reads all applications.
pub(crate) fn read_all(node: &Node<'_>, scope: &Scope<'_>) -> Result<BTreeMap<String, Application>, Error> {
    node.named()?.map(|(name, node)| Ok((name.to_owned(), Application::read(&node, scope)?))).collect()
}

#[cfg(test)]
mod tests {
    use crate::Configuration;

    #[test]
    fn each_type_can_be_drained() {
        let text = |drain: &str| {
            format!(
                r#"{{"applications": {{
                    "a": {{"type": "php", "root": "/srv", {drain}}},
                    "b": {{"type": "http", "command": "x", {drain}}},
                    "c": {{"type": "roadrunner", "command": "x", {drain}}},
                    "d": {{"type": "fastcgi", "address": "unix:/x", "root": "/srv", {drain}}}}}}}"#
            )
        };
        let drained =
            |drain| Configuration::parse(&text(drain)).map(|found| found.drained.into_iter().collect::<String>());
        assert_eq!(drained(r#""drain": true"#), Ok("abcd".to_owned()));
        assert_eq!(drained(r#""drain": false"#), Ok(String::new()));
        let wrong = drained(r#""drain": "yes""#).expect_err("no boolean");
        assert!(wrong.detail.contains("applications/a/drain: expected true or false"), "{wrong:?}");
    }
}
