//! The requests that the dashboard answers. Everything else is 404: this is no proxy of the control API.

use crate::commands::dashboard::access::origin::Effect;
use howdah_config::DocumentPath;
use hyper::Method;

/// A request. A `String` is the name of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Opens a session.
    LogIn,
    /// Closes the session.
    LogOut,
    /// The dashboard itself: its version, its howdah, what it may do.
    About,
    /// The present state.
    Now,
    /// The rates and marks of the last hours.
    History,
    /// The workers of an application.
    Workers(String),
    /// Its slow requests.
    Slow(String),
    /// The stack of one of its workers.
    Stack(String),
    /// Samples of its stacks.
    Profile(String),
    /// Its leaks.
    Leaks(String),
    /// Restarts it.
    Restart(String),
    /// The configuration.
    Configuration,
    /// Checks a configuration.
    CheckConfiguration,
    /// Applies a configuration.
    ApplyConfiguration,
    /// The JSON Schema of configurations.
    Schema,
    /// The certificates.
    Certificates,
    /// Drains a server of an upstream, or ends that.
    Drain,
}

/// Why there is no such call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCall {
    /// No such path.
    NotFound,
    /// The path takes another method.
    WrongMethod,
}

/// The path of [`Call::LogIn`].
pub const LOG_IN: &str = "/api/login";

// === impl Call ===

impl Call {
    /// The call with this method and path. A path that is not below `/api/` is a file's.
    ///
    /// # Errors
    /// No call has them.
    pub fn parse(method: &Method, path: &str) -> Result<Call, NoCall> {
        let path = path.strip_prefix("/api/").ok_or(NoCall::NotFound)?;
        let (expected, call) = match path {
            "login" => (Method::POST, Call::LogIn),
            "logout" => (Method::POST, Call::LogOut),
            "about" => (Method::GET, Call::About),
            "now" => (Method::GET, Call::Now),
            "history" => (Method::GET, Call::History),
            "config" if method == Method::PUT => (Method::PUT, Call::ApplyConfiguration),
            "config" => (Method::GET, Call::Configuration),
            "config/check" => (Method::POST, Call::CheckConfiguration),
            "schema" => (Method::GET, Call::Schema),
            "certificates" => (Method::GET, Call::Certificates),
            "drain" => (Method::POST, Call::Drain),
            _ => Call::of_application(path.strip_prefix("applications/").ok_or(NoCall::NotFound)?)?,
        };
        if *method == expected { Ok(call) } else { Err(NoCall::WrongMethod) }
    }

    fn of_application(path: &str) -> Result<(Method, Call), NoCall> {
        let path = DocumentPath::parse(path).map_err(|_| NoCall::NotFound)?;
        let [name, action] = path.segments() else { return Err(NoCall::NotFound) };
        let name = name.clone();
        Ok(match action.as_str() {
            "workers" => (Method::GET, Call::Workers(name)),
            "slow" => (Method::GET, Call::Slow(name)),
            "stack" => (Method::POST, Call::Stack(name)),
            "profile" => (Method::POST, Call::Profile(name)),
            "leaks" => (Method::POST, Call::Leaks(name)),
            "restart" => (Method::POST, Call::Restart(name)),
            _ => return Err(NoCall::NotFound),
        })
    }

    /// Its effect. A recording makes howdah work, though it changes nothing.
    pub fn effect(&self) -> Effect {
        match self {
            Call::About
            | Call::Now
            | Call::History
            | Call::Workers(_)
            | Call::Slow(_)
            | Call::Configuration
            | Call::Schema
            | Call::Certificates => Effect::Read,
            Call::LogIn
            | Call::LogOut
            | Call::Stack(_)
            | Call::Profile(_)
            | Call::Leaks(_)
            | Call::Restart(_)
            | Call::CheckConfiguration
            | Call::Drain
            | Call::ApplyConfiguration => Effect::Change,
        }
    }

    /// Whether it changes what runs: `--read-only` forbids it.
    pub fn changes_howdah(&self) -> bool {
        matches!(self, Call::Restart(_) | Call::ApplyConfiguration | Call::Drain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_requests_are_answered() {
        let shop = || "shop".to_owned();
        for (request, expected) in [
            ("POST /api/login", Ok(Call::LogIn)),
            ("GET /api/login", Err(NoCall::WrongMethod)),
            ("GET /api/now", Ok(Call::Now)),
            ("HEAD /api/now", Err(NoCall::WrongMethod)),
            ("GET /api/config", Ok(Call::Configuration)),
            ("PUT /api/config", Ok(Call::ApplyConfiguration)),
            ("DELETE /api/config", Err(NoCall::WrongMethod)),
            ("POST /api/config", Err(NoCall::WrongMethod)),
            ("PUT /api/config/applications/shop", Err(NoCall::NotFound)),
            ("GET /api/applications/shop/workers", Ok(Call::Workers(shop()))),
            ("GET /api/applications/a%2Fb%20c/slow", Ok(Call::Slow("a/b c".to_owned()))),
            ("GET /api/applications/shop/restart", Err(NoCall::WrongMethod)),
            ("POST /api/applications/shop/restart", Ok(Call::Restart(shop()))),
            ("POST /api/applications/shop/memory", Err(NoCall::NotFound)),
            ("GET /api/applications/shop", Err(NoCall::NotFound)),
            ("GET /api/applications/shop/workers/0", Err(NoCall::NotFound)),
            ("GET /api/applications/%zz/workers", Err(NoCall::NotFound)),
            ("PUT /api/certificates/x", Err(NoCall::NotFound)),
            ("GET /api/certificates", Ok(Call::Certificates)),
            ("POST /api/drain", Ok(Call::Drain)),
            ("GET /api/drain", Err(NoCall::WrongMethod)),
            ("GET /config", Err(NoCall::NotFound)),
            ("GET /status", Err(NoCall::NotFound)),
            ("GET /api/../config", Err(NoCall::NotFound)),
            ("GET //api/now", Err(NoCall::NotFound)),
        ] {
            let (method, path) = request.split_once(' ').unwrap();
            assert_eq!(Call::parse(&method.parse().unwrap(), path), expected, "{request}");
        }
    }

    #[test]
    fn a_change_is_known() {
        for (call, changes) in [
            (Call::Restart("a".to_owned()), true),
            (Call::ApplyConfiguration, true),
            (Call::Drain, true),
            (Call::CheckConfiguration, false),
            (Call::Profile("a".to_owned()), false),
            (Call::Configuration, false),
        ] {
            assert_eq!(call.changes_howdah(), changes, "{call:?}");
            assert!(!changes || call.effect() == Effect::Change);
        }
    }
}
