//! `howdah config edit`: opens the configuration in the user's editor until howdah accepts the text or the user gives up.
//!
//! A rejected text is opened again with the reason above it, in comments that are removed before the next attempt. To
//! give up, the user leaves the editor without a change. A changed text that is not active is never deleted: the error
//! names its file.

use super::edited_file::EditedFile;
use crate::control_client::{ControlApi, config_url, parse_config_path};
use crate::terminal::output;
use howdah_config::DocumentPath;
use howdah_supervisor::system_error::error_text;
use std::path::Path;
use std::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// Starts each line that this command adds to the file.
const MARK: &str = "//! ";
const GIVE_UP: &str = "Correct the text and save it. To give up, leave the editor without a change.";

/// Edits the part of the configuration at the path.
///
/// # Errors
/// The reason, with the file of a text that was changed and is not active.
pub fn edit(api: &ControlApi, path: &str) -> Result<(), String> {
    let path = parse_config_path(path)?;
    let response = api.get(&config_url(&path))?.accepted(None)?;
    let session = Session { api, path, etag: response.etag, original: response.body.into_bytes() };
    // Ctrl-C is for the editor. This process must survive it to keep the text.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(|error| format!("cannot start the editor: {error}"))?;
    let _guard = runtime.enter();
    let _interrupts = (signal(SignalKind::interrupt()), signal(SignalKind::quit()));
    session.run()
}

struct Session<'a> {
    api: &'a ControlApi,
    path: DocumentPath,
    /// The ETag of the configuration that is edited.
    etag: Option<String>,
    /// The text before the first edit.
    original: Vec<u8>,
}

// === impl Session ===

impl Session<'_> {
    fn run(&self) -> Result<(), String> {
        let file = EditedFile::create(&self.original)?;
        // The text that the editor is opened with.
        let mut last = self.original.clone();
        // Why howdah rejected it.
        let mut refusal = None;
        loop {
            if let Err(reason) = open(&file.path()) {
                return Err(self.keep(file, &last, reason));
            }
            let text = match file.read() {
                Ok(text) => without_marks(&text).to_owned(),
                Err(error) => {
                    return Err(self.keep(file, b"", format!("cannot read the text: {}", error_text(&error))));
                }
            };
            if text == self.original || text.trim_ascii().is_empty() {
                output::print("Nothing was changed.\n");
                return Ok(());
            }
            if text == last {
                let reason = refusal.map(|refusal| format!("{refusal}\n")).unwrap_or_default();
                return Err(self.keep(file, &last, format!("{reason}Nothing was changed.")));
            }
            last = text;
            let url = config_url(&self.path);
            let response = match self.api.request("PUT", &url, self.etag.as_deref(), last.clone()) {
                Ok(response) => response,
                Err(reason) => return Err(self.keep(file, &last, reason)),
            };
            let Some(rejection) = response.rejection() else {
                output::print(&response.message());
                return Ok(());
            };
            if response.is_precondition_failed() {
                let reason = "The configuration changed while you edited it; your text is not active. Compare it with \
                              `howdah config get` before you send it.";
                return Err(self.keep(file, &last, reason.to_owned()));
            }
            let describe = |lines| rejection.describe_in("", &String::from_utf8_lossy(&last), &self.path, lines);
            refusal = Some(describe(0));
            let lines = marked(&describe(0)).lines().count();
            let written = file.write(&[marked(&describe(lines)).as_bytes(), &last].concat());
            if let Err(error) = written {
                return Err(format!("{}; cannot write the text back: {}", describe(0), error_text(&error)));
            }
        }
    }

    /// Adds the file's name to the reason, if the file has a changed text, and keeps the file.
    fn keep(&self, file: EditedFile, last: &[u8], reason: String) -> String {
        let text = file.read().unwrap_or_default();
        let text = if text.trim_ascii().is_empty() { last } else { without_marks(&text) };
        if text == self.original || text.trim_ascii().is_empty() {
            return reason;
        }
        let again = match self.path.is_root() {
            true => String::new(),
            false => format!(" '{}'", self.path),
        };
        if let Err(error) = file.write(text) {
            let error = error_text(&error);
            return format!("{reason}\nYour text cannot be kept in a file: {error}\n{}", String::from_utf8_lossy(text));
        }
        let path = file.keep();
        let path = path.display();
        format!("{reason}\nYour text is in {path}; to send it: howdah config put{again} {path}")
    }
}

fn open(file: &Path) -> Result<(), String> {
    let chosen =
        ["VISUAL", "EDITOR"].into_iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let editor = chosen.unwrap_or_else(|| "vi".to_owned());
    // The variable may have arguments. Ctrl-C is for the editor, not for the shell that starts it.
    let script = format!("trap : INT QUIT; {editor} \"$@\"");
    let status = Command::new("/bin/sh").arg("-c").arg(script).arg(&editor).arg(file).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the editor `{editor}` failed ({status}); nothing was sent. Set VISUAL or EDITOR")),
        Err(error) => Err(format!("cannot start the editor `{editor}`: {}; set VISUAL or EDITOR", error_text(&error))),
    }
}

/// The reason as comments, one for each line.
fn marked(reason: &str) -> String {
    reason.lines().chain([GIVE_UP]).map(|line| format!("{MARK}{line}\n")).collect()
}

/// The text without the comments that this command added at its beginning.
fn without_marks(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while rest.starts_with(MARK.as_bytes()) {
        rest = rest.iter().position(|byte| *byte == b'\n').map_or(b"", |end| &rest[end + 1..]);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_added_comments_are_removed_again() {
        let text = "{\n  // howdah\n}\n";
        assert_eq!(without_marks((marked("Wrong.\n  1 | x") + text).as_bytes()), text.as_bytes());
        assert_eq!(without_marks(text.as_bytes()), text.as_bytes());
        assert_eq!(without_marks(b"//! only"), b"");
    }
}
