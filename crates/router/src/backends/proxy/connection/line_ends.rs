//! The ends of lines in an upstream's response head: CR LF, and never LF alone.
//!
//! hyper accepts LF alone (RFC 9112, 2.2, allows it). A program that does not would see other headers than howdah, and
//! another end of the head.
//!
//! The heads of all interim responses together have a limit: hyper reads them one after the other, without a pause for other
//! tasks, for as long as they come.

/// Follows the bytes of one response, interim responses included, to the end of its head.
#[derive(Debug)]
pub struct LineEnds {
    is_in_head: bool,
    /// How many bytes of heads have passed.
    passed: usize,
    last: u8,
    /// The length of the current line until now.
    line: usize,
    /// The beginning of the status line.
    beginning: Vec<u8>,
}

/// The most bytes of a response's head and of the interim responses before it. hyper limits each of them.
const MAX_HEAD_BYTES: usize = 256 * 1024;
/// `HTTP/1.1 200`.
const STATUS_END: usize = 12;
/// The place of the status in it.
const STATUS: std::ops::Range<usize> = 9..STATUS_END;

// === impl LineEnds ===

impl LineEnds {
    /// Before a response.
    pub fn new() -> LineEnds {
        LineEnds { is_in_head: true, passed: 0, last: 0, line: 0, beginning: Vec::with_capacity(STATUS_END) }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// With the reason, if they may not pass.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        for &byte in bytes {
            if !self.is_in_head {
                return Ok(());
            }
            self.passed += 1;
            if self.passed > MAX_HEAD_BYTES {
                return Err("its interim responses are too long");
            }
            if byte != b'\n' {
                self.line += 1;
                if self.beginning.len() < STATUS_END && byte != b'\r' {
                    self.beginning.push(byte);
                }
            } else if self.last != b'\r' {
                return Err("a line of its head ends with LF alone");
            } else {
                // Empty lines before the status line are ignored.
                if self.line == 1 && !self.beginning.is_empty() {
                    self.is_in_head = self.is_interim();
                    self.beginning.clear();
                }
                self.line = 0;
            }
            self.last = byte;
        }
        Ok(())
    }

    /// Whether another head follows this one.
    fn is_interim(&self) -> bool {
        self.beginning.get(STATUS).is_some_and(|status| status.starts_with(b"1") && status != b"101")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(response: &str) -> bool {
        let bytes = response.as_bytes();
        let mut whole = LineEnds::new();
        let mut pieces = LineEnds::new();
        let is_whole = whole.pass(bytes).is_ok();
        assert_eq!(bytes.iter().all(|byte| pieces.pass(&[*byte]).is_ok()), is_whole, "{response:?}");
        is_whole
    }

    #[test]
    fn interim_responses_have_a_limit() {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let end = "HTTP/1.1 200 OK\r\n\r\n";
        assert!(passes(&(interim.repeat(100) + end + &"x".repeat(MAX_HEAD_BYTES))));
        assert!(!passes(&(interim.repeat(MAX_HEAD_BYTES / interim.len() + 1) + end)));
    }

    #[test]
    fn only_a_head_is_checked() {
        for response in [
            "HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\nwith\nlines",
            "HTTP/1.1 204 No Content\r\n\r\n\n",
            "\r\nHTTP/1.1 200 OK\r\n\r\n\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n\n",
        ] {
            assert!(passes(response), "{response:?}");
        }
        for response in [
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\r\nA: b\nB: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n\n",
            "\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\nA: b\r\n\r\n",
        ] {
            assert!(!passes(response), "{response:?}");
        }
    }
}
