//! The search for the script of a path, which does not stop the event loop if the file system has to wait.

use crate::file_access::{FilesUnavailable, Place, Waiting, WouldWait, on_file_thread};
use crate::php::port::GenerationPort;
use crate::php::script::{Resolved, resolve};
use crate::php::script_files::ScriptFiles;
use howdah_protocol::generation_paths::TargetPaths;

/// Finds the script for a normalised path, as [`resolve`] does. `target` is one of the port's generation.
///
/// # Errors
/// When the file system does not answer in time, or no thread is free.
pub async fn find_script(
    port: &GenerationPort,
    target: &TargetPaths,
    path: &[u8],
) -> Result<Resolved, FilesUnavailable> {
    match resolve(target, &port.script_files, path) {
        Ok(resolved) => Ok(resolved),
        // Boxed: this is rare, and all requests have the memory of this future.
        Err(WouldWait) => Box::pin(search_waiting(port, target, path)).await,
    }
}

async fn search_waiting(
    port: &GenerationPort,
    target: &TargetPaths,
    path: &[u8],
) -> Result<Resolved, FilesUnavailable> {
    let files = ScriptFiles::below(port.generation.paths.rootfs(), Waiting::Allowed);
    let (target, path) = (target.clone(), path.to_owned());
    Ok(on_file_thread(Place::of(&target.root), move || resolve(&target, &files, &path)).await??)
}
