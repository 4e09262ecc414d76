//! Messages that a FastCGI server writes to STDERR: FPM's scripts log there. Each line becomes one of howdah's log, with the
//! application and the request; control characters are escaped. The number of lines and their length have limits. The log
//! itself limits the lines of an application.

/// The messages of one request.
#[derive(Default)]
pub struct Messages {
    /// A line that has no end yet.
    line: Vec<u8>,
    lines: usize,
}

/// The most lines of a request.
const MAX_LINES: usize = 100;
/// The longest line, in bytes. The rest of it is left out.
const MAX_LINE: usize = 4096;

// === impl Messages ===

impl Messages {
    /// A part of the stream.
    pub fn push(&mut self, part: &[u8]) {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end();
            }
        }
    }

    /// The stream has ended.
    pub fn end(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        self.lines += 1;
        if self.lines <= MAX_LINES {
            tracing::error!("FastCGI server: {}", escaped(line));
        } else if self.lines == MAX_LINES + 1 {
            tracing::warn!("a request logs more than {MAX_LINES} lines; the rest is left out");
        }
    }
}

/// The line, with escapes for control characters: a terminal may show it.
fn escaped(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if !text.chars().any(char::is_control) {
        return text.into_owned();
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("PHP message: é \u{1b}[31m\tx".as_bytes()), r"PHP message: é \u{1b}[31m\tx");
        assert_eq!(escaped(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn an_endless_line_takes_no_memory() {
        let mut messages = Messages::default();
        for _ in 0..1000 {
            messages.push(&[b'x'; 1000]);
        }
        assert_eq!(messages.line.len(), MAX_LINE);
        messages.push(b"y\n\n\nz");
        assert_eq!((messages.lines, &messages.line[..]), (1, &b"z"[..]));
    }
}
