//! `GET /status/applications/NAME/slow`: the end of an application's slow log. A thread of its own reads it, because
//! the file system may hang. Then the answer is an error, and at most four threads of an application wait.

use crate::api::answer::no_such_application;
use crate::api::reply::{HANGING, Reply, UNREADABLE};
use crate::control::Control;
use crate::os::hanging_threads::HangingThreads;
use howdah_config::{Refusal, answer};
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

static READERS: Mutex<HangingThreads> = Mutex::new(HangingThreads::new("slow log"));

/// The end of the slow log, when it is read.
///
/// # Errors
/// If the application has none, or no thread can be started.
pub fn get(name: &str, control: &Control) -> Result<Reply, Refusal> {
    let generation = control.served_generation(name).ok_or_else(|| no_such_application(name))?;
    let php = generation.as_php().ok_or_else(|| {
        let detail = format!("{name:?} is not of the type \"php\", and has no slow log");
        Refusal::new(404, answer::text::NO_SUCH_VALUE, detail)
    })?;
    let log = php.slow_log().ok_or_else(|| {
        let detail = format!(
            "applications/{name}/slow_log is not set; to log requests that take longer than one second, set it to \
             {{\"threshold\": 1}}"
        );
        Refusal::new(404, answer::text::NO_SUCH_VALUE, detail)
    })?;
    let (sender, tail) = oneshot::channel();
    let log = log.clone();
    let read = move || drop(sender.send(log.tail()));
    let is_started = READERS.lock().unwrap_or_else(PoisonError::into_inner).start(name, read);
    if is_started { Ok(Reply::SlowLog(tail)) } else { Err(Refusal::new(503, UNREADABLE, HANGING)) }
}
