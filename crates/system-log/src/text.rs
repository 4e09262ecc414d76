//! Cutting long texts.

use howdah_protocol::plain_text::beginning;

/// The text, or its beginning and the number of bytes that are missing, which is at most this long. A text is not cut below
/// the length of that note.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let note = |end: usize| format!("... [{} more bytes]", text.len() - end);
    let room = most.saturating_sub(note(0).len());
    let kept = beginning(text, room);
    kept.to_owned() + &note(kept.len())
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_cut_text_has_the_number_of_missing_bytes() {
        assert_eq!(cut("abc", 3), "abc");
        let long = "ü".repeat(50);
        assert_eq!(cut(&long, 41), format!("{}... [80 more bytes]", "ü".repeat(10)));
        assert_eq!(cut(&long, 0), "... [100 more bytes]");
    }
}
