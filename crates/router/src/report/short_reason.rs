//! A reason in a load report. A server chooses a part of it, so that its length is limited.

/// The most characters.
const CHARS: usize = 200;

/// The beginning of a reason.
pub fn short_reason(reason: &str) -> String {
    match reason.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(short_reason("refused"), "refused");
        assert_eq!(short_reason(&"ü".repeat(CHARS)), "ü".repeat(CHARS));
        assert_eq!(short_reason(&"ü".repeat(1000)), format!("{}…", "ü".repeat(CHARS)));
    }
}
