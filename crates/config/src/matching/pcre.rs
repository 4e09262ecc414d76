//! Translation of PCRE's syntax of regular expressions to that of the regex crate.
//!
//! The two agree on nearly everything that they share; this module handles the rest. Inside a class of PCRE, `[`, `&&`,
//! `--` and `~~` are ordinary characters, as are a `]` at its beginning and a space under `(?x)`. Outside of a class,
//! `{` that begins no repetition is an ordinary character, and so are `\<` and `\>`. `\Q…\E` quotes, and `(?#…)` is a
//! comment. Features that need memory or look around are rejected by name, as is syntax with another meaning in the
//! regex crate.

/// Translates an expression for the regex crate.
///
/// # Errors
///
/// The problem, to follow the expression in a message.
pub(crate) fn translate(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => escape(after, &mut out)?,
            '[' => class(after, &mut out)?,
            '(' if after.starts_with("?#") => after.split_once(')').ok_or(NO_COMMENT_END)?.1,
            '(' => {
                if let Some((_, what)) = ONLY_PCRE.iter().find(|(beginning, _)| after.starts_with(beginning)) {
                    return Err(only_pcre(what));
                }
                out.push(c);
                after
            }
            '*' | '+' | '?' => {
                out.push(c);
                quantified(c, after)?
            }
            '{' => match repetition(after) {
                Some(length) => {
                    out.push('{');
                    out.push_str(&after[..length]);
                    quantified('}', &after[length..])?
                }
                None => {
                    out.push_str("\\{");
                    after
                }
            },
            _ => {
                out.push(c);
                after
            }
        };
    }
    Ok(out)
}

/// The error for a feature that only PCRE has.
pub(crate) fn only_pcre(what: &str) -> String {
    format!("is a regular expression with {what}, which only PCRE has; write it without")
}

/// The beginnings, after the `(`, of groups that only PCRE has. The regex crate itself reports look-around.
const ONLY_PCRE: [(&str, &str); 8] = [
    ("?>", "an atomic group: (?>"),
    ("?|", "a group (?|"),
    ("?(", "a condition: (?("),
    // The regex crate reads it as a flag.
    ("?R", "recursion: (?R)"),
    ("?&", "recursion: (?&"),
    ("?P>", "recursion: (?P>"),
    ("?P=", "back-references"),
    ("*", "a verb: (*"),
];
const OCTAL: &str = "an octal escape (write \\x and two hexadecimal digits)";
const NO_COMMENT_END: &str = "is a regular expression with a comment that has no end; add )";
const NO_CLASS_END: &str = "is a regular expression with a class that has no end; add ]";
const NO_CONTROL: &str = "is a regular expression with a \\c without a letter after it; add one, as in \\cA";

/// The text after a quantifier, unless a plus sign makes the quantifier possessive.
fn quantified(last: char, after: &str) -> Result<&str, String> {
    if after.starts_with('+') {
        let quantifier = format!("{last}+");
        return Err(format!(
            "is a regular expression with the possessive quantifier {quantifier:?}, which howdah does not have; remove the last \
             +"
        ));
    }
    Ok(after)
}

/// The length of `2}`, `2,}` or `2,3}`, if the text begins with one.
fn repetition(text: &str) -> Option<usize> {
    let (inner, _) = text.split_once('}')?;
    let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!least.is_empty() && is_number(least) && is_number(most)).then_some(inner.len() + 1)
}

/// Translates the escape after a backslash, and returns the text after it.
fn escape<'s>(after: &'s str, out: &mut String) -> Result<&'s str, String> {
    if let Some(quote) = after.strip_prefix('Q') {
        let (text, rest) = quote.split_once("\\E").unwrap_or((quote, ""));
        text.chars().for_each(|c| literal(c, out));
        return Ok(rest);
    }
    let Some(c) = after.chars().next() else {
        out.push('\\');
        return Ok("");
    };
    let rest = &after[c.len_utf8()..];
    match c {
        // An \E without a \Q is ignored.
        'E' => {}
        'e' => out.push_str("\\x1b"),
        'c' => return control(rest, out),
        '0' | 'o' => return Err(only_pcre(OCTAL)),
        'Z' => return Err(only_pcre("\\Z (write \\z, or $)")),
        'h' | 'H' => return Err(only_pcre("\\h or \\H (write [ \\t])")),
        // In PCRE, it is any end of a line; in the regex crate, a vertical tab.
        'v' | 'V' => return Err(only_pcre("\\v or \\V (write [\\r\\n])")),
        'N' => return Err(only_pcre("\\N (write [^\\n])")),
        'R' => return Err(only_pcre("\\R (write \\r?\\n)")),
        'p' | 'P' => return Err(only_pcre("\\p or \\P (write the letters, as in [a-zäöü])")),
        'g' | 'k' => return Err(only_pcre("back-references")),
        'K' | 'G' | 'C' | 'X' => return Err(only_pcre("\\K, \\G, \\C or \\X")),
        c if c.is_ascii_alphanumeric() => {
            out.push('\\');
            out.push(c);
        }
        // Any other character stands for itself. In the regex crate, \< and \> are ends of words.
        c => literal(c, out),
    }
    Ok(rest)
}

/// Writes a character that stands for itself, also in classes and under `(?x)`.
fn literal(c: char, out: &mut String) {
    if c.is_whitespace() {
        out.push_str(&format!("\\x{{{:x}}}", u32::from(c)));
    } else {
        out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }
}

/// Translates the letter after `\c`: the character 64 away from it is a control character.
fn control<'s>(after: &'s str, out: &mut String) -> Result<&'s str, String> {
    let letter = after.bytes().next().filter(|byte| matches!(byte, b' '..=b'~')).ok_or(NO_CONTROL)?;
    out.push_str(&format!("\\x{:02x}", letter.to_ascii_uppercase() ^ 64));
    Ok(&after[1..])
}

/// Translates a class, and returns the text after it.
fn class<'s>(after: &'s str, out: &mut String) -> Result<&'s str, String> {
    if after.starts_with("[:<:]]") || after.starts_with("[:>:]]") {
        return Err(only_pcre("[[:<:]] or [[:>:]] (write \\b)"));
    }
    out.push('[');
    let mut rest = after;
    if let Some(negated) = rest.strip_prefix('^') {
        out.push('^');
        rest = negated;
    }
    let mut is_first = true;
    loop {
        let c = rest.chars().next().ok_or(NO_CLASS_END)?;
        if c == ']' && !is_first {
            out.push(']');
            return Ok(&rest[1..]);
        }
        is_first = false;
        if let Some(name) = posix_class(rest) {
            out.push_str(name);
            rest = &rest[name.len()..];
            continue;
        }
        rest = member(rest, out)?;
        // A range, unless the class ends after the hyphen.
        if let Some(last) = rest.strip_prefix('-').filter(|last| !last.is_empty() && !last.starts_with(']')) {
            if posix_class(last).is_some() {
                continue;
            }
            out.push('-');
            rest = member(last, out)?;
        }
    }
}

/// Translates one character or escape of a class.
fn member<'s>(rest: &'s str, out: &mut String) -> Result<&'s str, String> {
    let c = rest.chars().next().ok_or(NO_CLASS_END)?;
    let after = &rest[c.len_utf8()..];
    match c {
        '\\' => match after.chars().next().ok_or(NO_CLASS_END)? {
            // In a class, it is a backspace.
            'b' => {
                out.push_str("\\x08");
                Ok(&after[1..])
            }
            // A class has no back-references, so this is an octal number.
            '0'..='9' => Err(only_pcre(OCTAL)),
            _ => escape(after, out),
        },
        c => {
            literal(c, out);
            Ok(after)
        }
    }
}

/// `[:alpha:]`, if the text begins with one.
fn posix_class(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix("[:")?.split_once(":]")?;
    let letters = name.strip_prefix('^').unwrap_or(name);
    let is_name = !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_lowercase());
    is_name.then(|| &text[..name.len() + "[::]".len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_syntax_is_translated() {
        let cases = [
            (r"^/[a&&b]$", r"^/[a\&\&b]$"),
            (r"^/[+--]$", r"^/[\+-\-]$"),
            (r"^/[[]$", r"^/[\[]$"),
            (r"^/[a[b]$", r"^/[a\[b]$"),
            (r"^/[]*+]$", r"^/[\]\*\+]$"),
            (r"[^]a]", r"[^\]a]"),
            (r"[~~]", r"[\~\~]"),
            (r"[a-z-]", r"[a-z\-]"),
            (r"[[:alpha:]_-]", r"[[:alpha:]_\-]"),
            (r"[[:^digit:]]", r"[[:^digit:]]"),
            (r"[\w-]", r"[\w\-]"),
            (r"[\]\-]", r"[\]\-]"),
            (r"[a^]", r"[a\^]"),
            (r"[\b]", r"[\x08]"),
            (r"a{2,3}b{2}c{2,}", r"a{2,3}b{2}c{2,}"),
            (r"{a}{}{,2}", r"\{a}\{}\{,2}"),
            (r"\Qa.b\E.c", r"a\.b.c"),
            (r"\Qa+", r"a\+"),
            (r"a(?#no + here)b", "ab"),
            (r"a\++\{", r"a\++\{"),
            (r"(?i:a)|ä", r"(?i:a)|ä"),
            (r"\<b\>[\<\>]\/\ä\ ", r"<b>[<>]/ä\x{20}"),
            (r"\b{start}\b{2}", r"\b\{start}\b{2}"),
            (r"\e[\e]\cA\ca\c[[\c]]", r"\x1b[\x1b]\x01\x01\x1b[\x1d]"),
            (r"(?x)a b[ #]\Q #\E", r"(?x)a b[\x{20}\#]\x{20}\#"),
        ];
        for (source, expected) in cases {
            let translated = translate(source).expect(source);
            assert_eq!(translated, expected, "{source}");
            assert!(regex::bytes::Regex::new(&translated).is_ok(), "{translated}");
        }
    }

    #[test]
    fn incomplete_and_untranslatable_syntax_is_rejected() {
        for (source, expected) in [
            ("[a", "a class that has no end"),
            ("[]", "a class that has no end"),
            ("[a-", "a class that has no end"),
            ("[a\\", "a class that has no end"),
            ("a(?#b", "a comment that has no end"),
            (r"a\Z", r"with \Z (write \z, or $), which only PCRE has"),
            (r"\h", r"write [ \t]"),
            ("a*+", "possessive"),
            ("(?>a)", "an atomic group"),
            (r"a\v", r"write [\r\n]"),
            (r"[^\V]", r"write [\r\n]"),
            (r"\N", r"write [^\n]"),
            (r"\012", r"write \x and two"),
            (r"\o{12}", r"write \x and two"),
            (r"[\1]", r"write \x and two"),
            (r"\pL", "write the letters"),
            (r"(a)\g1", "back-references"),
            (r"\c", r"as in \cA"),
            (r"\cä", r"as in \cA"),
            ("a(?R)?b", "recursion"),
            ("(?|a|b)", "(?|"),
            ("(?(1)a)", "a condition"),
            ("(*UTF8)a", "a verb"),
            ("[[:<:]]a", r"write \b"),
        ] {
            assert!(translate(source).expect_err(source).contains(expected), "{source}");
        }
    }
}
