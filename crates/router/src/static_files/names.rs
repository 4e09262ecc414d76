//! The names of files that are never sent: dot files, and PHP sources with their backups.
//!
//! Pure functions of a normalised path ([`RequestPath`](crate::request::path::RequestPath)). They refuse too much
//! rather than too little: `x.php.`, `x.php ` and `X.PHP/` count as PHP sources, because some other server or file
//! system may think so, and so do the copies that editors, version control and operators leave: `x.php~`, `x.php.bak`,
//! `#x.php#`, `x.php_old`.

/// The last extensions of files that a site publishes, also if PHP made them: `x.php.html`. Any other one behind PHP's
/// is a copy of a source.
const PUBLISHED: [&str; 38] = [
    "aac", "avif", "css", "eot", "flac", "gif", "htm", "html", "ico", "jpeg", "jpg", "js", "json", "m4a", "m4v", "map",
    "md", "mjs", "mov", "mp3", "mp4", "oga", "ogg", "ogv", "opus", "otf", "pdf", "png", "svg", "ttf", "txt", "wav",
    "webm", "webp", "woff", "woff2", "xhtml", "xml",
];

/// Whether a segment of the path begins with a dot. `.well-known` (RFC 8615) is public, and not hidden.
pub(super) fn is_hidden(relative_path: &str) -> bool {
    relative_path.split('/').any(|segment| segment.starts_with('.') && segment != ".well-known")
}

/// Whether the last segment of the path names a PHP source, or a copy of one: one of its extensions is PHP's, and the
/// last one is not [`PUBLISHED`]. A path that ends in a slash names a folder, mostly: only its last extension counts,
/// because `www.php.net/` is no copy of a source.
pub(super) fn is_php_source(path: &str) -> bool {
    // Nearly all paths end here.
    if !path.as_bytes().windows(2).any(|pair| matches!(pair, [b'.', b'P' | b'p' | b'I' | b'i'])) {
        return false;
    }
    let trimmed = path.trim_end_matches(['/', '.', ' ']);
    let is_folder = path[trimmed.len()..].contains('/');
    let name = trimmed.rsplit('/').next().unwrap_or(trimmed);
    let Some((_, last)) = name.rsplit_once('.') else { return false };
    if is_folder {
        return is_php_extension(last);
    }
    name.split('.').skip(1).any(is_php_extension) && !PUBLISHED.iter().any(|known| last.eq_ignore_ascii_case(known))
}

/// All that begins with `php` or `pht` (`phtml`, `php5`, `phps`, `php~`), and `phar` and `inc`, also with an appendix
/// (`inc~`, `inc_old`).
fn is_php_extension(extension: &str) -> bool {
    let begins_with = |prefix: &str| {
        let beginning = extension.as_bytes().get(..prefix.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    let ends_after = |length: usize| extension.as_bytes().get(length).is_none_or(|next| !next.is_ascii_alphanumeric());
    begins_with("php")
        || begins_with("pht")
        || (begins_with("phar") && ends_after(4))
        || (begins_with("inc") && ends_after(3))
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
                       x.php. x.php... x.php/ x.php// /a/.php x.jpg.php x.php./ x.pht x.phtm x.phpt x.php2 x.php10 \
                       x.inc x.INC lib.inc.old";
        for path in sources.split(' ') {
            assert!(is_php_source(path), "{path}");
        }
        assert!(is_php_source("x.php "));
        assert!(is_php_source("x.php . /"));
        for path in
            "x php /php x.html x.php.jpg x.php.html x.php.TXT x.php/a.css x.ph x.include x.inc.js x.pharo phpinfo \
             lesson.php.mp4 x.php.MP3 x.php.webm x.php.woff2 x.php.ttf www.php.net/ a/www.php.net/ x.php.bak/"
                .split(' ')
        {
            assert!(!is_php_source(path), "{path}");
        }
    }

    #[test]
    fn copies_of_php_sources_are_recognized() {
        let copies = "x.php~ x.php.bak x.phtml~ x.php.orig x.php.swp x.php_old #x.php# x.php-2024 x.php.1 x.php,v x.php.save \
                      x.phpbak x.php.~1~ x.PHP.BAK x.php.zip x.php.gz x.inc~ x.inc.bak x.phar.old x.php.dpkg-old x.php#";
        for path in copies.split(' ') {
            assert!(is_php_source(path), "{path}");
        }
        assert!(is_php_source("x.php (copy)") && is_php_source("a/Copy of x.php"));
    }
}
