//! The slow log of an application: where it is, and which requests it gets.
//!
//! Without a configured path, each application has a file of its own in howdah's folder.

use crate::os::files::slow_log::SlowLogFile;
use howdah_config::SlowLog;
use howdah_protocol::messages::prototype::SlowRequests;
use std::path::Path;

/// In the state directory.
const FOLDER: &str = "slow";

/// The slow log that the application `name` is to have. It is not open yet.
///
/// # Errors
/// A sentence without the path of the option.
pub fn of(name: &str, wanted: &SlowLog, state_folder: Option<&Path>) -> Result<SlowLogFile, String> {
    let path = match (&wanted.path, state_folder) {
        (Some(path), _) => path.clone(),
        (None, Some(folder)) => folder.join(FOLDER).join(file_name(name)),
        (None, None) => return Err("without a state directory it needs a \"path\"".to_owned()),
    };
    let threshold_ms = u64::try_from(wanted.threshold.as_millis()).unwrap_or(u64::MAX);
    let requests = SlowRequests { threshold_ms, samples: wanted.samples };
    Ok(SlowLogFile::new(path, wanted.path.is_none(), requests))
}

/// The name of an application's file. An application may have any name, so other characters are escaped.
fn file_name(application: &str) -> String {
    let mut name = String::new();
    for byte in application.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            b'.' if !name.is_empty() => name.push('.'),
            byte => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name + ".jsonl"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_application_has_its_own_file_in_the_folder() {
        for (application, file) in [
            ("shop", "shop.jsonl"),
            ("a.b-c_d", "a.b-c_d.jsonl"),
            ("../etc", "%2E.%2Fetc.jsonl"),
            ("ä %", "%C3%A4%20%25.jsonl"),
        ] {
            assert_eq!(file_name(application), file);
        }
    }
}
