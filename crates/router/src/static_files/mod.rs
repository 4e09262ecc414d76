//! Static files: the part of the router that sends the files of a folder.
//!
//! [`RequestPath`](crate::request::path::RequestPath) is made of a request target; the router renders the path of a file
//! from it, and [`StaticFiles::serve`] finds the file, checks it and answers: one `stat` and a few reference counts for
//! a file that the thread has sent before and that has not changed since. The modules in the order of a request: `names`
//! (which names are never sent), `open`, with the `bases` of shares, and `refusal` (symbolic links), `lookup` with `cache` and `version`,
//! `conditional` and `range`, `respond`, `body` and `read`; `mime` determines content types.
//!
//! A path that leads to nothing that may be sent is [`ShareOutcome::NotFound`], whatever the reason: an answer must not
//! distinguish a hidden file from a missing one. A path whose type is not served is [`ShareOutcome::OtherType`],
//! whether there is a file or not. Where an answer would have to wait for the file system, [`StaticFiles::serve`]
//! returns [`WouldWait`], and [`find`] answers on another thread. Trouble on our side (no descriptors left, a broken
//! disk) is a 503 or 500, and an error in the log with the path.

mod body;
mod cache;
mod conditional;
mod lookup;
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
mod waiting;

use std::{borrow::Cow, cell::RefCell, path::Path};

use howdah_config::{MimeTypes, Patterns};
use http::{HeaderValue, Response, StatusCode, request::Parts};
use rustix::{
    fs::{AtFlags, FileType},
    io::Errno,
};

use crate::{
    file_access::{PathError, Waiting, WouldWait, metadata},
    response::redirect::folder_location,
};
pub use body::FileBody;
use cache::Cache;
use lookup::Lookup;
use open::{LinkPolicy, OpenError, OpenKind, Opener, SharedPath};
use version::FileIdentity;
pub use waiting::find;

/// The file that a request asks for, and the rules for finding it.
#[derive(Clone, Copy)]
pub struct ShareRequest<'a> {
    /// The part of the configuration that names the share. Look-ups that wait share its threads.
    pub place: &'a Path,
    /// The absolute path of the file: a constant prefix, followed by the normalised path of the request.
    pub path: &'a str,
    /// The served folder, a prefix of `path`. Names below it that begin with a dot are not served. Symbolic links must
    /// stay below it, unless `follow_symlinks` is set.
    pub base: &'a Path,
    /// The names of index files, in the order in which they are tried.
    pub index: &'a [String],
    /// Symbolic links: `true` follows all, `false` none; `None` follows a link that leads to a path below `base`.
    pub follow_symlinks: Option<bool>,
    /// Whether other file systems may be mounted below `base`.
    pub traverse_mounts: bool,
    /// The content types that are served; `None` means all. The index of a folder may have any type.
    pub types: Option<&'a Patterns>,
    /// The target of the request, as the client sent it or as a rewrite made it. A redirect to a folder adds a slash to
    /// its path.
    pub target: &'a dyn Fn() -> Cow<'a, str>,
    /// The configured content types.
    pub mime_types: &'a MimeTypes,
}

/// The result of a request for a file.
#[derive(Debug)]
pub enum ShareOutcome {
    /// The file, or another final answer: 301, 304, 405, 412, 416, 500, 503.
    Response(Response<FileBody>),
    /// There is no file that may be sent: the fallback answers, or a 404.
    NotFound,
    /// The file system does not let us read it: 403.
    Forbidden,
    /// The path has a type that is not served: the fallback answers, or a 403.
    OtherType,
    /// The path, or the index of the folder, is a PHP script, which is never sent: the fallback answers.
    Php,
}

/// Serves files. Each thread has its own instance.
pub struct StaticFiles {
    opener: Opener,
    cache: RefCell<Cache>,
    /// The buffer for the cache key of the current request.
    key: RefCell<String>,
    waiting: Waiting,
}

// === impl StaticFiles ===

impl StaticFiles {
    /// For an event loop, with an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::with_cache(cache::CAPACITY, Waiting::Never)
    }

    fn with_cache(capacity: usize, waiting: Waiting) -> Self {
        Self {
            opener: Opener::new(waiting),
            cache: RefCell::new(Cache::new(capacity)),
            key: RefCell::default(),
            waiting,
        }
    }

    /// Answers a request with a file. `stat` and `open` happen on this thread; a read that has to wait for the disk
    /// happens on another one.
    ///
    /// # Errors
    /// When the file system may have to wait.
    fn serve(&self, share: &ShareRequest<'_>, request: &Parts) -> Result<ShareOutcome, WouldWait> {
        let Some(relative) = relative_path(share) else {
            tracing::debug!(path = share.path, base = %share.base.display(), "not served: the path is not below the chroot");
            return Ok(ShareOutcome::NotFound);
        };
        if names::is_hidden(relative) {
            return Ok(ShareOutcome::NotFound);
        }
        if names::is_php_source(relative) {
            return Ok(ShareOutcome::Php);
        }
        let links = match share.follow_symlinks {
            Some(true) => LinkPolicy::Follow,
            Some(false) => LinkPolicy::Never,
            None => LinkPolicy::StayBelow,
        };
        let shared = SharedPath { path: share.path, base: share.base, relative, links, mounts: share.traverse_mounts };
        if shared.path.ends_with('/') {
            self.serve_index(share, shared, request)
        } else if !is_wanted(share, shared.path) {
            Ok(ShareOutcome::OtherType)
        } else {
            self.serve_path(share, shared, request, Folders::Redirect)
        }
    }

    fn serve_index(
        &self,
        share: &ShareRequest<'_>,
        folder: SharedPath<'_>,
        request: &Parts,
    ) -> Result<ShareOutcome, WouldWait> {
        for name in share.index {
            let (path, relative) = (format!("{}{name}", folder.path), format!("{}{name}", folder.relative));
            let shared = SharedPath { path: &path, relative: &relative, ..folder };
            if names::is_php_source(name) {
                match metadata(&*path, AtFlags::empty(), self.waiting) {
                    Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => return Ok(ShareOutcome::Php),
                    Err(PathError::WouldWait) => return Err(WouldWait),
                    Ok(_) | Err(PathError::Failed(_)) => continue,
                }
            }
            match self.serve_path(share, shared, request, Folders::Skip)? {
                ShareOutcome::NotFound => {}
                outcome => return Ok(outcome),
            }
        }
        Ok(ShareOutcome::NotFound)
    }

    fn serve_path(
        &self,
        share: &ShareRequest<'_>,
        shared: SharedPath<'_>,
        request: &Parts,
        folders: Folders,
    ) -> Result<ShareOutcome, WouldWait> {
        let links = match shared.links {
            LinkPolicy::Never => AtFlags::SYMLINK_NOFOLLOW,
            LinkPolicy::Follow | LinkPolicy::StayBelow => AtFlags::empty(),
        };
        let stat = metadata(shared.path, links, self.waiting);
        let served = match stat.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat)) {
            Ok((FileType::RegularFile, stat)) => self.serve_file(share, shared, request, &FileIdentity::new(&stat)),
            Ok((FileType::Directory, _)) if folders == Folders::Redirect => self.redirect(share, shared, request),
            Ok((FileType::Symlink, _)) => Err(OpenError::Refused),
            Ok(_) => Err(OpenError::Missing),
            Err(PathError::WouldWait) => return Err(WouldWait),
            Err(PathError::Failed(error)) => Err(OpenError::from(error)),
        };
        Ok(match served {
            Ok(response) => ShareOutcome::Response(response),
            Err(OpenError::Missing | OpenError::BaseRefused) => ShareOutcome::NotFound,
            Err(OpenError::WouldWait) => return Err(WouldWait),
            Err(OpenError::Denied) => ShareOutcome::Forbidden,
            Err(OpenError::Refused) => {
                refusal::warn(shared, share.place, self.waiting);
                ShareOutcome::NotFound
            }
            Err(OpenError::Failed(error)) => ShareOutcome::Response(failure(shared, error)),
        })
    }

    fn redirect(
        &self,
        share: &ShareRequest<'_>,
        shared: SharedPath<'_>,
        request: &Parts,
    ) -> Result<Response<FileBody>, OpenError> {
        if !respond::is_read(&request.method) {
            return Err(OpenError::Missing);
        }
        // A target with the slash of its own, whose path to the file has none, would lead here again, without end.
        let location = folder_location(&(share.target)()).ok_or(OpenError::Missing)?;
        self.opener.open(shared, OpenKind::Folder)?;
        Ok(respond::redirect_to_folder(location))
    }

    fn serve_file(
        &self,
        share: &ShareRequest<'_>,
        shared: SharedPath<'_>,
        request: &Parts,
        identity: &FileIdentity,
    ) -> Result<Response<FileBody>, OpenError> {
        let mut key = self.key.take();
        cache::write_key(&mut key, shared);
        let configured_type = mime::configured(share.mime_types, shared.path);
        let (opener, cache) = (&self.opener, &self.cache);
        let lookup = Lookup { opener, cache, file: shared, key: &key, configured_type };
        let served = lookup.answer(request, identity);
        self.key.replace(key);
        served
    }
}

impl Default for StaticFiles {
    fn default() -> Self {
        Self::new()
    }
}

/// How to handle a path that leads to a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folders {
    Redirect,
    Skip,
}

/// Whether the share serves files of this type, which is empty if it is unknown. Parameters (`; charset=utf-8`) are
/// ignored.
fn is_wanted(share: &ShareRequest<'_>, path: &str) -> bool {
    let Some(types) = share.types else { return true };
    let content_type = mime::content_type(path, mime::configured(share.mime_types, path));
    let content_type = content_type.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    types.matches(essence.trim_ascii())
}

/// The part of the path after the base, without a leading slash.
fn relative_path<'a>(share: &ShareRequest<'a>) -> Option<&'a str> {
    let base = share.base.to_str()?.trim_end_matches('/');
    let relative = share.path.strip_prefix(base)?;
    if !relative.is_empty() && !relative.starts_with('/') {
        return None;
    }
    Some(relative.trim_start_matches('/'))
}

fn failure(shared: SharedPath<'_>, error: Errno) -> Response<FileBody> {
    tracing::error!(path = shared.path, %error, "cannot read a static file");
    // A shortage passes, so that the client may retry; a broken disk stays broken.
    let passes = matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR);
    respond::empty(if passes { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR })
}
