//! `GET /status/applications/NAME/slow`: the end of an application's slow log. A thread of its own reads it, because
//! the file system may hang.

use crate::api::answer::no_such_application;
use crate::api::reply::{Reply, UNREADABLE};
use crate::control::Control;
use howdah_config::{Refusal, answer};
use tokio::sync::oneshot;

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
    let started = std::thread::Builder::new().name("slow log".to_owned()).spawn(read);
    started.map(|_| Reply::SlowLog(tail)).map_err(|error| Refusal::new(500, UNREADABLE, error.to_string()))
}
