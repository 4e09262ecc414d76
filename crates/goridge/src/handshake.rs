//! The first frames: howdah sends a control frame, and the worker answers with its process id. The worker's library
//! answers in its loop: the answer means that the application has booted.

use crate::frame::{FrameHeader, HEADER_BYTES, Violation, control_frame, flag, quoted};
use serde::Deserialize;

/// The answer of a worker as it comes in.
#[derive(Debug, Default)]
pub struct HandshakeAnswer {
    received: Vec<u8>,
    pid: Option<i64>,
}

#[derive(Deserialize)]
struct Answer {
    pid: i64,
}

/// The most bytes of an answer, without its header.
const MAX_PAYLOAD: u32 = 1024;

/// The question: the process id of howdah. The library accepts any number but 0.
pub fn question(pid: u32) -> Vec<u8> {
    control_frame(&format!(r#"{{"pid":{pid}}}"#))
}

// === impl HandshakeAnswer ===

impl HandshakeAnswer {
    /// How many bytes may be read now: no byte after the answer. 0 when it is complete.
    pub fn missing(&mut self) -> Result<usize, Violation> {
        let Some(head) = self.received.first_chunk() else { return Ok(HEADER_BYTES - self.received.len()) };
        let header = match FrameHeader::decode(head) {
            Ok(header) if header.flags & flag::CONTROL != 0 && header.options == 0 && header.payload <= MAX_PAYLOAD => {
                header
            }
            Ok(_) => return Err(unexpected()),
            Err(violation) => return Err(violation),
        };
        let missing = HEADER_BYTES + header.payload as usize - self.received.len();
        if missing == 0 {
            self.pid = Some(pid(&self.received[HEADER_BYTES..])?);
        }
        Ok(missing)
    }

    /// Takes bytes of it, no more than are missing.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// The process id that a complete answer names. The worker may name any.
    pub fn pid(&self) -> Option<i64> {
        self.pid
    }

    /// The bytes so far, for an error message.
    pub fn received(&self) -> &[u8] {
        &self.received
    }
}

fn pid(payload: &[u8]) -> Result<i64, Violation> {
    match serde_json::from_slice::<Answer>(payload) {
        Ok(answer) if answer.pid > 0 => Ok(answer.pid),
        _ => Err(Violation(format!("it answered the first frame with {}, and not with its pid", quoted(payload)))),
    }
}

fn unexpected() -> Violation {
    Violation("it answered the first frame with another frame than a control frame".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::data_frame;

    fn feed(bytes: &[u8]) -> Result<usize, Violation> {
        let mut answer = HandshakeAnswer::default();
        let mut rest = bytes;
        loop {
            let missing = answer.missing()?;
            if missing == 0 || rest.is_empty() {
                return Ok(rest.len() + missing);
            }
            let (now, later) = rest.split_at(missing.min(rest.len()));
            answer.push(now);
            rest = later;
        }
    }

    #[test]
    fn the_answer_is_a_control_frame_with_a_pid() {
        let answer = FrameHeader { options: 0, flags: flag::CONTROL, stream: 0, payload: 13 };
        assert_eq!(feed(&[&answer.encode()[..], br#"{"pid":28219}"#].concat()), Ok(0));
        assert_eq!(feed(&control_frame(r#"{"pid":1}"#)), Ok(0));
        assert_eq!(feed(&question(7)[..15]), Ok(6), "more bytes must come");
        let wrong = [
            control_frame(r#"{"pid":0}"#),
            control_frame(r#"{"stop":true}"#),
            control_frame(""),
            control_frame(&"x".repeat(MAX_PAYLOAD as usize + 1)),
            data_frame(0, 0, 0).to_vec(),
            b"Could not open input file: worker.php".to_vec(),
        ];
        for bytes in wrong {
            assert!(feed(&bytes).is_err(), "{bytes:?}");
        }
    }
}
