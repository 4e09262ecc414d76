//! Static files: the part of the router that sends what lies in a folder.
//!
//! [`RequestPath`](crate::request::path::RequestPath) is made of a request target; the router renders the path of a file from it, and
//! [`StaticFiles::serve`] finds, judges and answers: one `stat` and a few reference counts for a file that the
//! thread has sent before, and that has not changed since. The modules in the order of a request:
//! `path` and `names` (what may be asked for at all), `open` and `refusal` (symbolic links), `cache` and `version`,
//! `conditional` and `range`, `respond`, `body` and `read`; `mime` names the types.
//!
//! A path that leads to nothing that may be sent is [`Outcome::NotFound`], for whichever reason: an answer must not
//! tell hidden from missing. Trouble of our own (no descriptors left, a broken disk) is a 503 or 500 and an error in
//! the log, with the path.

mod body;
mod cache;
mod conditional;
mod mime;
mod names;
mod open;
mod range;
mod read;
mod refusal;
mod respond;
#[cfg(test)]
mod tests;
mod version;

use std::{
    cell::RefCell,
    os::fd::OwnedFd,
    path::Path,
    rc::Rc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use howdah_config::{MimeTypes, Patterns};
use http::{Response, StatusCode, request::Parts};
use rustix::{
    fs::{self, FileType},
    io::Errno,
};

pub use body::FileBody;
use cache::{Cache, Entry};
use open::{Links, OpenError, Opener, Place, Target};
use refusal::Refusals;
use respond::{Answer, Content};
pub use respond::{NotModified, folder_location};
use version::{Identity, Version};

/// A file that a request asks for, and what may be done to find it.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// The absolute path of the file: a constant prefix, and what the request named, normalised.
    pub path: &'a str,
    /// The folder that is served, a prefix of `path`. Names below it that begin with a dot are not served, and
    /// without a setting for links they must stay below it.
    pub base: &'a Path,
    /// The names that stand for a folder, in the order in which they are tried.
    pub index: &'a [String],
    /// Links: `true` follows them all, `false` none; `None` follows those that lead to something below `base`.
    pub follow_symlinks: Option<bool>,
    /// Whether other file systems may be mounted below `base`.
    pub traverse_mounts: bool,
    /// The content types that are served; `None` is all.
    pub types: Option<&'a Patterns>,
    /// The configured content types.
    pub mime_types: &'a MimeTypes,
}

/// What became of a request for a file.
#[derive(Debug)]
pub enum Outcome {
    /// The file, or another final answer: 301, 304, 405, 412, 416, 500, 503.
    Response(Response<FileBody>),
    /// There is nothing here that may be sent: the fallback's turn, or a 404.
    NotFound,
    /// The file system does not let us read it: 403.
    Forbidden,
    /// There is a file, but of a type that is not served: the fallback's turn, or a 403.
    OtherType,
    /// The path, or the index of the folder, is a PHP script: never sent, the fallback's turn.
    Php,
}

/// Serves files. Each router thread has its own.
pub struct StaticFiles {
    opener: Opener,
    refusals: Refusals,
    cache: RefCell<Cache>,
    /// Space for the key of the request at hand.
    key: RefCell<String>,
}

// === impl StaticFiles ===

impl StaticFiles {
    /// An empty cache, and nothing known yet about the kernel.
    #[must_use]
    pub fn new() -> Self {
        Self {
            opener: Opener::default(),
            refusals: Refusals::default(),
            cache: RefCell::new(Cache::new(cache::CAPACITY)),
            key: RefCell::default(),
        }
    }

    /// Answers a request with a file. Opens and `stat`s inline; what has to wait for the disk is read elsewhere.
    pub fn serve(&self, share: &Share<'_>, request: &Parts) -> Outcome {
        let Some(relative) = relative_path(share) else {
            tracing::debug!(path = share.path, base = %share.base.display(), "not served: it is not below the chroot");
            return Outcome::NotFound;
        };
        if names::is_hidden(relative) {
            return Outcome::NotFound;
        }
        if names::is_php_source(relative) {
            return Outcome::Php;
        }
        let links = match share.follow_symlinks {
            Some(true) => Links::Follow,
            Some(false) => Links::Never,
            None => Links::StayBelow,
        };
        let place = Place { path: share.path, base: share.base, relative, links, mounts: share.traverse_mounts };
        if place.path.ends_with('/') {
            self.serve_index(share, place, request)
        } else {
            self.serve_path(share, place, request, Folders::Redirect)
        }
    }

    fn serve_index(&self, share: &Share<'_>, folder: Place<'_>, request: &Parts) -> Outcome {
        for name in share.index {
            let (path, relative) = (format!("{}{name}", folder.path), format!("{}{name}", folder.relative));
            let place = Place { path: &path, relative: &relative, ..folder };
            if names::is_php_source(name) {
                if fs::stat(&path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file()) {
                    return Outcome::Php;
                }
                continue;
            }
            match self.serve_path(share, place, request, Folders::Skip) {
                Outcome::NotFound => {}
                outcome => return outcome,
            }
        }
        Outcome::NotFound
    }

    fn serve_path(&self, share: &Share<'_>, place: Place<'_>, request: &Parts, folders: Folders) -> Outcome {
        let stat = match place.links {
            Links::Never => fs::lstat(place.path),
            Links::Follow | Links::StayBelow => fs::stat(place.path),
        };
        let served = match stat.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat)) {
            Ok((FileType::RegularFile, _)) if !is_wanted(share, place.path) => return Outcome::OtherType,
            Ok((FileType::RegularFile, stat)) => self.serve_file(share, place, request, &Identity::new(&stat)),
            Ok((FileType::Directory, _)) if folders == Folders::Redirect => self.redirect(place, request),
            Ok((FileType::Symlink, _)) => Err(OpenError::Refused),
            Ok(_) => Err(OpenError::Missing),
            Err(error) => Err(OpenError::from(error)),
        };
        match served {
            Ok(response) => Outcome::Response(response),
            Err(OpenError::Missing) => Outcome::NotFound,
            Err(OpenError::Denied) => Outcome::Forbidden,
            Err(OpenError::Refused) => {
                self.refusals.tell(place);
                Outcome::NotFound
            }
            Err(OpenError::Failed(error)) => Outcome::Response(failure(place, error)),
        }
    }

    fn redirect(&self, place: Place<'_>, request: &Parts) -> Result<Response<FileBody>, OpenError> {
        // A target with its slash that is rendered without: one more would lead here again, and again.
        if !respond::is_read(&request.method) || request.uri.path().ends_with('/') {
            return Err(OpenError::Missing);
        }
        self.opener.open(place, Target::Folder)?;
        Ok(respond::redirect_to_folder(&request.uri))
    }

    fn serve_file(
        &self,
        share: &Share<'_>,
        place: Place<'_>,
        request: &Parts,
        identity: &Identity,
    ) -> Result<Response<FileBody>, OpenError> {
        let mut key = self.key.take();
        cache::write_key(&mut key, place);
        let configured_type = mime::configured(share.mime_types, place.path);
        let search = Search { files: self, place, key: &key, configured_type };
        let served = search.answer(request, identity);
        self.key.replace(key);
        served
    }
}

impl Default for StaticFiles {
    fn default() -> Self {
        Self::new()
    }
}

/// What is done with a path that leads to a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folders {
    Redirect,
    Skip,
}

/// One request's way through the cache and the file system.
struct Search<'a> {
    files: &'a StaticFiles,
    place: Place<'a>,
    /// The place's name in the cache.
    key: &'a str,
    configured_type: Option<&'a str>,
}

/// A file that may be sent.
struct Found {
    version: Rc<Version>,
    content: Option<Bytes>,
    /// Open if it had to be.
    file: Option<OwnedFd>,
}

// === impl Search ===

impl Search<'_> {
    fn answer(&self, request: &Parts, identity: &Identity) -> Result<Response<FileBody>, OpenError> {
        let mut found = match self.cached(identity) {
            Some(found) => found,
            None => self.opened()?,
        };
        let mut answer = respond::answer(request, &found.version);
        if matches!(answer, Answer::Content(_)) && found.content.is_none() && found.file.is_none() {
            // Between the stat and the opening the file may have become another one.
            found = self.opened()?;
            answer = respond::answer(request, &found.version);
        }
        Ok(match answer {
            Answer::HeadersOnly(headers) => respond::headers_only(headers, &found.version),
            Answer::Content(selection) => {
                let version = Rc::clone(&found.version);
                respond::with_content(selection, &version, self.content(found)?)
            }
        })
    }

    fn cached(&self, identity: &Identity) -> Option<Found> {
        let cache = self.files.cache.borrow();
        let entry = cache.find(self.key)?;
        let current = entry.version.is_current(identity, self.configured_type);
        (current && entry.policy_is_fresh(self.place.links)).then(|| Found::from(entry))
    }

    /// Opens the file under its policy; what is cached of this very version is used, and counts as judged again.
    fn opened(&self) -> Result<Found, OpenError> {
        let file = self.files.opener.open(self.place, Target::File)?;
        let stat = fs::fstat(&file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(OpenError::Missing);
        }
        let identity = Identity::new(&stat);
        let known = self.files.cache.borrow().find(self.key).map(Found::from);
        let known = known.filter(|known| known.version.is_current(&identity, self.configured_type));
        let mut found = known.unwrap_or_else(|| Found {
            version: Rc::new(Version::new(identity, self.place.path, self.configured_type, SystemTime::now())),
            content: None,
            file: None,
        });
        self.keep(&found);
        found.file = Some(file);
        Ok(found)
    }

    fn content(&self, mut found: Found) -> Result<Content, OpenError> {
        if let Some(content) = found.content {
            return Ok(Content::Memory(content));
        }
        let Some(file) = found.file.take() else { return Err(OpenError::Missing) }; // `answer` has opened it
        let size = found.version.identity.size;
        if size > cache::MAX_FILE {
            return Ok(Content::File(file));
        }
        let read = read::whole(&file, size as usize);
        let Some(content) = read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))? else {
            return Ok(Content::File(file));
        };
        found.content = Some(content.clone());
        self.keep(&found);
        Ok(Content::Memory(content))
    }

    fn keep(&self, found: &Found) {
        if !found.version.identity.is_settled(SystemTime::now()) {
            return;
        }
        let (version, content) = (Rc::clone(&found.version), found.content.clone());
        let entry = Entry { version, content, opened: Instant::now() };
        self.files.cache.borrow_mut().insert(self.key, entry);
    }
}

impl From<&Entry> for Found {
    fn from(entry: &Entry) -> Self {
        Self { version: Rc::clone(&entry.version), content: entry.content.clone(), file: None }
    }
}

/// Whether the share has files of this type. Parameters (`; charset=utf-8`) do not count.
fn is_wanted(share: &Share<'_>, path: &str) -> bool {
    let Some(types) = share.types else { return true };
    let content_type = mime::content_type(path, mime::configured(share.mime_types, path));
    let essence = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    types.matches(essence.trim_ascii())
}

/// What follows the base in the path, without a slash in front.
fn relative_path<'a>(share: &Share<'a>) -> Option<&'a str> {
    let base = share.base.to_str()?.trim_end_matches('/');
    let relative = share.path.strip_prefix(base)?;
    if !relative.is_empty() && !relative.starts_with('/') {
        return None;
    }
    Some(relative.trim_start_matches('/'))
}

fn failure(place: Place<'_>, error: Errno) -> Response<FileBody> {
    tracing::error!(path = place.path, %error, "cannot read a static file");
    // What passes is worth another try; what is broken is not.
    let passes = matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR);
    respond::empty(if passes { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR })
}
