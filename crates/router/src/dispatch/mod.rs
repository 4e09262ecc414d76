//! From a request to its response: the route's action is found and carried out, the response is finished and logged.
//!
//! A request passes through these files in this order, and [`Subject`](crate::request::subject::Subject) is its name in
//! all of them:
//!
//! 1. `service`: the request is normalised; at the end its response is compressed, completed and logged
//! 2. `routing`: the steps of the routes lead to a `ChosenAction`; `share` looks for files on the way
//! 3. `service` carries the action out: `application` finds the script (`front_script`: that of a web server in front) and hands it to [`php`](crate::backends::php); the other
//!    actions are in [`proxy`](crate::backends::proxy), [`static_files`](crate::static_files) and
//!    [`response`](crate::response). `early_hints` are sent before that
//! 4. `response_headers`: the action's changes to the response's headers; `framing`: those that hyper adds, for the log
//!
//! A request keeps the [`View`] of the configuration that it started with. An action that cannot be carried out is a
//! [`Failure`](crate::response::failure::Failure), which `service` answers.

mod actions;
mod active_configuration;
mod dispatcher;
mod early_hints;
mod framing;
mod https;
mod response_headers;
mod routing;
mod service;

pub use active_configuration::pins::Pins;
pub use active_configuration::snapshot::Snapshot;
pub use active_configuration::view::View;
pub use dispatcher::Dispatcher;
pub use routing::LOG_ROUTE;
pub use service::answer;
