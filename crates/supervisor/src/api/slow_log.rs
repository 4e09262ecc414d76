//! `GET /status/applications/NAME/slow`: the end of an application's slow log.

use crate::api::answer::{ApiAnswer, no_such_application};
use crate::control::Control;
use howdah_config::{Refusal, answer};

/// The end of the slow log.
pub fn get(name: &str, control: &Control) -> Result<ApiAnswer, Refusal> {
    let generation = control.served_generation(name).ok_or_else(|| no_such_application(name))?;
    let log = generation.slow_log().ok_or_else(|| {
        let detail = format!(
            "applications/{name}/slow_log is not set; to log requests that take longer than one second, set it to \
             {{\"threshold\": 1}}"
        );
        Refusal::new(404, answer::text::NO_SUCH_VALUE, detail)
    })?;
    log.tail().map(ApiAnswer::bytes).map_err(|problem| Refusal::new(500, "The slow log cannot be read.", problem))
}
