//! Finds a path of the configuration in a text.
//!
//! The text is the configuration language: JSON with comments. After a syntax error nothing is found.

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The offset of the member or element at the path. If the path's end does not exist: the offset of its longest prefix
/// that does. `None` if its first name does not exist.
pub fn locate(text: &str, path: &[String]) -> Option<usize> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.skip_mark();
    let mut found = scanner.skip_blank().then_some(scanner.at)?;
    for (depth, name) in path.iter().enumerate() {
        match scanner.enter(name) {
            Some(at) => found = at,
            None if depth == 0 => return None,
            None => break,
        }
    }
    Some(found)
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

// === impl Scanner ===

impl Scanner<'_> {
    /// Moves from a value to its member or element with this name, and returns the offset of the member's name or of the
    /// element. The scanner is then at the value.
    fn enter(&mut self, name: &str) -> Option<usize> {
        match self.next()? {
            b'{' => loop {
                self.at += 1;
                self.skip_blank();
                let key = self.at;
                self.skip_value()?;
                let is_match = serde_json::from_str::<String>(&self.text[key..self.at]).ok()? == name;
                self.skip_blank();
                self.expect(b':')?;
                self.skip_blank();
                if is_match {
                    return Some(key);
                }
                self.skip_value()?;
                self.skip_blank();
                if self.next()? != b',' {
                    return None;
                }
            },
            b'[' => {
                for _ in 0..name.parse::<usize>().ok()? {
                    self.at += 1;
                    self.skip_blank();
                    self.skip_value()?;
                    self.skip_blank();
                    if self.next()? != b',' {
                        return None;
                    }
                }
                self.at += 1;
                self.skip_blank();
                (self.next()? != b']').then_some(self.at)
            }
            _ => None,
        }
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then(|| self.at += 1)
    }

    fn skip_mark(&mut self) {
        if self.text.starts_with(BYTE_ORDER_MARK) {
            self.at = BYTE_ORDER_MARK.len_utf8();
        }
    }

    /// Skips white space and comments. Returns `false` at the end of the text.
    fn skip_blank(&mut self) -> bool {
        loop {
            let rest = &self.text[self.at..];
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            let length = match &rest[blank..] {
                comment if comment.starts_with("//") => comment.find('\n').unwrap_or(comment.len()),
                comment if comment.starts_with("/*") => comment.find("*/").map_or(comment.len(), |end| end + 2),
                _ => 0,
            };
            self.at += blank + length;
            if length == 0 {
                return self.at < self.text.len();
            }
        }
    }

    /// Skips a value of any depth.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.next()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => self.at += 1,
                _ => {
                    let rest = &self.text[self.at..];
                    let end = rest.find([',', ':', '}', ']', '{', '[', '"', '/', ' ', '\t', '\r', '\n']);
                    match end.unwrap_or(rest.len()) {
                        0 => return None,
                        length => self.at += length,
                    }
                }
            }
            if depth == 0 {
                return Some(());
            }
            self.skip_blank();
        }
    }

    fn skip_string(&mut self) -> Option<()> {
        let mut escaped = false;
        for (index, byte) in self.text.as_bytes()[self.at..].iter().enumerate().skip(1) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    self.at += index + 1;
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_in_a_text() {
        let text = "\u{feff}// \"routes\"\n{\"listeners\": {\"*:80\": {\"pass\": 1}}, /* } */ \"a\\u0062\": [[], \
                    [1,{\"x\":\"]\"}] ], \"last\": -1.5}";
        let cases: [(&[&str], &str); 12] = [
            (&[], "{\"listeners\""),
            (&["listeners"], "\"listeners\""),
            (&["listeners", "*:80"], "\"*:80\""),
            (&["listeners", "*:80", "pass"], "\"pass\""),
            (&["listeners", "*:80", "missing", "too"], "\"*:80\""),
            (&["ab"], "\"a\\u0062\""),
            (&["ab", "0"], "[], "),
            (&["ab", "1", "1"], "{\"x\""),
            (&["ab", "1", "1", "x"], "\"x\""),
            (&["ab", "0", "0"], "[], "),
            (&["ab", "7"], "\"a\\u0062\""),
            (&["last", "x"], "\"last\""),
        ];
        for (path, expected) in cases {
            let path: Vec<_> = path.iter().map(|name| (*name).to_owned()).collect();
            let at = locate(text, &path).unwrap();
            assert!(text[at..].starts_with(expected), "{path:?}: {}", &text[at..]);
        }
    }

    #[test]
    fn no_text_causes_a_panic() {
        let path = ["a".to_owned(), "0".to_owned()];
        for text in [
            "",
            " ",
            "//",
            "/*",
            "{",
            "{\"",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":[",
            "{\"a\":[/",
            "]",
            "{\"a\" 1",
            "\u{feff}",
            "{\"a\":/",
        ] {
            let _ = locate(text, &path);
        }
        assert_eq!(locate("", &path), None);
        assert_eq!(locate("{\"b\": 1}", &path), None);
    }
}
