//! Errors of the system, for people: without the kernel's number.

use std::io;
use std::path::Path;

/// `No such file or directory`
pub fn of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// `/srv/lab.json: No such file or directory`
pub fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {}", path.display(), of(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_number_is_left_out() {
        let error = std::fs::read("/no/such/file").unwrap_err();
        assert_eq!(at(Path::new("/no/such/file"), &error), "/no/such/file: No such file or directory");
    }
}
