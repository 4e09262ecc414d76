//! Errors of the operating system as text, without their numbers.

use std::io;

/// The text of the error, as in `No space left on device`.
pub fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(number) => text[..number].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_left_out() {
        assert_eq!(error_text(&io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(error_text(&io::Error::other("the link is broken")), "the link is broken");
    }
}
