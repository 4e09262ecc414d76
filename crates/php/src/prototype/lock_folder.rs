//! The folder of opcache's lock file. opcache needs one at its start, by default `/tmp`, which an application with a root
//! directory of its own may lack or not be allowed to write.
//!
//! If no folder can be used, opcache ends the process. The folders are named on standard error before, and become a part
//! of the error about the start.

use howdah_protocol::prototype_messages::PrototypeBoot;
use nix::unistd::{AccessFlags, access};

/// The setting of PHP.
const SETTING: &str = "opcache.lockfile_path";
/// Where the file may be; the first one is PHP's default.
const CANDIDATES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// The setting with the folder to use, unless the application has its own, or PHP's default can be used.
pub fn choose(boot: &PrototypeBoot) -> Option<(String, String)> {
    if [&boot.user_values, &boot.admin_values].iter().any(|values| values.contains_key(SETTING)) {
        return None;
    }
    let usable = first_usable(&CANDIDATES);
    if usable.is_none() {
        eprintln!(
            "opcache needs a folder for its lock file, and none of {} can be written by the application's user; make one \
             of them, or name another one in applications/{}/options/admin/{SETTING}",
            CANDIDATES.join(", "),
            boot.application
        );
    }
    let usable = usable.filter(|folder| *folder != CANDIDATES[0])?;
    Some((SETTING.to_owned(), usable.to_owned()))
}

fn first_usable<'f>(folders: &[&'f str]) -> Option<&'f str> {
    let is_usable = |folder: &&&str| access(**folder, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
    folders.iter().find(is_usable).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_can_be_written_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        assert_eq!(first_usable(&["/none", path, "/"]), Some(path));
        assert_eq!(first_usable(&["/none"]), None);
    }
}
