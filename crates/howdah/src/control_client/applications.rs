//! The applications of a running howdah.

use crate::control_client::connection::ControlApi;
use crate::terminal::plain::plain;
use serde_json::{Map, Value};

/// The names of all applications.
///
/// # Errors
/// The configuration has no application, or the API gives no valid response.
pub fn application_names(api: &ControlApi) -> Result<Vec<String>, String> {
    let status = api.get("/status")?.accepted(None)?.json()?;
    let applications = status.get("applications").and_then(Value::as_object);
    let names: Vec<_> = applications.into_iter().flat_map(Map::keys).cloned().collect();
    if names.is_empty() {
        return Err("there are no applications".to_owned());
    }
    Ok(names)
}

/// Why all requests of an application in the status are answered 503; `None` if they are not.
pub fn reason_of_503(application: &Value) -> Option<String> {
    if application.get("drained").and_then(Value::as_bool) == Some(true) {
        return Some("it drains".to_owned());
    }
    application.get("failure").and_then(Value::as_str).map(plain)
}
