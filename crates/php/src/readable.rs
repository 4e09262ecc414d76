//! Whether the application's user can read what the application names: asked by the prototype, who is that user by now
//! and has that application's root directory.

use howdah_protocol::prototype_messages::RequiredPath;
use nix::unistd::{AccessFlags, User, access, geteuid};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Looks at all of it.
///
/// # Errors
/// A sentence about the first that is missing or closed, with its option.
pub fn prove(needs: &[RequiredPath], rootfs: Option<&Path>) -> Result<(), String> {
    needs
        .iter()
        .try_for_each(|need| look(need).map_err(|error| format!("{}: {}", need.option, explain(need, &error, rootfs))))
}

fn look(need: &RequiredPath) -> io::Result<()> {
    if need.is_folder {
        return match std::fs::metadata(&need.path)?.is_dir() {
            true => Ok(access(&need.path, AccessFlags::X_OK)?),
            false => Err(io::ErrorKind::NotADirectory.into()),
        };
    }
    // Nobody may be at the other end of what is no regular file.
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&need.path)?;
    if file.metadata()?.is_file() { Ok(()) } else { Err(io::ErrorKind::IsADirectory.into()) }
}

fn explain(need: &RequiredPath, error: &io::Error, rootfs: Option<&Path>) -> String {
    let RequiredPath { path, is_folder, .. } = need;
    let what = if *is_folder { "folder" } else { "script" };
    match error.kind() {
        io::ErrorKind::NotFound => {
            let below = rootfs.map_or(String::new(), |rootfs| format!(" below the rootfs {rootfs:?}"));
            format!("{path:?} does not exist{below}; create the {what} or correct the path")
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
        _ => format!("{path:?} is not a {what} that can be read: {error}; correct the path"),
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
    fn what_is_missing_is_told_with_its_option() {
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
            let need =
                RequiredPath { option: "applications/x/script".into(), path: folder.path().join(name), is_folder };
            match (prove(&[need], None), expected) {
                (Ok(()), None) => {}
                (Err(problem), Some(expected)) => {
                    assert!(problem.starts_with("applications/x/script: ") && problem.contains(expected), "{problem}");
                }
                (found, expected) => panic!("{name}: {found:?} is not {expected:?}"),
            }
        }
    }
}
