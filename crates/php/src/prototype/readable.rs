//! Checks that the application's user can read the files that the configuration names. The prototype does it, because it
//! has become that user and has the application's root directory.

use howdah_protocol::messages::prototype::RequiredPath;
use nix::unistd::{AccessFlags, User, access, geteuid};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Checks all of these paths.
///
/// # Errors
/// A sentence about the first path that is missing or not readable, with its option.
pub fn check(required: &[RequiredPath], rootfs: Option<&Path>) -> Result<(), String> {
    required
        .iter()
        .try_for_each(|path| open(path).map_err(|error| format!("{}: {}", path.option, explain(path, &error, rootfs))))
}

fn open(required: &RequiredPath) -> io::Result<()> {
    if required.is_folder {
        return match std::fs::metadata(&required.path)?.is_dir() {
            true => Ok(access(&required.path, AccessFlags::X_OK)?),
            false => Err(io::ErrorKind::NotADirectory.into()),
        };
    }
    // Only a regular file is certain to open without delay: a pipe waits for a writer.
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&required.path)?;
    if file.metadata()?.is_file() { Ok(()) } else { Err(io::ErrorKind::IsADirectory.into()) }
}

fn explain(required: &RequiredPath, error: &io::Error, rootfs: Option<&Path>) -> String {
    let RequiredPath { path, is_folder, .. } = required;
    let kind = if *is_folder { "folder" } else { "script" };
    match error.kind() {
        io::ErrorKind::NotFound => {
            let below = rootfs.map_or(String::new(), |rootfs| format!(" below the rootfs {rootfs:?}"));
            format!("{path:?} does not exist{below}; create the {kind} or correct the path")
        }
        io::ErrorKind::PermissionDenied => {
            let user = user();
            let closed = path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev();
            match closed.into_iter().find(|folder| access(*folder, AccessFlags::X_OK).is_err()) {
                Some(folder) => format!(
                    "{user} cannot reach {path:?}, because {folder:?} does not let it pass; \
                     allow that (chmod o+x) or run the application as another user"
                ),
                None => format!(
                    "{user} may not read {path:?}; allow that (chmod o+r{}) or run the application as another user",
                    if *is_folder { "x" } else { "" }
                ),
            }
        }
        _ => format!("{path:?} is not a {kind} that can be read: {error}; correct the path"),
    }
}

fn user() -> String {
    match User::from_uid(geteuid()) {
        Ok(Some(user)) => format!("the user {:?}", user.name),
        _ => format!("the user with the id {}", geteuid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_is_reported_with_its_option() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("a.php"), "").unwrap();
        let cases = [
            ("a.php", false, None),
            ("sub", true, None),
            ("b.php", false, Some("does not exist; create the script or correct the path")),
            ("c", true, Some("does not exist; create the folder")),
            ("sub", false, Some("is not a script that can be read")),
            ("a.php", true, Some("is not a folder that can be read")),
            ("a.php/b.php", false, Some("is not a script that can be read")),
        ];
        for (name, is_folder, expected) in cases {
            let required =
                RequiredPath { option: "applications/x/script".into(), path: folder.path().join(name), is_folder };
            match (check(&[required], None), expected) {
                (Ok(()), None) => {}
                (Err(problem), Some(expected)) => {
                    assert!(problem.starts_with("applications/x/script: ") && problem.contains(expected), "{problem}");
                }
                (found, expected) => panic!("{name}: {found:?} is not {expected:?}"),
            }
        }
    }
}
