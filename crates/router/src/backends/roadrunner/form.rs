//! A form, as workers of RoadRunner get it: the fields as JSON, and the uploaded files with their paths.
//!
//! A form is read while it arrives. Its files go to the disk, and its fields to memory: more than [`MAX_FIELD_BYTES`] of
//! fields are answered 413, and so are more than [`MAX_PARTS`] parts, and names with too many arrays. A form that is not
//! valid is answered 400. Bytes of fields that are not UTF-8 are replaced, because JSON is.
//!
//! The large forms of all requests have a limit of memory, beyond which they are answered 503. Their fields and the names of their
//! files become JSON on another thread: one field may have megabytes.

use crate::backends::buffering::body_disk::{BodyOnDisk, DiskNotice};
use crate::backends::roadrunner::multipart::{MultipartParser, MultipartPiece, PartHead};
use crate::backends::roadrunner::upload::{Upload, UploadWriter};
use crate::file_access::FILE_THREADS;
use crate::report::Throttle;
use crate::request::incoming::IncomingBody;
use crate::resources::counted_memory::CountedMemory;
use crate::resources::slow_work::do_elsewhere;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_config::{Http, parse_arguments};
use howdah_goridge::tree::{MAX_ARRAYS, TooManyArrays, Tree};
use http::Method;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::Body;
use memchr::memchr_iter;
use serde_json::value::RawValue;
use std::path::Path;
use std::str::Utf8Chunk;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempPath;
use tokio::task::yield_now;
use tokio::time::timeout;

/// The kind of form in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormKind {
    /// `application/x-www-form-urlencoded`.
    UrlEncoded,
    /// `multipart/form-data`.
    Multipart,
}

/// A form.
#[derive(Debug, Default)]
pub struct Form {
    /// The fields as JSON; empty if there are none.
    pub fields: Vec<u8>,
    /// The uploaded files as JSON; `None` if there are none.
    pub uploads: Option<Box<RawValue>>,
    /// The files.
    pub files: FormFiles,
    /// The memory of the fields, if they are large.
    pub memory: FieldMemory,
}

/// The files of a form. They are removed when this is dropped, and count on the disk until then.
#[derive(Debug)]
pub struct FormFiles {
    /// Their drop removes them.
    paths: Vec<TempPath>,
    disk: BodyOnDisk,
}

/// The memory of the fields of a large form, as all forms together count it.
#[derive(Debug, Default)]
pub struct FieldMemory {
    parts: Vec<CountedMemory>,
    /// The weight of fields that there is memory for, beyond that of a small form.
    weight: usize,
}

/// A form that is being received.
#[derive(Default)]
struct FormWriter {
    fields: Vec<(String, Vec<u8>)>,
    uploads: Tree<Upload>,
    files: FormFiles,
    /// The bytes of the names and values of fields, and of the names and types of files.
    field_bytes: usize,
    /// Their [`weight`].
    weight: usize,
    /// The most arrays that they may make.
    arrays: usize,
    memory: FieldMemory,
    parts: usize,
    part: Part,
}

/// The part that is being received.
#[derive(Default)]
enum Part {
    #[default]
    Skipped,
    Field(String, Vec<u8>),
    File(String, UploadWriter),
    NoFile(String),
}

/// The time for which a form has had the event loop to itself.
struct Turn(Instant);

/// How long a form may have the event loop to itself: others wait.
const LONGEST_TURN: Duration = Duration::from_millis(2);
/// The most bytes of the names and values of fields.
const MAX_FIELD_BYTES: usize = 16 * 1024 * 1024;
/// The longest name of a file, and of its field, in bytes. File systems have 255.
const MAX_FILE_NAME: usize = 1024;
/// The longest type of a file, in bytes.
const MAX_FILE_TYPE: usize = 256;
/// The most fields and files.
const MAX_PARTS: usize = 100_000;
/// No more files than this are removed without another thread.
const FEW_FILES: usize = 32;
/// The most files: each is one of the machine's files.
const MAX_FILES: usize = 1000;
/// A form whose fields have no more weight than this is small: it is not counted, and becomes JSON at once.
const SMALL: usize = 64 * 1024;
/// The fields, their parts, and their JSON, whose vector may have room for twice as much.
const COPIES: usize = 4;
/// The weight of a field, or of a file, beside its texts.
const WEIGHT_OF_FIELD: usize = 64;
/// The weight of an array (`a[b]`), which is a map.
const WEIGHT_OF_ARRAY: usize = 128;
/// The most memory of all large forms.
const MOST_OF_ALL: usize = 512 * 1024 * 1024;
/// One request has at most this part of what others have left...
const SHARE_OF_FORM: usize = 2;
/// ...or this number of bytes.
const WITHOUT_SHARE: usize = 16 * 1024 * 1024;
/// `Retry-After` beyond that, in seconds.
const RETRY_AFTER: u32 = 1;
/// Where the folder of uploads comes from.
const UPLOADS: &str = "TMPDIR of howdah";

static MEMORY_OF_ALL: AtomicUsize = AtomicUsize::new(0);
static REFUSED: LazyLock<Throttle> = LazyLock::new(|| Throttle::new(Duration::from_secs(60)));

/// The kind of form in a request with a body; `None` if it is not one.
pub fn kind(parts: &Parts) -> Option<FormKind> {
    if matches!(parts.method, Method::HEAD | Method::OPTIONS) {
        return None;
    }
    let content_type = parts.headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
    let kinds =
        [("application/x-www-form-urlencoded", FormKind::UrlEncoded), ("multipart/form-data", FormKind::Multipart)];
    kinds.into_iter().find(|(name, _)| content_type.contains(name)).map(|(_, kind)| kind)
}

/// Reads a form to its end. Its files are made in `folder`.
///
/// # Errors
/// 400, 408 and 413 for errors of the form or its body, 503 when it has to give way to others on the disk, 500 when a file
/// cannot be written.
pub async fn read(
    kind: FormKind,
    parts: &Parts,
    body: IncomingBody,
    folder: &Path,
    limits: &Http,
) -> Result<Form, Failure> {
    match kind {
        FormKind::UrlEncoded => read_url_encoded(body, limits).await,
        FormKind::Multipart => read_multipart(parts, body, folder, limits).await,
    }
}

async fn read_url_encoded(mut body: IncomingBody, limits: &Http) -> Result<Form, Failure> {
    let mut text = Vec::new();
    let (mut total, mut total_weight, mut memory) = (0, 0, FieldMemory::default());
    let (mut fields, mut arrays) = (1, 0);
    let mut disk = BodyOnDisk::new(UPLOADS);
    while let Some(data) = next(&mut body, &mut total, limits, &mut disk).await? {
        if text.len() + data.len() > MAX_FIELD_BYTES {
            return Err(Failure::BodyTooLarge);
        }
        total_weight += weight(&data);
        // An escape that two pieces share is not counted: there are few of these.
        arrays += arrays_in(&data);
        fields += data.iter().filter(|byte| **byte == b'&').count();
        if fields > MAX_PARTS {
            return Err(Failure::BodyTooLarge);
        }
        memory.hold(total_weight + weight_of(fields, arrays))?;
        text.extend_from_slice(&data);
    }
    // The work has the memory: it goes on if the client leaves.
    let as_json = move || Ok((fields_of_text(&text)?, memory));
    let (fields, memory) = made(total_weight + weight_of(fields, arrays), as_json).await?;
    Ok(Form { fields, memory, ..Form::default() })
}

/// The JSON of a text with fields.
fn fields_of_text(text: &[u8]) -> Result<Vec<u8>, Failure> {
    // Escaped bytes are decoded below. Others should be UTF-8.
    let text = String::from_utf8_lossy(text);
    let mut fields = Tree::default();
    for argument in parse_arguments(&text) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        fields.insert(&text(&argument.name), text(&argument.value)).map_err(too_large)?;
    }
    json(&fields)
}

/// The JSON of these fields.
fn fields_of_parts(parts: Vec<(String, Vec<u8>)>) -> Result<Vec<u8>, Failure> {
    let mut fields = Tree::default();
    for (name, value) in parts {
        fields.insert(&name, String::from_utf8_lossy(&value).into_owned()).map_err(too_large)?;
    }
    json(&fields)
}

/// The result of this work on fields of this weight.
async fn made<T: Send + 'static>(
    weight: usize,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    if weight <= SMALL { work() } else { do_elsewhere(work).await.map_err(|_| Failure::Internal)? }
}

async fn read_multipart(parts: &Parts, mut body: IncomingBody, folder: &Path, limits: &Http) -> Result<Form, Failure> {
    const BAD: Failure = Failure::BadRequest("the parts of the form");
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parser = MultipartParser::new(content_type).ok_or(BAD)?;
    let mut form = FormWriter::default();
    let mut total = 0;
    let mut turn = Turn::begin();
    while let Some(data) = next(&mut body, &mut total, limits, &mut form.files.disk).await? {
        parser.push(&data);
        while let Some(piece) = parser.next().map_err(|_| BAD)? {
            turn.pause_if_long().await;
            form.take(piece, folder)?;
        }
    }
    if !parser.has_ended() {
        return Err(BAD);
    }
    let weight = form.whole_weight();
    let FormWriter { fields, uploads, files, memory, .. } = form;
    let as_json = move || Ok((fields_of_parts(fields)?, uploads_as_json(&uploads)?, memory));
    let (fields, uploads, memory) = made(weight, as_json).await?;
    Ok(Form { fields, uploads, files, memory })
}

/// The next bytes of a body.
async fn next(
    body: &mut IncomingBody,
    total: &mut u64,
    limits: &Http,
    disk: &mut BodyOnDisk,
) -> Result<Option<Bytes>, Failure> {
    if body.size_hint().lower().saturating_add(*total) > limits.max_body_size {
        return Err(Failure::BodyTooLarge);
    }
    loop {
        let next = disk.next(timeout(limits.body_read_timeout, body.frame())).await?;
        let next = next.map_err(|_| Failure::RequestTimeout)?;
        let Some(frame) = next else { return Ok(None) };
        let frame = frame.map_err(|_| Failure::BadRequest("the body breaks off, or its framing is wrong"))?;
        // Trailers are dropped.
        let Ok(data) = frame.into_data() else { continue };
        *total += data.len() as u64;
        return if *total > limits.max_body_size { Err(Failure::BodyTooLarge) } else { Ok(Some(data)) };
    }
}

/// How much memory a text takes in relation to letters, roughly: in JSON, a control character has six bytes, and a byte that is not
/// UTF-8 three. A character that is divided between two texts counts as bytes that are not.
fn weight(text: &[u8]) -> usize {
    let of_byte = |byte: u8| match byte {
        b'\n' | b'\r' | b'\t' | b'"' | b'\\' => 2,
        0..b' ' => 4,
        _ => 1,
    };
    let of_chunk = |chunk: Utf8Chunk<'_>| chunk.valid().bytes().map(of_byte).sum::<usize>() + 3 * chunk.invalid().len();
    text.utf8_chunks().map(of_chunk).sum()
}

/// The most arrays that a name, or the names of a text, may make. They may name the same ones.
fn arrays_in(text: &[u8]) -> usize {
    let escaped = memchr_iter(b'%', text)
        .filter(|at| text[*at..].get(1..3).is_some_and(|rest| rest.eq_ignore_ascii_case(b"5b")))
        .count();
    text.iter().filter(|byte| **byte == b'[').count() + escaped
}

/// The weight of this number of fields and arrays, beside that of their texts. A form with more arrays is refused: fields and files
/// have arrays of their own.
fn weight_of(fields: usize, arrays: usize) -> usize {
    WEIGHT_OF_FIELD * fields + WEIGHT_OF_ARRAY * arrays.min(2 * MAX_ARRAYS)
}

/// As in RoadRunner, a form without fields is an empty body.
fn json(fields: &Tree<String>) -> Result<Vec<u8>, Failure> {
    if fields.is_empty() { Ok(Vec::new()) } else { serde_json::to_vec(fields).map_err(|_| Failure::Internal) }
}

fn uploads_as_json(uploads: &Tree<Upload>) -> Result<Option<Box<RawValue>>, Failure> {
    let json = (!uploads.is_empty()).then(|| serde_json::value::to_raw_value(uploads)).transpose();
    json.map_err(|error| {
        tracing::error!(%error, "an uploaded file cannot be passed on: its path is no text; see TMPDIR");
        Failure::Internal
    })
}

// === impl FormFiles ===

impl FormFiles {
    /// For the request that waits for a worker.
    pub fn notice(&self) -> DiskNotice {
        self.disk.notice()
    }
}

impl Default for FormFiles {
    fn default() -> FormFiles {
        FormFiles { paths: Vec::new(), disk: BodyOnDisk::new(UPLOADS) }
    }
}

impl Drop for FormFiles {
    fn drop(&mut self) {
        // To remove many takes tens of milliseconds, which others on this thread must not wait for.
        if self.paths.len() > FEW_FILES {
            let FormFiles { paths, disk } = &mut *self;
            let (paths, disk) = (std::mem::take(paths), std::mem::replace(disk, BodyOnDisk::new(UPLOADS)));
            FILE_THREADS.spawn_detached(move || drop((paths, disk)));
        }
    }
}

// === impl FieldMemory ===

impl FieldMemory {
    /// Has memory for fields of this weight, in all.
    ///
    /// # Errors
    /// 503 if other forms have the memory.
    fn hold(&mut self, weight: usize) -> Result<(), Failure> {
        if COPIES * weight > MOST_OF_ALL / SHARE_OF_FORM {
            return Err(Failure::BodyTooLarge);
        }
        while weight > SMALL + self.weight {
            // In few parts, and not much more than it needs.
            let more = (self.weight / 8).max(SMALL);
            self.take(COPIES * more)?;
            self.weight += more;
        }
        Ok(())
    }

    /// Takes this number of bytes. A large request has no more than a part of what others have left: a few slow clients would
    /// have all of it otherwise.
    fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        let others = MEMORY_OF_ALL.load(Ordering::Relaxed).saturating_sub(COPIES * self.weight);
        let most = (MOST_OF_ALL.saturating_sub(others) / SHARE_OF_FORM).max(WITHOUT_SHARE);
        let has_room = COPIES * self.weight + bytes <= most;
        let part = has_room.then(|| CountedMemory::take(&MEMORY_OF_ALL, bytes, MOST_OF_ALL)).flatten();
        let Some(part) = part else {
            if REFUSED.is_due() {
                tracing::warn!(
                    "large forms and heads of all requests have {MOST_OF_ALL} bytes of memory, and a large one half of what \
                     is left; answering 503"
                );
            }
            return Err(Failure::Unavailable { retry_after: RETRY_AFTER });
        };
        self.parts.push(part);
        Ok(())
    }

    /// Counts the head of a request for a worker: a large one has several times the bytes of the client's.
    ///
    /// # Errors
    /// 503 if forms and other heads have the memory.
    pub fn hold_head(&mut self, bytes: usize) -> Result<(), Failure> {
        if bytes > SMALL { self.take(bytes) } else { Ok(()) }
    }
}

// === impl Turn ===

impl Turn {
    fn begin() -> Turn {
        Turn(Instant::now())
    }

    async fn pause_if_long(&mut self) {
        if self.0.elapsed() > LONGEST_TURN {
            yield_now().await;
            *self = Turn::begin();
        }
    }
}

// === impl FormWriter ===

impl FormWriter {
    fn take(&mut self, piece: MultipartPiece, folder: &Path) -> Result<(), Failure> {
        match piece {
            MultipartPiece::Part(head) => {
                self.parts += 1;
                if self.parts > MAX_PARTS {
                    return Err(Failure::BodyTooLarge);
                }
                self.part = self.begin(head, folder)?;
            }
            MultipartPiece::Data(data) => match &mut self.part {
                Part::Skipped | Part::NoFile(_) => {}
                Part::Field(_, value) => {
                    value.extend_from_slice(&data);
                    self.hold(&data)?;
                }
                Part::File(_, file) => file.write(&data, &mut self.files.disk).map_err(|error| unwritten(&error))?,
            },
            MultipartPiece::End => match std::mem::take(&mut self.part) {
                Part::Skipped => {}
                Part::NoFile(name) => self.uploads.insert(&name, Upload::without_file()).map_err(too_large)?,
                Part::Field(name, value) => self.fields.push((name, value)),
                Part::File(name, file) => {
                    let (upload, path) = file.finish();
                    self.files.paths.push(path);
                    self.uploads.insert(&name, upload).map_err(too_large)?;
                }
            },
        }
        Ok(())
    }

    /// The weight of the fields and files until now.
    fn whole_weight(&self) -> usize {
        self.weight + weight_of(self.parts, self.arrays)
    }

    /// Counts a text that stays in memory.
    fn hold(&mut self, text: &[u8]) -> Result<(), Failure> {
        self.field_bytes += text.len();
        if self.field_bytes > MAX_FIELD_BYTES {
            return Err(Failure::BodyTooLarge);
        }
        self.weight += weight(text);
        self.memory.hold(self.whole_weight())
    }

    fn begin(&mut self, head: PartHead, folder: &Path) -> Result<Part, Failure> {
        let Some(name) = head.name else { return Ok(Part::Skipped) };
        self.arrays += arrays_in(name.as_bytes());
        self.hold(name.as_bytes())?;
        match head.file_name {
            None => Ok(Part::Field(name, Vec::new())),
            // The names of files are a part of the context, which is copied on the event loop.
            Some(_) if name.len() > MAX_FILE_NAME => {
                Err(Failure::BadRequest("the name of a field with a file in the form is too long"))
            }
            Some(file) if file.is_empty() => Ok(Part::NoFile(name)),
            Some(_) if self.files.paths.len() >= MAX_FILES => Err(Failure::BodyTooLarge),
            Some(file) => {
                let content_type = head.content_type.unwrap_or_default();
                if file.len() > MAX_FILE_NAME || content_type.len() > MAX_FILE_TYPE {
                    return Err(Failure::BadRequest("the name or the type of a file in the form is too long"));
                }
                self.hold(file.as_bytes())?;
                self.hold(content_type.as_bytes())?;
                let writer = UploadWriter::create(folder, file, content_type, &mut self.files.disk);
                Ok(Part::File(name, writer.map_err(|error| unwritten(&error))?))
            }
        }
    }
}

fn too_large(_: TooManyArrays) -> Failure {
    Failure::BodyTooLarge
}

fn unwritten(error: &std::io::Error) -> Failure {
    tracing::error!(%error, "cannot write an uploaded file; see TMPDIR of howdah");
    Failure::Internal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_in_json_weighs_more() {
        for text in [b"\x01", b"\n", b"\"", b"\\", b"a", b"\x7f", b"\xff"] {
            let as_json = serde_json::to_string(&String::from_utf8_lossy(text)).unwrap().len() - 2;
            assert!(COPIES * weight(text) >= 2 * as_json, "{text:?}");
        }
        assert_eq!(weight(b"a form"), 6);
        assert_eq!(weight("表單".as_bytes()), 6, "JSON has the same bytes");
    }

    #[test]
    fn a_form_leaves_memory_to_others() {
        let mut forms: Vec<FieldMemory> = Vec::new();
        let mut held = |weight: usize| {
            let mut form = FieldMemory::default();
            let result = form.hold(weight);
            forms.push(form);
            result.is_ok()
        };
        // The longest plain text with other forms beside it, and the longest binary one.
        assert!(held(MAX_FIELD_BYTES) && held(3 * MAX_FIELD_BYTES));
        assert!(!held(3 * MAX_FIELD_BYTES) && held(1 << 20));
        let too_large = FieldMemory::default().hold(MOST_OF_ALL);
        assert!(matches!(too_large, Err(Failure::BodyTooLarge)));
    }

    #[test]
    fn arrays_have_a_weight_of_their_own() {
        assert_eq!([arrays_in(b"a[][b]"), arrays_in(b"a%5b%5D=1&b%5B%5d&c"), arrays_in(b"%5")], [2, 2, 0]);
        assert_eq!(weight_of(3, 2), 3 * WEIGHT_OF_FIELD + 2 * WEIGHT_OF_ARRAY);
        assert_eq!(weight_of(0, 10 * MAX_ARRAYS), 2 * MAX_ARRAYS * WEIGHT_OF_ARRAY);
    }

    #[test]
    fn all_files_of_a_form_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for count in [FEW_FILES, FEW_FILES + 1] {
            let mut files = FormFiles::default();
            for _ in 0..count {
                files.paths.push(tempfile::NamedTempFile::new_in(&folder).unwrap().into_temp_path());
            }
            drop(files);
            let began = Instant::now();
            while folder.path().read_dir().unwrap().count() > 0 {
                assert!(began.elapsed() < Duration::from_secs(10), "{count}");
                std::thread::yield_now();
            }
        }
    }
}
