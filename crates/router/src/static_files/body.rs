//! The body of a response that is a file, a part of one, or nothing.
//!
//! A file is read chunk by chunk as the connection takes it; each chunk comes from the page cache at once, or from a
//! thread that waits for the disk, for a limited time. A file that may wait is closed on such a thread, too. Content in
//! memory is sent in pieces of the same size. The length is known from the beginning.
//!
//! After each piece the other connections of the thread have their turn: sending a whole megabyte to a client that can
//! take it makes all others wait, and the slowest hundredth of the answers twice as slow.
//!
//! A file that gets shorter or cannot be read while it is sent is an error of the body: hyper closes the connection,
//! so that the client sees an incomplete response and not a wrong one. Bytes that a growing file gains are not sent.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    io, mem,
    ops::Range,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use howdah_blocking_work::mounts::never_waits;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

use crate::{
    file_access::{FilesUnavailable, Place, close_on_file_thread, on_file_thread},
    response::body::Source,
};

use super::read::{self, Filled, NotNow};

/// The bytes of a static file's response.
pub struct FileBody {
    /// The bytes that are not sent yet.
    remaining: u64,
    source: FileSource,
    /// The last poll returned a piece: the next poll lets other connections go first.
    had_its_turn: bool,
}

enum FileSource {
    Done,
    Memory(Bytes),
    /// Several pieces, none of which is empty.
    MemoryPieces(VecDeque<Bytes>),
    FileStream(Box<FileStream>),
}

/// A piece of a body.
pub(super) enum BodyPiece {
    Memory(Bytes),
    /// A part of the body's file.
    File(Range<u64>),
}

/// A read on another thread.
type Reading = Pin<Box<dyn Future<Output = Result<io::Result<Filled>, FilesUnavailable>> + Send>>;

struct FileStream {
    /// Always there until the drop.
    file: Option<Arc<OwnedFd>>,
    /// The device of the file: its number.
    device: u64,
    /// No piece is empty.
    pieces: VecDeque<BodyPiece>,
    /// A read of the first piece that waits for the disk.
    reading: Option<Reading>,
    /// The file system can read without waiting.
    reads_now: bool,
}

// === impl FileBody ===

impl FileBody {
    pub(super) fn empty() -> Self {
        Self::new(0, FileSource::Done)
    }

    pub(super) fn memory(bytes: Bytes) -> Self {
        match bytes.len() as u64 {
            0 => Self::empty(),
            length => Self::new(length, FileSource::Memory(bytes)),
        }
    }

    /// Pieces of memory, which are not copied: a client that reads nothing keeps only what others share.
    pub(super) fn memory_pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        match pieces.iter().map(|piece| piece.len() as u64).sum() {
            0 => Self::empty(),
            length => Self::new(length, FileSource::MemoryPieces(pieces)),
        }
    }

    pub(super) fn pieces(file: OwnedFd, device: u64, pieces: impl IntoIterator<Item = BodyPiece>) -> Self {
        let pieces: VecDeque<_> = pieces.into_iter().filter(|piece| piece.length() > 0).collect();
        let remaining = pieces.iter().map(BodyPiece::length).sum();
        if remaining == 0 {
            return Self::empty();
        }
        let file = Some(Arc::new(file));
        let stream = FileStream { file, device, pieces, reading: None, reads_now: true };
        Self::new(remaining, FileSource::FileStream(Box::new(stream)))
    }

    fn new(remaining: u64, source: FileSource) -> Self {
        Self { remaining, source, had_its_turn: false }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if mem::take(&mut self.had_its_turn) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let data = match &mut self.source {
            FileSource::Done => return Poll::Ready(None),
            FileSource::Memory(bytes) => Ok(bytes.split_to(bytes.len().min(read::CHUNK))),
            FileSource::MemoryPieces(pieces) => {
                let Some(first) = pieces.front_mut() else { return Poll::Ready(None) };
                let data = first.split_to(first.len().min(read::CHUNK));
                if first.is_empty() {
                    pieces.pop_front();
                }
                Ok(data)
            }
            FileSource::FileStream(stream) => ready!(stream.poll_data(cx)),
        };
        match &data {
            Ok(data) => self.remaining -= data.len() as u64,
            Err(_) => self.remaining = 0,
        }
        if self.remaining == 0 {
            self.source = FileSource::Done;
        } else {
            self.had_its_turn = true;
        }
        Poll::Ready(Some(data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

impl Source for FileBody {
    fn whole(&self) -> Option<&Bytes> {
        if let FileSource::Memory(bytes) = &self.source { Some(bytes) } else { None }
    }

    fn is_flushed_on_pause(&self) -> bool {
        false
    }
}

impl fmt::Debug for FileBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FileBody").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}

// === impl BodyPiece ===

impl BodyPiece {
    fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }
}

// === impl FileStream ===

impl FileStream {
    /// Bytes of the first piece, at least one: the caller polls only while bytes remain.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let range = match self.pieces.front_mut() {
            Some(BodyPiece::File(range)) => range,
            Some(BodyPiece::Memory(bytes)) => {
                let bytes = mem::take(bytes);
                self.pieces.pop_front();
                return Poll::Ready(Ok(bytes));
            }
            None => return Poll::Ready(Err(read::ended_early())),
        };
        let data = loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                break read.map_err(|error| io::Error::other(error.to_string()))??.into_bytes();
            }
            let length = range.end - range.start;
            let Some(file) = &self.file else { return Poll::Ready(Err(read::ended_early())) };
            if self.reads_now {
                match read::chunk_now(file, range.start, length) {
                    Ok(data) => break data,
                    Err(NotNow::Cold) => {}
                    Err(NotNow::Unsupported) => self.reads_now = false,
                }
            }
            let (file, offset, buffer) = (Arc::clone(file), range.start, read::take_buffer(length));
            let read = move || read::chunk_waiting(&file, offset, buffer);
            match Handle::try_current() {
                Ok(_) => self.reading = Some(Box::pin(on_file_thread(Place::Device(self.device), read))),
                // Outside of a runtime there is no event loop to stall.
                Err(_) => break read()?.into_bytes(),
            }
        };
        if data.is_empty() {
            return Poll::Ready(Err(read::ended_early()));
        }
        range.start += data.len() as u64;
        if range.start == range.end {
            self.pieces.pop_front();
        }
        Poll::Ready(Ok(data))
    }
}

impl Drop for FileStream {
    fn drop(&mut self) {
        // A read that has no thread yet holds the file, too.
        self.reading = None;
        if let Some(file) = self.file.take().filter(|file| !never_waits(file)) {
            close_on_file_thread(&Place::Device(self.device), file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::{fs::File, io::Write, task::Waker};

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn whole(file: File) -> FileBody {
        let length = file.metadata().unwrap().len();
        FileBody::pieces(file.into(), 1, [BodyPiece::File(0..length)])
    }

    #[tokio::test]
    async fn a_file_arrives_whole() {
        for length in [0, 1, read::CHUNK - 1, read::CHUNK, read::CHUNK + 1, 3 * read::CHUNK + 5] {
            let body = whole(file(&content(length)));
            assert_eq!(body.size_hint().exact(), Some(length as u64));
            assert_eq!(body.is_end_stream(), length == 0);
            assert_eq!(body.collect().await.unwrap().to_bytes(), content(length), "{length}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_not_in_memory_arrives() {
        let file = file(&content(3 * read::CHUNK));
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert_eq!(whole(file).collect().await.unwrap().to_bytes(), content(3 * read::CHUNK));
    }

    #[tokio::test]
    async fn a_file_arrives_where_every_read_must_wait() {
        let mut body = whole(file(&content(3 * read::CHUNK)));
        let FileSource::FileStream(stream) = &mut body.source else { panic!("a stream") };
        stream.reads_now = false;
        assert_eq!(body.collect().await.unwrap().to_bytes(), content(3 * read::CHUNK));
    }

    #[tokio::test]
    async fn the_remaining_length_is_exact_after_each_frame() {
        let mut body = FileBody::pieces(
            file(b"0123456789").into(),
            1,
            [
                BodyPiece::Memory("ab".into()),
                BodyPiece::File(2..5),
                BodyPiece::Memory("".into()),
                BodyPiece::File(9..10),
            ],
        );
        for (left, expected) in [(6, "ab"), (4, "234"), (1, "9")] {
            assert_eq!(body.size_hint().exact(), Some(left));
            assert!(!body.is_end_stream());
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), expected);
        }
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_file_that_shrinks_is_an_error() {
        for reads_now in [true, false] {
            let file = file(&content(2 * read::CHUNK));
            let mut body = whole(file.try_clone().unwrap());
            if let FileSource::FileStream(stream) = &mut body.source {
                stream.reads_now = reads_now;
            }
            body.frame().await.unwrap().unwrap();
            file.set_len(read::CHUNK as u64).unwrap();
            assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert!(body.frame().await.is_none());
        }
    }

    #[tokio::test]
    async fn bytes_that_a_file_gains_are_not_sent() {
        let mut file = file(b"0123");
        let body = whole(file.try_clone().unwrap());
        file.write_all(b"4567").unwrap();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "0123");
    }

    #[tokio::test]
    async fn memory_goes_out_in_pieces() {
        let content = content(2 * read::CHUNK + 1);
        let body = FileBody::memory(content.clone().into());
        assert_eq!(body.size_hint().exact(), Some(content.len() as u64));
        assert_eq!(body.collect().await.unwrap().to_bytes(), content);
    }

    #[tokio::test]
    async fn others_have_their_turn_after_each_piece() {
        let content = content(2 * read::CHUNK + 1);
        let file = file(&content);
        for mut body in [FileBody::memory(content.clone().into()), whole(file)] {
            let mut context = Context::from_waker(Waker::noop());
            let mut polls = Vec::new();
            while !body.is_end_stream() {
                polls.push(match Pin::new(&mut body).poll_frame(&mut context) {
                    Poll::Ready(frame) => frame.unwrap().unwrap().into_data().unwrap().len(),
                    Poll::Pending => 0,
                });
                // If the file system cannot read without waiting, a thread reads.
                tokio::task::yield_now().await;
            }
            let pieces: Vec<_> = polls.iter().copied().filter(|length| *length > 0).collect();
            assert_eq!(pieces, [read::CHUNK, read::CHUNK, 1]);
            assert!(polls.windows(2).all(|pair| pair[0] == 0 || pair[1] == 0));
        }
    }

    #[tokio::test]
    async fn a_small_file_is_one_frame() {
        let mut body = FileBody::memory("abc".into());
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        assert!(body.is_end_stream() && body.frame().await.is_none());
        assert!(FileBody::memory(Bytes::new()).is_end_stream());
        assert!(FileBody::empty().is_end_stream());
    }
}
