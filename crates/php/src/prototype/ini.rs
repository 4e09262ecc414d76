//! Settings from the configuration, as text that PHP's INI scanner reads after php.ini.
//!
//! The scanner reads any value as the value of its name, and goes on with the next line. The configuration allows letters,
//! digits and `_.-` in names. After PHP's start, the number of settings that PHP has read is compared.

/// One `name=value` line for each setting. Values with a special meaning for the scanner are quoted.
pub fn entries<'a>(values: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let mut text = String::new();
    for (name, value) in values {
        text.push_str(name);
        text.push('=');
        if is_evaluated(value) {
            text.push_str(value);
        } else {
            quote(value, &mut text);
        }
        text.push('\n');
    }
    text
}

/// Whether the scanner is to evaluate the value: a bare word, a number, or an expression of constants and numbers, such
/// as `E_ALL & ~E_NOTICE`.
fn is_evaluated(value: &str) -> bool {
    const OPERATORS: [char; 4] = ['&', '|', '^', '~'];
    let is_of = |text: &str, more: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    let is_constant = |word: &str| is_of(word, "_") && !word.contains(|c: char| c.is_ascii_lowercase());
    if value.trim() != value || value.is_empty() {
        return false;
    }
    match value.contains(OPERATORS) {
        true => value.split(OPERATORS).flat_map(str::split_ascii_whitespace).all(is_constant),
        false => is_of(value, "_ .-"),
    }
}

/// Between apostrophes all characters are literal, including newlines and backslashes. An apostrophe itself is written
/// between quotation marks.
fn quote(value: &str, text: &mut String) {
    if value.is_empty() {
        text.push_str("\"\"");
    }
    for (n, part) in value.split('\'').enumerate() {
        if n > 0 {
            text.push_str("\"'\"");
        }
        if !part.is_empty() {
            text.push('\'');
            text.push_str(part);
            text.push('\'');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn values_keep_their_meaning() {
        for (value, line) in [
            ("256M", "k=256M\n"),
            ("On", "k=On\n"),
            ("E_ALL & ~E_NOTICE", "k=E_ALL & ~E_NOTICE\n"),
            ("24575 | 1", "k=24575 | 1\n"),
            ("Mine | Yours", "k='Mine | Yours'\n"),
            (" on", "k=' on'\n"),
            ("", "k=\"\"\n"),
            ("tcp://127.0.0.1:6379?x=1", "k='tcp://127.0.0.1:6379?x=1'\n"),
            ("a\"b\\c", "k='a\"b\\c'\n"),
            ("it's", "k='it'\"'\"'s'\n"),
            ("'", "k=\"'\"\n"),
            ("${HOME}", "k='${HOME}'\n"),
            ("a\"\n;b", "k='a\"\n;b'\n"),
        ] {
            assert_eq!(entries([(&"k".to_owned(), &value.to_owned())].into_iter()), line);
        }
    }
}
