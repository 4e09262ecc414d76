//! The howdah that the dashboard shows.

use crate::commands::dashboard::answer::Answer;
use crate::control_client::{ApiResponse, ControlApi, name_segment};
use hyper::StatusCode;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The control API of the howdah, with limits.
#[derive(Debug)]
pub struct Howdah {
    api: ControlApi,
    /// A page that asks too fast waits.
    readings: Semaphore,
    recordings: Semaphore,
}

/// How many requests that read something run at a time.
const MAX_READINGS: usize = 4;
/// How many recordings run at a time.
const MAX_RECORDINGS: usize = 4;
/// A howdah that works answers a reading within milliseconds; the supervisor itself waits 2 s for the router.
const READING_TIMEOUT: Duration = Duration::from_secs(10);

// === impl Howdah ===

impl Howdah {
    /// The howdah with this control API.
    pub fn new(api: ControlApi) -> Howdah {
        let (readings, recordings) = (Semaphore::new(MAX_READINGS), Semaphore::new(MAX_RECORDINGS));
        Howdah { api, readings, recordings }
    }

    /// Its address.
    pub fn address(&self) -> String {
        self.api.address().to_string()
    }

    /// Reads a path.
    ///
    /// # Errors
    /// There is no response: a sentence.
    pub async fn read(&self, path: &str) -> Result<ApiResponse, String> {
        let response = async {
            let _turn = self.readings.acquire().await;
            self.api.send("GET", path, None, Vec::new()).await
        };
        let late = |_| {
            format!("howdah did not answer within {} s; it may be stopped, or overloaded", READING_TIMEOUT.as_secs())
        };
        timeout(READING_TIMEOUT, response).await.map_err(late)?
    }

    /// Reads a path that has JSON.
    ///
    /// # Errors
    /// There is no success: a sentence.
    pub async fn read_json(&self, path: &str) -> Result<Value, String> {
        self.read(path).await?.accepted(None)?.json()
    }

    /// Records an application. Ends when the browser leaves.
    ///
    /// # Errors
    /// The answer for the page.
    pub async fn record(&self, name: &str, subject: &str, options: &Value) -> Result<ApiResponse, Answer> {
        let path = format!("/control/applications/{}/{subject}", segment(name)?);
        let Ok(_turn) = self.recordings.try_acquire() else {
            let reason = format!("{MAX_RECORDINGS} recordings run already; wait for the end of one");
            return Err(Answer::error(StatusCode::TOO_MANY_REQUESTS, &reason));
        };
        accepted(self.api.send("POST", &path, None, options.to_string().into_bytes()).await)
    }

    /// Changes something. It may take as long as PHP takes to start, and is completed if the browser leaves.
    ///
    /// # Errors
    /// There is no response: a sentence.
    pub async fn change(
        &self,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Vec<u8>,
    ) -> Result<ApiResponse, String> {
        self.api.send(method, path, if_match, body).await
    }
}

/// A response that is a success.
///
/// # Errors
/// The answer for the page.
pub fn accepted(response: Result<ApiResponse, String>) -> Result<ApiResponse, Answer> {
    let response = response.map_err(|reason| Answer::unreachable(&reason))?;
    match Answer::refusal(&response, "") {
        Some(refusal) => Err(refusal),
        None => Ok(response),
    }
}

/// A name in a path of the control API.
///
/// # Errors
/// The answer for the page.
pub fn segment(name: &str) -> Result<String, Answer> {
    name_segment(name).map_err(|reason| Answer::error(StatusCode::BAD_REQUEST, &reason))
}
