//! The names of files that are never sent: dot files and PHP sources.
//!
//! Pure functions of a normalised path ([`RequestPath`](crate::request::path::RequestPath)). They refuse too much rather than too
//! little: `x.php.`, `x.php ` and `X.PHP/` count as PHP sources, because some other server or file system may think so.

/// Whether a segment of the path begins with a dot. `.well-known` (RFC 8615) is public, and not hidden.
pub(super) fn is_hidden(relative_path: &str) -> bool {
    relative_path.split('/').any(|segment| segment.starts_with('.') && segment != ".well-known")
}

/// Whether the last segment of the path names a PHP source.
pub(super) fn is_php_source(path: &str) -> bool {
    let path = path.trim_end_matches(['/', '.', ' ']);
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some((_, extension)) = name.rsplit_once('.') else { return false };
    match extension.as_bytes() {
        [p @ .., last] if p.eq_ignore_ascii_case(b"php") => matches!(last, b'3'..=b'8' | b's' | b'S'),
        extension => [&b"php"[..], b"phtml", b"phar"].iter().any(|php| extension.eq_ignore_ascii_case(php)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_files_are_hidden() {
        for path in [".env", "a/.git/config", ".", "..", "a/../b", ".well-known/.secret", ".well-knownx", "a/.htaccess"]
        {
            assert!(is_hidden(path), "{path}");
        }
        for path in ["", "a", "a.b", "a./b", ".well-known/acme-challenge/x", "host/.well-known/x", "a/b..c/"] {
            assert!(!is_hidden(path), "{path}");
        }
    }

    #[test]
    fn php_sources_are_recognized_by_their_names() {
        let sources = "x.php x.PHP x.pHp /a/x.phtml x.phar x.phps x.PHPS x.php3 x.php4 x.php5 x.php6 x.php7 x.PHP8 \
                       x.php. x.php... x.php/ x.php// /a/.php x.jpg.php x.php./";
        for path in sources.split(' ') {
            assert!(is_php_source(path), "{path}");
        }
        assert!(is_php_source("x.php "));
        assert!(is_php_source("x.php . /"));
        for path in "x php /php x.html x.php.jpg x.php2 x.php9 x.php10 x.phpx x.inc x.php/a.css x.ph x.phtm".split(' ')
        {
            assert!(!is_php_source(path), "{path}");
        }
    }
}
