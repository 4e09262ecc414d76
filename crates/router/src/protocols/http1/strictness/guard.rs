//! Checks the requests of a connection, one after the other, and determines which bytes hyper may read.

use super::chunks::{BrokenChunks, Chunks};
use super::head::{Framing, HeadScanner};
use crate::protocols::connection::heads::refusal::HeadRefusal;

/// The current position in the requests of a connection.
#[derive(Debug)]
pub struct Guard {
    state: GuardState,
    /// How many heads have passed.
    heads: u64,
    /// How many requests have passed to their end.
    whole: u64,
    /// Whether the last head requests another protocol.
    requests_upgrade: bool,
}

#[derive(Debug)]
enum GuardState {
    Head(HeadScanner),
    /// In a body that has this number of bytes left.
    Length(u64),
    Chunked(Chunks),
    /// The next bytes may be another request or another protocol: the response decides.
    Undecided,
}

/// The result for some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// How many bytes pass. Without an error, the rest is part of an incomplete head: the caller keeps it, and passes it
    /// again together with the next bytes.
    pub pass: usize,
    /// The error in the bytes after them.
    pub error: Option<GuardError>,
    /// Which of the passing bytes must be percent-encoded: raw bytes in queries. In their order.
    pub raw_bytes: Vec<usize>,
}

/// An error that ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardError {
    /// A head is refused, after this number of heads on the connection.
    Refused(HeadRefusal, u64),
    /// The body of the last request breaks its framing.
    Broken,
}

// === impl Guard ===

impl Guard {
    /// Starts before the first request.
    pub fn new() -> Guard {
        Guard { state: GuardState::Head(HeadScanner::default()), heads: 0, whole: 0, requests_upgrade: false }
    }

    /// The refusal of a head that is not complete.
    pub fn give_up(&self, refusal: HeadRefusal) -> GuardError {
        GuardError::Refused(refusal, self.heads)
    }

    /// How many requests have passed to their end.
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// How many requests have passed, if the last one is complete and no byte of another has arrived.
    pub fn between_requests(&self) -> Option<u64> {
        matches!(&self.state, GuardState::Head(scanner) if scanner.has_seen_nothing()).then_some(self.heads)
    }

    /// Whether more than empty lines of a head has come, and not its end.
    pub fn has_begun_head(&self) -> bool {
        matches!(&self.state, GuardState::Head(scanner) if scanner.has_begun())
    }

    /// The number of requests that must be answered before the guard continues. It waits if the last request asks for
    /// another protocol, and never continues if the protocol changes.
    pub fn waits_for(&self) -> Option<u64> {
        matches!(self.state, GuardState::Undecided).then_some(self.heads)
    }

    /// Continues after a response that did not change the protocol.
    pub fn go_on(&mut self) {
        self.state = GuardState::Head(HeadScanner::default());
    }

    /// Checks bytes: those that did not pass the last time, and new ones. Must not be called after an error.
    pub fn judge(&mut self, bytes: &[u8]) -> Judgement {
        let mut pass = 0;
        let mut raw_bytes = Vec::new();
        while pass < bytes.len() {
            let rest = &bytes[pass..];
            match &mut self.state {
                GuardState::Head(scanner) => match scanner.scan(rest) {
                    Ok(None) => break,
                    Ok(Some(head)) => {
                        raw_bytes.extend(head.raw_bytes.iter().map(|at| pass + at));
                        pass += head.length;
                        self.heads += 1;
                        self.requests_upgrade = head.requests_upgrade;
                        self.state = match head.body {
                            Framing::Length(0) => self.after_body(),
                            Framing::Length(length) => GuardState::Length(length),
                            Framing::Chunked => GuardState::Chunked(Chunks::START),
                        };
                    }
                    Err(refusal) => {
                        return Judgement { pass, error: Some(GuardError::Refused(refusal, self.heads)), raw_bytes };
                    }
                },
                GuardState::Length(left) => {
                    let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    pass += taken;
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = self.after_body();
                    }
                }
                GuardState::Chunked(chunks) => {
                    let (taken, result) = chunks.skip(rest);
                    pass += taken;
                    if let Err(BrokenChunks) = result {
                        return Judgement { pass, error: Some(GuardError::Broken), raw_bytes };
                    }
                    if *chunks == Chunks::End {
                        self.state = self.after_body();
                    }
                }
                GuardState::Undecided => break,
            }
        }
        Judgement { pass, error: None, raw_bytes }
    }

    fn after_body(&mut self) -> GuardState {
        self.whole += 1;
        if self.requests_upgrade { GuardState::Undecided } else { GuardState::Head(HeadScanner::default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const POST: &[u8] = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n";

    /// Does what the socket does, with reads of `step` bytes. Returns the bytes that passed.
    fn feed(bytes: &[u8], step: usize) -> (Vec<u8>, Option<GuardError>) {
        let mut guard = Guard::new();
        let (mut kept, mut passed) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            kept.extend_from_slice(piece);
            let Judgement { pass, error, .. } = guard.judge(&kept);
            passed.extend(kept.drain(..pass));
            if error.is_some() {
                return (passed, error);
            }
        }
        (passed, None)
    }

    #[test]
    fn requests_pass_whole_however_they_are_cut() {
        let all = [GET, POST, CHUNKED, b"\r\n", GET, POST].concat();
        for step in 1..=all.len() {
            assert_eq!(feed(&all, step), (all.clone(), None), "{step}");
        }
    }

    #[test]
    fn a_head_is_kept_until_it_is_complete() {
        assert_eq!(feed(&GET[..GET.len() - 1], 4), (Vec::new(), None));
        let all = [POST, &GET[..GET.len() - 1]].concat();
        assert_eq!(feed(&all, 4), (POST.to_vec(), None));
    }

    #[test]
    fn bytes_after_an_upgrade_wait_for_the_response() {
        let upgrade = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n";
        let all = [&upgrade[..], b"\x81\x05hello"].concat();
        for step in 1..=all.len() {
            assert_eq!(feed(&all, step), (upgrade.to_vec(), None), "{step}");
        }
        let mut guard = Guard::new();
        assert_eq!(guard.judge(&all), Judgement { pass: upgrade.len(), error: None, raw_bytes: Vec::new() });
        assert_eq!(guard.waits_for(), Some(1));
        guard.go_on();
        assert_eq!(
            (guard.waits_for(), guard.judge(GET)),
            (None, Judgement { pass: GET.len(), error: None, raw_bytes: Vec::new() })
        );
    }

    #[test]
    fn the_guard_is_between_requests_only_after_a_complete_one() {
        let upgrade = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n";
        for (request, is_decided) in [(GET, true), (POST, true), (CHUNKED, true), (&upgrade[..], false)] {
            let mut guard = Guard::new();
            assert_eq!(guard.between_requests(), Some(0));
            for length in 1..=request.len() {
                // Byte by byte: bytes that have not passed come again.
                let mut guard = Guard::new();
                let passed = guard.judge(&request[..length]).pass;
                let is_between = length == request.len() && is_decided;
                assert_eq!(guard.between_requests(), is_between.then_some(1), "{}", request[..length].escape_ascii());
                assert_eq!(guard.whole(), u64::from(length == request.len()));
                assert!(passed == length || guard.between_requests().is_none());
            }
            guard.judge(&[request, b"\r\n"].concat());
            assert_eq!(guard.between_requests(), None, "an empty line is the beginning of a head");
        }
    }

    #[test]
    fn nothing_passes_from_a_refused_head_on() {
        let before = [GET, CHUNKED].concat();
        let bad = b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello";
        let all = [&before[..], bad, GET].concat();
        let error = GuardError::Refused(HeadRefusal::Bad("more than one Content-Length"), 2);
        for step in 1..=all.len() {
            assert_eq!(feed(&all, step), (before.clone(), Some(error)), "{step}");
        }
    }

    /// `cargo test --release -p howdah-router --lib -- --ignored --nocapture time_of_a_check`
    #[test]
    #[ignore = "a measurement"]
    fn time_of_a_check() {
        let request = b"GET /a/path/of/some/length?and=a&query=too HTTP/1.1\r\nHost: www.example.org\r\n\
            User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
            Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n\
            Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\n\
            Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n";
        const ROUNDS: u32 = 1_000_000;
        let mut guard = Guard::new();
        let begin = std::time::Instant::now();
        for _ in 0..ROUNDS {
            assert_eq!(std::hint::black_box(&mut guard).judge(request).pass, request.len());
        }
        println!("{:?} for a head of {} bytes", begin.elapsed() / ROUNDS, request.len());
    }

    #[test]
    fn nothing_passes_from_a_broken_chunk_on() {
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let all = [&head[..], b"3\r\nabc\r\n3 \r\nabc\r\n0\r\n\r\n", GET].concat();
        for step in 1..=all.len() {
            let expected = [&head[..], b"3\r\nabc\r\n3 "].concat();
            assert_eq!(feed(&all, step), (expected, Some(GuardError::Broken)), "{step}");
        }
    }
}
