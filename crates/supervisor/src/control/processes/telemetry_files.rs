//! The files of `settings/telemetry`. The supervisor reads them, so that only its own user needs to be able to.

use howdah_config::Telemetry;
use howdah_protocol::trusted_path;
use rustix::fs::{Mode, OFlags};
use std::io::Read;
use std::path::Path;

/// The content of the files.
#[derive(Clone, PartialEq, Eq)]
pub struct TelemetryFiles {
    /// Names and values of headers for the collector.
    pub headers: Vec<(String, String)>,
    /// The certificates of authorities as PEM; `None`: those of the system.
    pub authorities: Option<String>,
}

/// Some headers, or the bundle of a system.
const MAX_BYTES: u64 = 1024 * 1024;
/// Headers that howdah writes itself.
const OUR_HEADERS: [&str; 8] =
    ["host", "content-type", "content-length", "transfer-encoding", "connection", "te", "upgrade", "user-agent"];

// === impl TelemetryFiles ===

impl TelemetryFiles {
    /// Reads the files that these settings name.
    ///
    /// # Errors
    /// The option, the problem, and what to do.
    pub fn read(telemetry: &Telemetry) -> Result<TelemetryFiles, String> {
        let headers = match &telemetry.headers_file {
            Some(path) => parse_headers(&read("headers_file", path)?)
                .map_err(|problem| format!("settings/telemetry/headers_file: {path:?}: {problem}"))?,
            None => Vec::new(),
        };
        let authorities = match &telemetry.ca_file {
            Some(path) => {
                let text = read("ca_file", path)?;
                if !text.contains("-----BEGIN CERTIFICATE-----") {
                    return Err(format!("settings/telemetry/ca_file: {path:?} has no certificate; write them as PEM"));
                }
                Some(text)
            }
            None => None,
        };
        Ok(TelemetryFiles { headers, authorities })
    }
}

fn read(option: &str, path: &Path) -> Result<String, String> {
    let problem =
        |problem: &dyn std::fmt::Display| format!("settings/telemetry/{option}: cannot read {path:?}: {problem}");
    // A pipe must not stop the supervisor, and a link of an application's user must not send a file of root's to a collector.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = trusted_path::open(path, flags, Mode::empty()).map_err(|error| problem(&error))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(problem(&"it is not a file"));
    }
    let mut text = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| problem(&error))?;
    if read as u64 > MAX_BYTES {
        return Err(problem(&format_args!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// `Name: value` on each line. The value is a secret, and in no message.
fn parse_headers(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut headers = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = index + 1;
        let (name, value) = line
            .split_once(':')
            .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()))
            .ok_or_else(|| format!("line {number} is not a header; write a name, a colon and a value"))?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!("line {number} has no header's name before its colon"));
        }
        if OUR_HEADERS.contains(&name.as_str()) || name.starts_with("grpc-") {
            return Err(format!("line {number}: howdah writes the header {name:?} itself; remove it"));
        }
        if value.is_empty() || !value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(format!("line {number}: the value of {name:?} must have printable ASCII characters only"));
        }
        headers.push((name, value.to_owned()));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_header() {
        let text = "# a key\n\nAuthorization: Bearer a:b\r\n  x-api-key:secret  \n";
        let expected = [("authorization", "Bearer a:b"), ("x-api-key", "secret")];
        let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(parse_headers(text), Ok(expected));
        assert_eq!(parse_headers(""), Ok(Vec::new()));
    }

    #[test]
    fn a_wrong_line_is_named_without_its_value() {
        let table = [
            ("secret", "line 1 is not a header; write a name, a colon and a value"),
            ("\na b: secret", "line 2 has no header's name before its colon"),
            (": secret", "line 1 has no header's name before its colon"),
            ("Host: secret", "line 1: howdah writes the header \"host\" itself; remove it"),
            ("grpc-timeout: 1S", "line 1: howdah writes the header \"grpc-timeout\" itself; remove it"),
            ("a: sec\u{e9}t", "line 1: the value of \"a\" must have printable ASCII characters only"),
            ("a:", "line 1: the value of \"a\" must have printable ASCII characters only"),
        ];
        for (text, expected) in table {
            assert_eq!(parse_headers(text), Err(expected.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn a_link_of_an_applications_user_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (secret, link) = (folder.path().join("shadow"), folder.path().join("headers"));
        std::fs::write(&secret, "root:hash\n").unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        assert_eq!(read("headers_file", &link), Ok("root:hash\n".to_owned()), "a link of root's is followed");
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        let problem = read("headers_file", &link).unwrap_err();
        assert!(problem.starts_with("settings/telemetry/headers_file: cannot read"), "{problem}");
        assert!(problem.contains("symbolic link of user id 65534"), "{problem}");
    }
}
