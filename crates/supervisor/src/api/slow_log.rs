//! `GET /status/applications/NAME/slow`: the end of an application's slow log.

use crate::api::{Answer, no_such_application};
use crate::event_loop::Supervisor;
use howdah_config::{Refusal, answer};

// === impl Supervisor ===

impl Supervisor {
    /// The end of an application's slow log.
    pub(crate) fn show_slow_log(&self, name: &str) -> Result<Answer, Refusal> {
        let generation = self.generation_in_force(name).ok_or_else(|| no_such_application(name))?;
        let log = generation.slow_log().ok_or_else(|| {
            let detail = format!(
                "applications/{name}/slow_log is not set; {{\"threshold\": 1}} has requests written down that take \
                 longer than a second"
            );
            Refusal::new(404, answer::text::NO_SUCH_VALUE, detail)
        })?;
        log.tail().map(Answer::bytes).map_err(|problem| Refusal::new(500, "The slow log cannot be read.", problem))
    }
}
