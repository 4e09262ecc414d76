//! `howdah config edit`: the configuration in the user's editor, until howdah takes it.
//!
//! What is refused comes back to the editor with the reason above it, in comments that are taken away again. Whoever
//! ends the editor without a change gives up. A text that was changed and is not in force is never removed: its file is
//! named.

use crate::client::config::{parse, url};
use crate::client::connection::Server;
use crate::output;
use howdah_config::DocumentPath;
use howdah_supervisor::system_error::words;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use tempfile::NamedTempFile;
use tokio::signal::unix::{SignalKind, signal};

/// Begins each line of ours in the file.
const MARK: &str = "//! ";
const GIVE_UP: &str = "Correct it and save. To give up, end the editor without a change.";

/// Edits the part of the configuration at the path.
pub fn edit(server: &Server, path: &str) -> Result<(), String> {
    let path = parse(path)?;
    let answer = server.ask("GET", &url(&path), None, Vec::new())?.succeeded(None)?;
    let session = Session { server, path, etag: answer.etag, original: answer.body };
    // Ctrl-C is for the editor; the text must outlive it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(|error| format!("the editor cannot be started: {error}"))?;
    let _guard = runtime.enter();
    let _interrupts = (signal(SignalKind::interrupt()), signal(SignalKind::quit()));
    session.run()
}

struct Session<'a> {
    server: &'a Server,
    path: DocumentPath,
    /// Of the configuration that is edited.
    etag: Option<String>,
    /// What was there.
    original: String,
}

// === impl Session ===

impl Session<'_> {
    fn run(&self) -> Result<(), String> {
        let problem = |error: std::io::Error| {
            format!("a file for the editor cannot be made: {}; make room, or set TMPDIR", words(&error))
        };
        let mut file = tempfile::Builder::new().prefix("howdah-").suffix(".json").tempfile().map_err(problem)?;
        file.write_all(self.original.as_bytes()).and_then(|()| file.flush()).map_err(problem)?;
        // What the editor is left with unless it is changed.
        let mut last = self.original.clone();
        loop {
            if let Err(reason) = open(file.path()) {
                return Err(self.keep(file, &last, reason));
            }
            let text = match std::fs::read_to_string(file.path()) {
                Ok(text) => without_marks(&text).to_owned(),
                Err(error) => return Err(self.keep(file, "", format!("the text cannot be read: {}", words(&error)))),
            };
            if text == self.original || text.trim().is_empty() {
                output::print("Nothing was changed.\n");
                return Ok(());
            }
            if text == last {
                return Err(self.keep(file, &last, "Nothing was changed.".to_owned()));
            }
            last = text;
            let sent = self.server.ask("PUT", &url(&self.path), self.etag.as_deref(), last.clone().into_bytes());
            let answer = match sent {
                Ok(answer) => answer,
                Err(reason) => return Err(self.keep(file, &last, reason)),
            };
            let Some(refused) = answer.problem() else {
                output::print(&answer.message());
                return Ok(());
            };
            if answer.is_overtaken() {
                let reason = "The configuration was changed by somebody else while you edited it; yours is not in force. Compare \
                              yours with `howdah config get` before you send it.";
                return Err(self.keep(file, &last, reason.to_owned()));
            }
            let describe = |lines| refused.describe_in("", &last, &self.path, lines);
            let lines = marked(&describe(0)).lines().count();
            let written = std::fs::write(file.path(), marked(&describe(lines)) + &last);
            if let Err(error) = written {
                return Err(format!("{}; the text cannot be written back: {}", describe(0), words(&error)));
            }
        }
    }

    /// Ends without success: the text stays where it is, if there is something in it that is not in force.
    fn keep(&self, file: NamedTempFile, last: &str, reason: String) -> String {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let text = if text.trim().is_empty() { last } else { without_marks(&text) };
        if text == self.original || text.trim().is_empty() {
            return reason;
        }
        let again = match self.path.is_root() {
            true => String::new(),
            false => format!(" '{}'", self.path),
        };
        let path = file.path().to_owned();
        let _ = std::fs::write(&path, text);
        match file.keep() {
            Ok(_) => format!(
                "{reason}\nYour text is in {}; to send it: howdah config put{again} {}",
                path.display(),
                path.display()
            ),
            Err(error) => format!("{reason}\nYour text cannot be kept: {error}\n{text}"),
        }
    }
}

fn open(file: &Path) -> Result<(), String> {
    let chosen =
        ["VISUAL", "EDITOR"].into_iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let editor = chosen.unwrap_or_else(|| "vi".to_owned());
    // It may have arguments. Ctrl-C is for it, not for the shell that starts it.
    let script = format!("trap : INT QUIT; {editor} \"$@\"");
    let status = Command::new("/bin/sh").arg("-c").arg(script).arg(&editor).arg(file).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the editor `{editor}` failed ({status}); nothing was sent. Set VISUAL or EDITOR")),
        Err(error) => Err(format!("the editor `{editor}` cannot be started: {}; set VISUAL or EDITOR", words(&error))),
    }
}

/// The reason as comments.
fn marked(reason: &str) -> String {
    reason.lines().chain([GIVE_UP]).map(|line| format!("{MARK}{line}\n")).collect()
}

/// The text without the comments at its beginning that are ours.
fn without_marks(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with(MARK) {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_goes_as_it_came() {
        let text = "{\n  // howdah\n}\n";
        assert_eq!(without_marks(&(marked("Wrong.\n  1 | x") + text)), text);
        assert_eq!(without_marks(text), text);
        assert_eq!(without_marks("//! only"), "");
    }
}
