//! A request as the records that a FastCGI server gets: its variables, and its body from memory or from a file.

use crate::backends::buffering::request_body::{BodyFile, BufferedBody};
use crate::backends::cgi::{self, Variables};
use crate::backends::fastcgi::generation::{FastCgiGeneration, RemoteTarget};
use crate::backends::script::Script;
use crate::request::subject::Subject;
use bytes::Bytes;
use howdah_fastcgi::record::{HEADER_BYTES, MAX_CONTENT};
use howdah_fastcgi::request::{Parameters, body_header, body_record};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// A request. Several connections may get it, one after the other.
pub struct ServerRequest {
    /// The records before the body.
    begin: Vec<u8>,
    /// The body in memory.
    memory: Bytes,
    /// The body in a file.
    file: Option<BodyFile>,
    /// Whether the server is asked to keep the connection.
    pub keeps_connection: bool,
}

/// Produces the bytes of a request, a portion at a time.
pub struct RequestWriter<'r> {
    request: &'r ServerRequest,
    portion: Vec<u8>,
    /// How much of the portion, and of the body before it, was written.
    written: usize,
    offset: u64,
    is_last: bool,
}

/// Collects variables, without those that the application replaces.
struct ParameterCollector<'a> {
    parameters: Parameters,
    replaced: &'a BTreeMap<String, String>,
}

/// How much of a body is in one portion.
const PORTION_BYTES: usize = 64 * 1024 - 256;
const _: () = assert!(PORTION_BYTES <= MAX_CONTENT);

// === impl ServerRequest ===

impl ServerRequest {
    /// A request for this script. `body_len` is CONTENT_LENGTH.
    pub fn new(
        generation: &FastCgiGeneration,
        target: &RemoteTarget,
        subject: &Subject<'_>,
        script: &Script,
        body: BufferedBody,
        body_len: Option<u64>,
    ) -> ServerRequest {
        let mut collector = ParameterCollector { parameters: Parameters::default(), replaced: &generation.parameters };
        let remote;
        let script = match target.root == target.paths.root {
            true => script,
            false => {
                remote = remote_script(target, script);
                &remote
            }
        };
        cgi::write(&mut collector, subject, generation.server_software(), &target.root, script, body_len);
        let mut parameters = collector.parameters;
        for (name, value) in &generation.parameters {
            parameters.add(name.as_bytes(), value.as_bytes());
        }
        let keeps_connection = generation.keeps_connections();
        let (memory, file) = body.into_parts();
        ServerRequest { begin: parameters.begin(keeps_connection), memory, file, keeps_connection }
    }

    /// Begins to write it.
    pub fn writer(&self) -> RequestWriter<'_> {
        let mut portion =
            Vec::with_capacity(self.begin.len() + self.memory.len().min(PORTION_BYTES) + 2 * HEADER_BYTES);
        portion.extend_from_slice(&self.begin);
        let mut writer = RequestWriter { request: self, portion, written: 0, offset: 0, is_last: false };
        // A small body goes with the variables.
        if self.file.is_none() {
            writer.add_from_memory();
        }
        writer
    }
}

/// The script, as the server sees it.
fn remote_script(target: &RemoteTarget, script: &Script) -> Script {
    let (local, remote) = (target.paths.root.as_os_str().as_bytes(), target.root.as_os_str().as_bytes());
    let filename = match script.filename.strip_prefix(local) {
        Some(below) => [remote, below].concat(),
        None => script.filename.clone(),
    };
    Script { name: script.name.clone(), filename, path_info: script.path_info.clone() }
}

// === impl RequestWriter ===

impl RequestWriter<'_> {
    /// The next bytes; empty when all are written.
    ///
    /// # Errors
    /// When the file of the body fails.
    pub fn bytes(&mut self) -> io::Result<&[u8]> {
        if self.written == self.portion.len() && !self.is_last {
            self.portion.clear();
            self.written = 0;
            match &self.request.file {
                Some(BodyFile { file, length, .. }) => self.add_from_file(file, *length)?,
                None => self.add_from_memory(),
            }
        }
        Ok(&self.portion[self.written..])
    }

    /// This number of the bytes was written.
    pub fn wrote(&mut self, count: usize) {
        self.written += count;
    }

    /// Whether all bytes are written.
    pub fn is_complete(&self) -> bool {
        self.is_last && self.written == self.portion.len()
    }

    fn add_from_memory(&mut self) {
        let memory = &self.request.memory;
        let begin = (self.offset as usize).min(memory.len());
        let end = memory.len().min(begin + PORTION_BYTES);
        if begin < end {
            body_record(&mut self.portion, &memory[begin..end]);
        }
        self.offset = end as u64;
        if end == memory.len() {
            self.finish();
        }
    }

    fn add_from_file(&mut self, file: &File, length: u64) -> io::Result<()> {
        let next = (length - self.offset).min(PORTION_BYTES as u64) as u16;
        if next > 0 {
            self.portion.extend_from_slice(&body_header(next));
            self.portion.resize(HEADER_BYTES + usize::from(next), 0);
            file.read_exact_at(&mut self.portion[HEADER_BYTES..], self.offset)?;
            self.offset += u64::from(next);
        }
        if self.offset == length {
            self.finish();
        }
        Ok(())
    }

    fn finish(&mut self) {
        body_record(&mut self.portion, b"");
        self.is_last = true;
    }
}

// === impl ParameterCollector ===

impl Variables for ParameterCollector<'_> {
    fn restart(&mut self) {
        self.parameters = Parameters::default();
    }

    fn known(&mut self, code: u16, value: &[u8]) {
        self.named(cgi::name(code).as_bytes(), value);
    }

    fn named(&mut self, name: &[u8], value: &[u8]) {
        let is_replaced =
            !self.replaced.is_empty() && std::str::from_utf8(name).is_ok_and(|name| self.replaced.contains_key(name));
        if !is_replaced {
            self.parameters.add(name, value);
        }
    }
}
