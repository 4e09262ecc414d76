//! The text that a command sends or checks: a file, or standard input.

use howdah_config::DocumentPath;
use howdah_supervisor::system_error::error_text;
use std::io::{self, Read};
use std::path::Path;

/// A text, its file, and its part of the configuration.
#[derive(Debug)]
pub struct SourceText {
    /// The file's name, for errors.
    pub name: String,
    /// The content; may not be UTF-8.
    pub content: Vec<u8>,
    /// The path in the configuration that the text replaces.
    pub path: DocumentPath,
}

// === impl SourceText ===

impl SourceText {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(file: &Path, path: DocumentPath) -> Result<SourceText, String> {
        let (name, content) = if file == Path::new("-") {
            let mut content = Vec::new();
            ("standard input".to_owned(), io::stdin().read_to_end(&mut content).map(|_| content))
        } else {
            (file.display().to_string(), std::fs::read(file))
        };
        let content = content.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("the file {name} does not exist; correct the path, or write - for standard input")
            }
            _ => format!("cannot read {name}: {}", error_text(&error)),
        })?;
        Ok(SourceText { name, content, path })
    }

    /// The content as text; the replacement character stands for bytes that are not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}
