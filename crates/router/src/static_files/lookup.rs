//! One request's way through the cache and the file system: from a path to the response with its file.
//!
//! A file that the cache has under the same identity costs no system call here. Any other file is opened under its link
//! policy, and kept in the cache if it has settled.
//!
//! Fails with an [`OpenError`].

use std::{
    cell::RefCell,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use http::{Response, request::Parts};
use rustix::{
    fs::{self, FileType},
    io::Errno,
};

use super::{
    body::FileBody,
    cache::{self, Cache, CachedFile},
    open::{OpenError, OpenKind, Opener, SharedPath},
    range::Selection,
    read,
    respond::{self, FileAnswer, FileContent},
    version::{FileIdentity, FileVersion},
};

/// The lookup of one file, for one request.
pub(super) struct Lookup<'a> {
    pub(super) opener: &'a Opener,
    pub(super) cache: &'a RefCell<Cache>,
    pub(super) file: SharedPath<'a>,
    /// The file's name in the cache.
    pub(super) key: &'a str,
    /// The content type that the configuration gives this file.
    pub(super) configured_type: Option<&'a str>,
}

/// A file that may be sent.
struct FoundFile {
    version: Rc<FileVersion>,
    content: Option<Bytes>,
    /// The open file, if the cache did not have it.
    file: Option<OwnedFd>,
}

// === impl Lookup ===

impl Lookup<'_> {
    /// Answers a request for the file, which has this identity now.
    pub(super) fn answer(&self, request: &Parts, identity: &FileIdentity) -> Result<Response<FileBody>, OpenError> {
        let mut found = match self.cached(identity) {
            Some(found) => found,
            None => self.opened()?,
        };
        let mut answer = respond::answer(request, &found.version);
        if matches!(answer, FileAnswer::Content(_)) && found.content.is_none() && found.file.is_none() {
            // The file may have changed between the `stat` and the opening.
            found = self.opened()?;
            answer = respond::answer(request, &found.version);
        }
        Ok(match answer {
            FileAnswer::HeadersOnly(headers) => respond::headers_only(headers, &found.version),
            FileAnswer::Content(selection) => {
                let version = Rc::clone(&found.version);
                let content = self.content(found, &selection)?;
                respond::with_content(selection, &version, content)
            }
        })
    }

    fn cached(&self, identity: &FileIdentity) -> Option<FoundFile> {
        let cache = self.cache.borrow();
        let cached = cache.find(self.key)?;
        let is_current = cached.version.is_current(identity, self.configured_type);
        (is_current && cached.policy_is_fresh(self.file.links)).then(|| FoundFile::from(cached))
    }

    /// Opens the file under its link policy. If the cache has this version, its content is used, and its policy counts as
    /// checked again.
    fn opened(&self) -> Result<FoundFile, OpenError> {
        let file = self.opener.open(self.file, OpenKind::File)?;
        let stat = fs::fstat(&file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(OpenError::Missing);
        }
        let identity = FileIdentity::new(&stat);
        let known = self.cache.borrow().find(self.key).map(FoundFile::from);
        let known = known.filter(|known| known.version.is_current(&identity, self.configured_type));
        let mut found = known.unwrap_or_else(|| FoundFile {
            version: Rc::new(FileVersion::new(identity, self.file.path, self.configured_type, SystemTime::now())),
            content: None,
            file: None,
        });
        self.keep(&found);
        found.file = Some(file);
        Ok(found)
    }

    /// The content for this selection. A part of a large file is not worth reading the whole: a client can ask for one byte.
    fn content(&self, mut found: FoundFile, selection: &Selection) -> Result<FileContent, OpenError> {
        if let Some(content) = found.content {
            return Ok(FileContent::Memory(content));
        }
        let Some(file) = found.file.take() else { return Err(OpenError::Missing) }; // `answer` has opened it
        let size = found.version.identity.size;
        let most = if *selection == Selection::Whole { cache::MAX_FILE } else { read::CHUNK as u64 };
        if size > most {
            return Ok(FileContent::File(file));
        }
        let read = read::whole(&file, size as usize);
        let Some(content) = read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))? else {
            return Ok(FileContent::File(file));
        };
        found.content = Some(content.clone());
        self.keep(&found);
        Ok(FileContent::Memory(content))
    }

    fn keep(&self, found: &FoundFile) {
        if !found.version.identity.is_settled(SystemTime::now()) {
            return;
        }
        let (version, content) = (Rc::clone(&found.version), found.content.clone());
        let cached = CachedFile { version, content, opened: Instant::now() };
        self.cache.borrow_mut().insert(self.key, cached);
    }
}

impl From<&CachedFile> for FoundFile {
    fn from(cached: &CachedFile) -> Self {
        Self { version: Rc::clone(&cached.version), content: cached.content.clone(), file: None }
    }
}
