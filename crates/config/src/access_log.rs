//! `access_log`: where each request is logged, in the combined format.

use std::path::PathBuf;

use crate::error::Error;
use crate::node::{Node, Options};

const OPTIONS: Options = Options { known: &["path"], not_yet: &["format", "if"] };

/// Where each request is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// To the end of a file; the path is absolute.
    Path(PathBuf),
    /// To standard output: `"-"`.
    Stdout,
}

impl AccessLog {
    /// From `"/path"`, `"-"` or `{"path": …}`.
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        if node.is_object() {
            let object = node.object(&OPTIONS)?;
            return Self::read_path(&object.require("path", "the log's path, or \"-\" for standard output")?);
        }
        Self::read_path(node)
    }

    fn read_path(node: &Node<'_>) -> Result<Self, Error> {
        match node.string()?.as_str() {
            "-" => Ok(Self::Stdout),
            _ => node.absolute_path().map(Self::Path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    #[test]
    fn a_log_is_a_path_or_standard_output() {
        let path = Some(AccessLog::Path("/var/log/x.log".into()));
        let cases = [
            (r#""/var/log/x.log""#, Ok(path.clone())),
            (r#"{"path": "/var/log/x.log"}"#, Ok(path)),
            (r#""-""#, Ok(Some(AccessLog::Stdout))),
            (r#"{"path": "-"}"#, Ok(Some(AccessLog::Stdout))),
            (r#""x.log""#, Err("access_log: \"x.log\" is not an absolute path; begin it with \"/\"")),
            ("{}", Err("access_log: \"path\" is missing; add the log's path, or \"-\" for standard output")),
            (
                r#"{"path": "-", "format": "x"}"#,
                Err("access_log/format: howdah does not support this option of NGINX Unit yet; remove it"),
            ),
            ("false", Err("access_log: expected a string; write \"false\", with quotes")),
        ];
        for (json, expected) in cases {
            let parsed = Configuration::parse(&format!(r#"{{"access_log": {json}}}"#));
            assert_eq!(parsed.map(|c| c.access_log).map_err(|e| e.to_string()), expected.map_err(str::to_owned));
        }
    }
}
