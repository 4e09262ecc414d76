//! A body that is compressed while it is sent.
//!
//! Its source is polled as the client takes it, and compressed in pieces, so that the event loop is never blocked for
//! long. A slow encoder works on other threads, because one piece may cost it half a second. When the source is pending,
//! the encoder is flushed, so that bytes that a script has flushed reach the client. The pauses of a file are no reason to
//! flush.

use super::encoder::Encoder;
use crate::resources::counted_memory::CountedMemory;
use crate::resources::slow_work::do_elsewhere;
use bytes::Bytes;
use http_body::{Body, Frame};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::runtime::Handle;

/// A compressed body.
pub struct CompressedBody<B> {
    source: B,
    /// Whether to flush the encoder when the source is pending.
    flushes: bool,
    source_ended: bool,
    /// Bytes of the source that are not written to the encoder yet.
    input: Bytes,
    state: EncoderState,
    /// Whether bytes were written since the last flush.
    is_dirty: bool,
    /// How many bytes were written since other tasks had their turn.
    since_turn: usize,
    _memory: CountedMemory,
}

enum EncoderState {
    Ready(Box<Encoder>),
    /// The encoder works on another thread, or waits for one.
    Away(Pin<Box<dyn Future<Output = io::Result<Done>>>>),
    Ended,
}

/// A job for an encoder.
enum Job {
    Write(Bytes),
    Flush,
    Finish,
}

/// The result of a job: the encoder, unless it has finished, and compressed bytes.
type Done = (Option<Box<Encoder>>, Bytes);

/// The limit for the bytes that are compressed at once, and until other tasks have their turn.
const PIECE_BYTES: usize = 64 * 1024;
/// The smallest frame, unless the source pauses.
const FRAME_BYTES: usize = 8 * 1024;

// === impl CompressedBody ===

impl<B> CompressedBody<B> {
    /// Compresses the source's bytes. The encoder has this memory.
    pub fn new(source: B, encoder: Encoder, memory: CountedMemory, flushes: bool) -> CompressedBody<B> {
        CompressedBody {
            source,
            flushes,
            source_ended: false,
            input: Bytes::new(),
            state: EncoderState::Ready(Box::new(encoder)),
            is_dirty: false,
            since_turn: 0,
            _memory: memory,
        }
    }
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> CompressedBody<B> {
    /// The next job for the encoder.
    fn poll_job(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Job>> {
        loop {
            if !self.input.is_empty() {
                let length = self.input.len().min(PIECE_BYTES);
                return Poll::Ready(Ok(Job::Write(self.input.split_to(length))));
            }
            if self.source_ended || self.source.is_end_stream() {
                return Poll::Ready(Ok(Job::Finish));
            }
            match Pin::new(&mut self.source).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => self.input = frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => self.source_ended = true,
                Poll::Pending if self.flushes && self.is_dirty => return Poll::Ready(Ok(Job::Flush)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Compressed bytes, or `None` at the end. They may be empty while there is more to do.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let done = match &mut self.state {
            EncoderState::Ended => return Poll::Ready(None),
            EncoderState::Away(job) => ready!(job.as_mut().poll(context)),
            EncoderState::Ready(_) => {
                if self.since_turn >= PIECE_BYTES {
                    self.since_turn = 0;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let job = match ready!(self.poll_job(context)) {
                    Ok(job) => job,
                    Err(error) => return self.fail(error),
                };
                let EncoderState::Ready(encoder) = std::mem::replace(&mut self.state, EncoderState::Ended) else {
                    unreachable!("matched above");
                };
                let written = if let Job::Write(bytes) = &job { bytes.len() } else { 0 };
                self.is_dirty = written > 0;
                self.since_turn += written;
                match Handle::try_current() {
                    Ok(_) if encoder.is_slow() => {
                        let done = do_elsewhere(|| job.run(encoder));
                        self.state = EncoderState::Away(Box::pin(async { done.await? }));
                        return Poll::Ready(Some(Ok(Bytes::new())));
                    }
                    _ => job.run(encoder),
                }
            }
        };
        match done {
            Ok((encoder, bytes)) => {
                self.state = encoder.map_or(EncoderState::Ended, EncoderState::Ready);
                Poll::Ready(Some(Ok(bytes)))
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: io::Error) -> Poll<Option<io::Result<Bytes>>> {
        self.state = EncoderState::Ended;
        Poll::Ready(Some(Err(error)))
    }
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Body for CompressedBody<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            match ready!(self.poll_bytes(context)) {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                next => return Poll::Ready(next.map(|bytes| bytes.map(Frame::data))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, EncoderState::Ended)
    }
}

// === impl Job ===

impl Job {
    fn run(self, mut encoder: Box<Encoder>) -> io::Result<Done> {
        match &self {
            Job::Write(bytes) => encoder.write(bytes)?,
            Job::Flush => encoder.flush()?,
            Job::Finish => return Ok((None, encoder.finish()?.into())),
        }
        let is_enough = matches!(self, Job::Flush) || encoder.ready_bytes() >= FRAME_BYTES;
        let bytes = if is_enough { encoder.take() } else { Bytes::new() };
        Ok((Some(encoder), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoder::tests::{decode, text};
    use super::super::memory;
    use super::*;
    use howdah_config::Encoding;
    use http_body_util::BodyExt;
    use std::collections::VecDeque;

    const ENCODINGS: [Encoding; 6] = [
        Encoding::Zstd(3),
        Encoding::Zstd(19),
        Encoding::Brotli(4),
        Encoding::Brotli(11),
        Encoding::Gzip(6),
        Encoding::Deflate(6),
    ];

    /// Frames and pauses, in this order.
    struct ScriptedBody(VecDeque<Option<io::Result<Bytes>>>);

    impl Body for ScriptedBody {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            match self.0.pop_front() {
                Some(Some(next)) => Poll::Ready(Some(next.map(Frame::data))),
                Some(None) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(None),
            }
        }
    }

    fn compressed(
        encoding: Encoding,
        flushes: bool,
        script: impl IntoIterator<Item = Option<io::Result<Bytes>>>,
    ) -> CompressedBody<ScriptedBody> {
        let encoder = Encoder::new(encoding, None).unwrap();
        let memory = memory::take(Encoding::Gzip(1), None).unwrap();
        CompressedBody::new(ScriptedBody(script.into_iter().collect()), encoder, memory, flushes)
    }

    #[tokio::test]
    async fn a_body_arrives_whole() {
        let whole = Bytes::from(text(300_000));
        for encoding in ENCODINGS {
            let frames = [0..1, 1..100_000, 100_000..100_000, 100_000..300_000];
            let script = frames.map(|range| Some(Ok(whole.slice(range))));
            let body = compressed(encoding, true, script).collect().await.unwrap().to_bytes();
            assert!(body.len() < whole.len() / 2 && decode(encoding, &body).unwrap() == whole, "{encoding:?}");
            let body = compressed(encoding, true, []).collect().await.unwrap().to_bytes();
            assert_eq!(decode(encoding, &body).unwrap(), b"", "{encoding:?}");
        }
    }

    #[tokio::test]
    async fn a_pause_flushes_the_encoder() {
        for encoding in ENCODINGS {
            let script = || [Some(Ok("one".into())), None, None, Some(Ok("two".into())), None];
            let mut frames = 0;
            let mut body = compressed(encoding, true, script());
            while let Some(frame) = body.frame().await {
                assert!(!frame.unwrap().into_data().unwrap().is_empty());
                frames += 1;
            }
            assert_eq!(frames, 3, "{encoding:?}");
            assert!(body.is_end_stream() && body.frame().await.is_none());
            let mut body = compressed(encoding, false, script());
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(decode(encoding, &frame).unwrap(), b"onetwo", "{encoding:?}");
        }
    }

    #[tokio::test]
    async fn an_error_of_the_source_is_the_bodys() {
        for encoding in ENCODINGS {
            let script = [Some(Ok("one".into())), Some(Err(io::ErrorKind::BrokenPipe.into()))];
            let mut body = compressed(encoding, true, script);
            assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert!(body.frame().await.is_none());
        }
    }

    #[tokio::test]
    async fn other_tasks_have_their_turn() {
        let mut body = compressed(Encoding::Gzip(1), false, [Some(Ok(Bytes::from(text(1 << 20))))]);
        let mut turns = 0;
        let mut frames = 0;
        std::future::poll_fn(|context| {
            loop {
                match Pin::new(&mut body).poll_frame(context) {
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Ready(Some(frame)) => frames += usize::from(frame.is_ok()),
                    Poll::Pending => {
                        turns += 1;
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        assert!(turns >= 15 && frames >= 10, "{turns} {frames}");
    }
}
