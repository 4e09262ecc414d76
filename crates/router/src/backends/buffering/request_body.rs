//! A request's body, read to its end before a worker is taken: in memory, and beyond `body_buffer_size` in an unlinked
//! file.

use crate::backends::buffering::body_disk::{BodyOnDisk, DiskNotice};
use crate::request::incoming::IncomingBody;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_config::Http;
use http_body_util::BodyExt;
use hyper::body::Body;
use std::fs::File;
use std::io::{self, Write};
use tokio::time::timeout;

/// A complete body.
pub struct BufferedBody {
    /// The body, or nothing if it is in a file.
    memory: Vec<u8>,
    file: Option<BodyFile>,
}

/// A body that is being received.
struct UnfinishedBody {
    memory: Vec<u8>,
    /// The file, and its length until now.
    file: Option<(File, u64)>,
    disk: BodyOnDisk,
}

/// The file of a complete body.
pub struct BodyFile {
    /// The file.
    pub file: File,
    /// Its length in bytes.
    pub length: u64,
    /// It counts until the file is closed.
    disk: BodyOnDisk,
}

// === impl BodyFile ===

impl BodyFile {
    /// For the request that waits for a worker.
    pub fn notice(&self) -> DiskNotice {
        self.disk.notice()
    }
}

// === impl BufferedBody ===

impl BufferedBody {
    /// No body.
    pub const EMPTY: BufferedBody = BufferedBody { memory: Vec::new(), file: None };

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.file.as_ref().map_or(self.memory.len() as u64, |file| file.length)
    }

    /// For the request that waits for a worker.
    pub fn notice(&self) -> DiskNotice {
        self.file.as_ref().map_or(DiskNotice::NONE, BodyFile::notice)
    }

    /// Its bytes in memory, and its file if it is in a file.
    pub fn into_parts(self) -> (Bytes, Option<BodyFile>) {
        (self.memory.into(), self.file)
    }
}

/// Reads a body to its end.
///
/// # Errors
/// 413 beyond `max_body_size`, 400 when the client breaks off or its framing is wrong, 408 when it stalls for
/// `body_read_timeout`, 503 when it has to give way to others on the disk, 500 when the file can't be written.
pub async fn read(mut body: IncomingBody, limits: &Http) -> Result<BufferedBody, Failure> {
    if body.size_hint().lower() > limits.max_body_size {
        return Err(Failure::BodyTooLarge);
    }
    let mut unfinished =
        UnfinishedBody { memory: Vec::new(), file: None, disk: BodyOnDisk::new("settings/http/body_temp_path") };
    let mut total = 0u64;
    loop {
        let next = unfinished.disk.next(timeout(limits.body_read_timeout, body.frame())).await?;
        let next = next.map_err(|_| Failure::RequestTimeout)?;
        let Some(frame) = next else { break };
        let frame = frame.map_err(|_| Failure::BadRequest("the body breaks off, or its framing is wrong"))?;
        // Trailers are dropped: CGI has no place for them.
        let Ok(data) = frame.into_data() else { continue };
        total += data.len() as u64;
        if total > limits.max_body_size {
            return Err(Failure::BodyTooLarge);
        }
        unfinished.push(&data, limits).map_err(|error| {
            tracing::error!(%error, "cannot write a request's body to a temporary file; see settings/http/body_temp_path");
            Failure::Internal
        })?;
    }
    Ok(unfinished.finish())
}

// === impl UnfinishedBody ===

impl UnfinishedBody {
    fn push(&mut self, data: &[u8], limits: &Http) -> io::Result<()> {
        let UnfinishedBody { memory, file, disk } = self;
        if file.is_none() && (memory.len() + data.len()) as u64 > limits.body_buffer_size {
            let mut new = match &limits.body_temp_path {
                Some(folder) => tempfile::tempfile_in(folder)?,
                None => tempfile::tempfile()?,
            };
            disk.add_file(&new);
            disk.count(&new, memory.len() as u64);
            new.write_all(memory)?;
            *file = Some((new, memory.len() as u64));
            *memory = Vec::new();
        }
        match file {
            Some((file, length)) => {
                disk.count(file, data.len() as u64);
                file.write_all(data)?;
                *length += data.len() as u64;
            }
            None => memory.extend_from_slice(data),
        }
        Ok(())
    }

    fn finish(self) -> BufferedBody {
        let UnfinishedBody { memory, file, disk } = self;
        BufferedBody { memory, file: file.map(|(file, length)| BodyFile { file, length, disk }) }
    }
}
