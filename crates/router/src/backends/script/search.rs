//! The search for the script of a path, which does not stop the event loop if the file system has to wait.

use crate::backends::script::files::ScriptFiles;
use crate::backends::script::resolve::{Resolved, resolve};
use crate::file_access::{FilesUnavailable, Place, WouldWait, on_file_thread};
use howdah_protocol::messages::generation_paths::TargetPaths;

/// Finds the script for a normalised path, as [`resolve`] does, among the files of the
/// application.
///
/// # Errors
/// When the file system does not answer in time, or no thread is free.
pub async fn find_script(files: &ScriptFiles, target: &TargetPaths, path: &[u8]) -> Result<Resolved, FilesUnavailable> {
    match resolve(target, files, path) {
        Ok(resolved) => Ok(resolved),
        // Boxed: this is rare, and all requests have the memory of this future.
        Err(WouldWait) => Box::pin(search_waiting(files, target, path)).await,
    }
}

async fn search_waiting(files: &ScriptFiles, target: &TargetPaths, path: &[u8]) -> Result<Resolved, FilesUnavailable> {
    let (files, target, path) = (files.that_may_wait(), target.clone(), path.to_owned());
    Ok(on_file_thread(Place::of(&target.root), move || resolve(&target, &files, &path)).await??)
}
