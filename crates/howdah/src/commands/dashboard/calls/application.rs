//! One application: its workers, its slow requests, its restart.

use crate::commands::dashboard::answer::Answer;
use crate::commands::dashboard::calls::computing::computed;
use crate::commands::dashboard::calls::howdah::{Howdah, accepted, segment};
use crate::commands::dashboard::calls::now::workers_path;
use crate::commands::slow;
use hyper::StatusCode;
use serde_json::json;

/// How many slow requests the page gets.
const MAX_SLOW: usize = 100;

/// Its processes, with each worker.
///
/// # Errors
/// The answer for the page.
pub async fn workers(howdah: &Howdah, name: &str) -> Result<Answer, Answer> {
    let path = workers_path(name).map_err(|reason| Answer::error(StatusCode::BAD_REQUEST, &reason))?;
    let processes = accepted(howdah.read(&path).await)?.json().map_err(|reason| Answer::unreachable(&reason))?;
    Ok(Answer::json(&processes))
}

/// Its last slow requests, the latest first, each with its lines.
///
/// # Errors
/// The answer for the page: it has no slow log, for example.
pub async fn slow(howdah: &Howdah, name: &str) -> Result<Answer, Answer> {
    let path = format!("/status/applications/{}/slow", segment(name)?);
    let log = accepted(howdah.read(&path).await)?.bytes;
    let read = computed(move || slow::last_requests(&log, MAX_SLOW)).await?;
    Ok(Answer::json(&json!({ "requests": read })))
}

/// Restarts it.
///
/// # Errors
/// The answer for the page.
pub async fn restart(howdah: &Howdah, name: &str) -> Result<Answer, Answer> {
    let path = format!("/control/applications/{}/restart", segment(name)?);
    let response = accepted(howdah.change("POST", &path, None, Vec::new()).await)?;
    Ok(Answer::json(&json!({ "success": response.message().trim_end() })))
}
