//! The answer to a request for a file, on another thread if the file system may have to wait.
//!
//! That thread does all the work of an event loop: it has its own [`StaticFiles`], with a small cache. Only the bytes
//! of a large file are read later, as its connection takes them.

use std::borrow::Cow;

use http::request::Parts;

use super::{ShareOutcome, ShareRequest, StaticFiles};
use crate::file_access::{FilesUnavailable, Place, Waiting, WouldWait, on_file_thread};

/// The size of the cache of a thread that waits, in bytes.
const CAPACITY: usize = 1024 * 1024;

thread_local! {
    static STATIC_FILES: StaticFiles = StaticFiles::with_cache(CAPACITY, Waiting::Allowed);
}

/// Answers a request with a file, at once if possible.
///
/// # Errors
/// When the file system does not answer in time, or no thread is free.
pub async fn find(
    files: &StaticFiles,
    share: &ShareRequest<'_>,
    request: &Parts,
) -> Result<ShareOutcome, FilesUnavailable> {
    match files.serve(share, request) {
        Ok(outcome) => Ok(outcome),
        // Boxed: this is rare, and all requests have the memory of this future.
        Err(WouldWait) => Box::pin(serve_waiting(share, request)).await,
    }
}

async fn serve_waiting(share: &ShareRequest<'_>, request: &Parts) -> Result<ShareOutcome, FilesUnavailable> {
    let ShareRequest { follow_symlinks, traverse_mounts, .. } = *share;
    let (path, base, index) = (share.path.to_owned(), share.base.to_owned(), share.index.to_owned());
    let (types, mime_types) = (share.types.cloned(), share.mime_types.clone());
    let (target, request, place) = ((share.target)().into_owned(), request.clone(), share.place.to_owned());
    let serve = move || {
        let share = ShareRequest {
            place: &place,
            path: &path,
            base: &base,
            index: &index,
            follow_symlinks,
            traverse_mounts,
            types: types.as_ref(),
            target: &|| Cow::Borrowed(&*target),
            mime_types: &mime_types,
        };
        STATIC_FILES.with(|files| files.serve(&share, &request))
    };
    Ok(on_file_thread(Place::of(share.place), serve).await??)
}
