//! PHP's own options of an application: the version and the settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, quoted};
use crate::read::node::{Node, Options};

pub(crate) const OPTIONS: Options = Options { known: &["file", "admin", "user"], unsupported: &[] };

/// The types of NGINX Unit that are not PHP.
const OTHER_LANGUAGES: [&str; 10] =
    ["external", "go", "java", "node", "nodejs", "perl", "python", "ruby", "wasm", "wasm-wasi-component"];

/// In a php.ini, these words are values and cannot be names.
const INI_WORDS: [&str; 8] = ["null", "none", "yes", "no", "true", "false", "on", "off"];

/// A PHP version: `8` is any PHP 8, `8.2` any PHP 8.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhpVersion {
    /// The 8 of 8.2.
    pub major: u8,
    /// The 2 of 8.2.
    pub minor: Option<u8>,
}

/// Additions to PHP's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhpOptions {
    /// The php.ini that replaces the distribution's, an absolute path.
    pub file: Option<PathBuf>,
    /// Settings that scripts cannot change.
    pub admin: BTreeMap<String, String>,
    /// Settings that scripts can change with `ini_set()`.
    pub user: BTreeMap<String, String>,
}

// === impl PhpVersion ===

impl PhpVersion {
    /// Whether an application that requires this version can run on the other version.
    pub fn accepts(self, other: Self) -> bool {
        self.major == other.major && (self.minor.is_none() || self.minor == other.minor)
    }
}

impl FromStr for PhpVersion {
    type Err = Error;

    /// From `8` or `8.2`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let advice = || Error::configuration(format!("{} is not a PHP version; write 8.2 or 8", quoted(text)));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits && (text == "0" || !text.starts_with('0')))
        };
        let (major, minor) = match text.split_once('.') {
            Some((major, minor)) => (number(major), Some(number(minor).ok_or_else(advice)?)),
            None => (number(text), None),
        };
        Ok(Self { major: major.ok_or_else(advice)?, minor })
    }
}

impl fmt::Display for PhpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}.{minor}", self.major),
            None => write!(f, "{}", self.major),
        }
    }
}

// === impl PhpOptions ===

impl PhpOptions {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        Ok(Self {
            file: object.read("file", Node::absolute_path)?,
            admin: object.read("admin", read_settings)?.unwrap_or_default(),
            user: object.read("user", read_settings)?.unwrap_or_default(),
        })
    }
}

/// Reads settings of PHP. Other characters in a name would mislead PHP's scanner, which might then skip the settings
/// after it.
fn read_settings(node: &Node<'_>) -> Result<BTreeMap<String, String>, Error> {
    let settings = node.string_map()?;
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    let is_word = |name: &str| INI_WORDS.iter().any(|word| word.eq_ignore_ascii_case(name));
    match settings.keys().find(|name| !is_name(name) || is_word(name)) {
        Some(name) => Err(node.error(format_args!(
            "{} is not the name of a setting of PHP; write one such as \"memory_limit\"",
            quoted(name)
        ))),
        None => Ok(settings),
    }
}

/// Reads an application's `type`: `php`, `php 8`, `php 8.2`. The third number of `php 8.2.36` is ignored: a
/// distribution replaces one patch release by the next, and has only one of them.
pub(crate) fn read_type(node: &Node<'_>) -> Result<Option<PhpVersion>, Error> {
    let text = node.string()?;
    let language = text.split(' ').next().unwrap_or_default();
    if language == "php" {
        let version = text["php".len()..].trim_matches(' ');
        if version.is_empty() {
            return Ok(None);
        }
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let release = match version.rsplit_once('.') {
            Some((release, patch)) if release.contains('.') && is_number(patch) => release,
            _ => version,
        };
        if let Ok(version) = release.parse() {
            return Ok(Some(version));
        }
    }
    let letters = text.split(|c: char| !c.is_ascii_alphabetic() && c != '-').next().unwrap_or_default();
    if OTHER_LANGUAGES.contains(&letters) {
        let advice = "howdah runs PHP, and programs that are HTTP servers; write \"type\": \"http\" with a \
                      \"command\", or run it elsewhere and pass its requests there with \"proxy\"";
        return Err(node.error(format_args!("{} is not PHP; {advice}", quoted(&text))));
    }
    let advice = similar_type(&text).unwrap_or_else(|| "write \"php\", \"php 8.2\" or \"http\"".to_owned());
    Err(node.error(format_args!("{} is not a type of application; {advice}", quoted(&text))))
}

/// Advice for a type that is almost right: `PHP`, `php8.2`, `php 8.2.10`.
fn similar_type(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let version = lower.strip_prefix("php")?.trim_start_matches([' ', '-', ':', '_']);
    if version.is_empty() {
        return Some("write \"php\"".to_owned());
    }
    let mut numbers = version.split('.');
    let version: PhpVersion = match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => format!("{major}.{minor}").parse().ok()?,
        _ => version.parse().ok()?,
    };
    Some(format!("write \"php {version}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read<T>(json: &str, read: impl Fn(&Node<'_>) -> Result<T, Error>) -> Result<T, String> {
        let value = json::parse(json).expect("JSON");
        read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_type_is_php_with_or_without_a_version() {
        let cases = [
            ("php", None),
            ("php 8", Some(PhpVersion { major: 8, minor: None })),
            ("php 8.2", Some(PhpVersion { major: 8, minor: Some(2) })),
            ("php 7.0", Some(PhpVersion { major: 7, minor: Some(0) })),
            ("php 8.10", Some(PhpVersion { major: 8, minor: Some(10) })),
        ];
        for (text, expected) in cases {
            assert_eq!(read(&format!("\"{text}\""), read_type), Ok(expected), "{text}");
            if let Some(version) = expected {
                assert_eq!(format!("php {version}"), text);
            }
        }
    }

    #[test]
    fn the_patch_release_of_a_type_is_ignored() {
        let expected = Ok(Some(PhpVersion { major: 8, minor: Some(2) }));
        for text in ["php 8.2.0", "php 8.2.36", "php 8.2.10000"] {
            assert_eq!(read(&format!("\"{text}\""), read_type), expected, "{text}");
        }
    }

    #[test]
    fn another_type_is_rejected_with_advice() {
        let cases = [
            ("python 3.11", "\"python 3.11\" is not PHP; howdah runs PHP, and programs that are HTTP servers; write"),
            ("python3.11", "\"python3.11\" is not PHP; howdah runs PHP, and programs"),
            ("go", "\"go\" is not PHP"),
            ("wasm-wasi-component", "is not PHP"),
            ("PHP", "\"PHP\" is not a type of application; write \"php\""),
            ("php8.2", "\"php8.2\" is not a type of application; write \"php 8.2\""),
            ("php 8.2.1.1", "write \"php 8.2\""),
            ("php 8.2.", "write \"php 8.2\""),
            ("php 8.", "write \"php\", \"php 8.2\" or \"http\""),
            ("php 08.2", "write \"php\", \"php 8.2\" or \"http\""),
            ("php +8", "write \"php\", \"php 8.2\" or \"http\""),
            ("php 256", "write \"php\", \"php 8.2\" or \"http\""),
            ("cobol", "write \"php\", \"php 8.2\" or \"http\""),
            ("", "write \"php\", \"php 8.2\" or \"http\""),
        ];
        for (text, expected) in cases {
            let error = read(&format!("\"{text}\""), read_type).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_version_without_a_minor_number_accepts_all_of_them() {
        let version = |text: &str| text.parse::<PhpVersion>().expect(text);
        assert!(version("8").accepts(version("8.2")));
        assert!(version("8.2").accepts(version("8.2")));
        assert!(!version("8.2").accepts(version("8.3")));
        assert!(!version("7").accepts(version("8.2")));
        assert!(version("8.9") < version("8.10"));
    }

    #[test]
    fn options_are_strings() {
        let expected = PhpOptions {
            file: Some("/etc/php.ini".into()),
            admin: BTreeMap::from([("memory_limit".to_owned(), "256M".to_owned())]),
            user: BTreeMap::from([("display_errors".to_owned(), "0".to_owned())]),
        };
        let json = r#"{"file": "/etc/php.ini", "admin": {"memory_limit": "256M"}, "user": {"display_errors": "0"}}"#;
        assert_eq!(read(json, PhpOptions::read), Ok(expected));
        let cases = [
            (r#"{"admin": {"a": 128}}"#, "admin/a: expected a string; write \"128\", with quotes"),
            (r#"{"user": {"a": true}}"#, "user/a: expected a string; write \"true\", with quotes"),
            (r#"{"user": {"": "x"}}"#, "user: a name must not be empty"),
            (
                r#"{"admin": {"a=b": "x"}}"#,
                "admin: \"a=b\" is not the name of a setting of PHP; write one such as \"memory_limit\"",
            ),
            (r#"{"file": "php.ini"}"#, "file: \"php.ini\" is not an absolute path; begin it with \"/\""),
            (r#"{"memory_limit": "1G"}"#, "memory_limit: there is no such option; remove it"),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json, PhpOptions::read), Err(expected.to_owned()), "{json}");
        }
    }

    #[test]
    fn a_setting_must_have_a_valid_name() {
        for name in ["memory_limit", "opcache.jit", "xdebug.client-host", "Phar.readonly"] {
            assert!(read(&format!(r#"{{"admin": {{"{name}": "x"}}}}"#), PhpOptions::read).is_ok(), "{name}");
        }
        for name in ["a=b", "[x", "a(b", "disable_functions;", "#c", "a b", "a[]", "ä", "${a}", "null", "On"] {
            let problem = read(&format!(r#"{{"user": {{"{name}": "x"}}}}"#), PhpOptions::read).expect_err(name);
            assert!(problem.contains("is not the name of a setting of PHP"), "{name}: {problem}");
        }
    }
}
