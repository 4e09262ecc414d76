//! Messages that a FastCGI server writes to STDERR: FPM's scripts log there. Each line becomes one of howdah's log, with the
//! application and the request; control characters are escaped. The number of lines and their length have limits. The log
//! itself limits the lines of an application.

/// The messages of one request.
#[derive(Default)]
pub struct Messages {
    /// A line that has no end yet.
    line: Vec<u8>,
    lines: usize,
    /// How many bytes have come.
    bytes: usize,
}

/// The most lines of a request.
const MAX_LINES: usize = 100;
/// The longest line, in bytes. The rest of it is left out.
const MAX_LINE: usize = 4096;
/// The most bytes of a request's messages that are looked at: more than all lines that are logged.
const MAX_BYTES: usize = 2 * MAX_LINES * MAX_LINE;

// === impl Messages ===

impl Messages {
    /// A part of the stream.
    pub fn push(&mut self, part: &[u8]) {
        // Empty lines are not counted among the lines, but cost time, too.
        let before = self.bytes;
        self.bytes = before.saturating_add(part.len());
        if self.lines > MAX_LINES {
            return;
        }
        if self.bytes > MAX_BYTES {
            if before <= MAX_BYTES {
                tracing::warn!("a request logs more than {MAX_BYTES} bytes; the rest is left out");
            }
            return;
        }
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
        for _ in 0..700 {
            messages.push(&[b'x'; 1000]);
        }
        assert_eq!(messages.line.len(), MAX_LINE);
        messages.push(b"y\n\n\nz");
        assert_eq!((messages.lines, &messages.line[..]), (1, &b"z"[..]));
    }

    #[test]
    fn messages_without_an_end_take_no_time() {
        let mut messages = Messages::default();
        messages.push(&vec![b'\n'; MAX_BYTES]);
        messages.push(b"late\n");
        assert_eq!((messages.lines, messages.line.len()), (0, 0), "too late");
        let mut messages = Messages::default();
        messages.push(&b"x\n".repeat(MAX_LINES + 5));
        messages.push(b"y");
        assert_eq!((messages.lines, messages.line.len()), (MAX_LINES + 5, 0));
    }
}
