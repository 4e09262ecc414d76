//! Files with results, in a folder that another user may own: root often measures in the folder of an application.
//!
//! A file is made under a name that no other user can know, and renamed when it is complete. A link in its place is
//! replaced, and not followed.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// As for any new file: the umask applies.
const MODE: u32 = 0o666;

/// Writes a file, in place of a former one.
///
/// # Errors
/// It cannot be written; the message names it.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    replace(path, content.as_ref()).map_err(|error| crate::reason::at(path, &error))
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(".howdah-").permissions(Permissions::from_mode(MODE)).tempfile_in(folder)?;
    file.write_all(content)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_in_place_of_a_result_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (result, other) = (folder.path().join("results.json"), folder.path().join("other"));
        fs::write(&other, "kept").unwrap();
        symlink(&other, &result).unwrap();
        write(&result, "{}").unwrap();
        write(&result, "[]").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&result).unwrap(), "[]");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(write(Path::new("/no/such/folder/x"), "").unwrap_err().contains("/no/such/folder/x"));
    }
}
