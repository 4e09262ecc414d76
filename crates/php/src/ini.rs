//! Settings from the configuration, as text that PHP's INI scanner reads after php.ini.

/// One `name = value` line each. Values that could mean more to the scanner than they say are quoted.
pub fn entries<'a>(values: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let mut text = String::new();
    for (name, value) in values {
        text.push_str(name);
        text.push('=');
        // Bare words, numbers and expressions of constants (E_ALL & ~E_NOTICE) are what the scanner evaluates.
        let bare = !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "_&|~^ .-".contains(c));
        if bare {
            text.push_str(value);
        } else {
            text.push('"');
            for c in value.chars() {
                if matches!(c, '"' | '\\') || c == '$' {
                    text.push('\\');
                }
                text.push(c);
            }
            text.push('"');
        }
        text.push('\n');
    }
    text
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
            ("", "k=\"\"\n"),
            ("tcp://127.0.0.1:6379?x=1", "k=\"tcp://127.0.0.1:6379?x=1\"\n"),
            ("a\"b\\c", "k=\"a\\\"b\\\\c\"\n"),
            ("${HOME}", "k=\"\\${HOME}\"\n"),
        ] {
            assert_eq!(entries([(&"k".to_owned(), &value.to_owned())].into_iter()), line);
        }
    }
}
