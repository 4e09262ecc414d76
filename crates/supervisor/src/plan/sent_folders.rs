//! The folders of `send_file`, whose files a script may have howdah send.

use crate::plan::defaults::missing;
use howdah_config::SendFile;

/// The first folder that does not exist: its option and the problem.
pub fn problem(send_file: &SendFile) -> Option<(String, String)> {
    let (prefix, folder) = send_file.iter().find(|(_, folder)| !folder.is_dir())?;
    Some((format!("/send_file/{}", prefix.replace('/', "%2F")), missing(folder, "folder")))
}
