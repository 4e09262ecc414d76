//! The folder of opcache's lock file. opcache needs one at its start, by default `/tmp`, which an application with a
//! root directory of its own may lack or not be allowed to write.
//!
//! A folder that a php.ini or an option names is used as it is. If no folder can be used, and opcache needs one, it
//! ends the process. The folders are named on standard error before, and become a part of the error about the start.

use nix::unistd::{AccessFlags, access};

/// Where the file may be; the first one is PHP's default.
const CANDIDATES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// The folder for an application whose settings name none.
///
/// # Errors
/// Opcache needs a folder, and no candidate is usable: the text has what to do.
pub fn choose(application: &str) -> Result<&'static str, String> {
    first_usable(&CANDIDATES).ok_or_else(|| {
        format!(
            "opcache needs a folder for its lock file, and none of {} can be written by the application's user; make one \
             of them, or name another one in applications/{application}/options/admin/opcache.lockfile_path",
            CANDIDATES.join(", "),
        )
    })
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
