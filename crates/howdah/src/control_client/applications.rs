//! The applications of a running howdah.

use crate::control_client::connection::ControlApi;
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
