//! The action `share`: the file that a request asks for is looked up in the configured folders.

use crate::dispatch::active_configuration::view::View;
use crate::report::OncePerMinute;
use crate::request::subject::Subject;
use crate::response::failure::Failure;
use crate::static_files::{self, FileBody, ShareOutcome, ShareRequest, StaticFiles};
use howdah_config::Share;
use http::{Method, Response};
use std::path::Path;
use std::sync::LazyLock;

/// The files that were not sent because the router's user may not read them, and were logged.
static DENIED: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

/// The file's response; `None` if there is no such file, and it is the fallback's turn.
///
/// # Errors
/// Without a fallback, 403 if the last folder has the file, but it may not be served; 503 and 504 if its file system
/// does not answer.
pub async fn find(
    files: &StaticFiles,
    view: &View,
    share: &Share,
    has_fallback: bool,
    subject: &Subject<'_>,
) -> Result<Option<Response<FileBody>>, Failure> {
    if has_fallback && !matches!(subject.parts.method, Method::GET | Method::HEAD) {
        // As in NGINX Unit: a file can only be read. All other methods are for the fallback.
        return Ok(None);
    }
    let chroot = match &share.chroot {
        Some(chroot) => match chroot.render(subject) {
            Some(chroot) => Some(chroot),
            None if has_fallback => return Ok(None),
            None => return Err(Failure::Forbidden),
        },
        None => None,
    };
    let mut is_forbidden = false;
    for template in &share.paths {
        let Some(path) = template.render(subject) else { continue };
        // The path is not UTF-8, and the template has its escaped form: a file of that name is another file.
        if !subject.path.is_text() && path.contains(subject.path.text().trim_start_matches('/')) {
            continue;
        }
        let base = chroot.as_deref().unwrap_or(template.constant_prefix());
        let pinned = view.pins().apply(base, &path);
        let (base, path) = pinned.as_ref().map_or((base, &*path), |(base, path)| (&**base, &**path));
        let file = ShareRequest {
            place: Path::new(template.constant_prefix()),
            path,
            base: Path::new(base),
            index: &share.index,
            follow_symlinks: share.follow_symlinks,
            traverse_mounts: share.traverse_mounts,
            types: share.types.as_ref(),
            mime_types: &view.configuration().settings.http.mime_types,
            target: &|| subject.target(),
        };
        match static_files::find(files, &file, subject.parts).await? {
            ShareOutcome::Response(response) => return Ok(Some(response)),
            // As in NGINX Unit: the last folder determines the status.
            ShareOutcome::NotFound => is_forbidden = false,
            ShareOutcome::Forbidden => {
                if DENIED.is_due(path) {
                    tracing::warn!(
                        path,
                        "the router's user may not read this file: it is not sent; see docs/isolation.md"
                    );
                }
                is_forbidden = true;
            }
            ShareOutcome::OtherType => is_forbidden = true,
            ShareOutcome::Php => return Ok(None),
        }
    }
    if is_forbidden && !has_fallback { Err(Failure::Forbidden) } else { Ok(None) }
}
