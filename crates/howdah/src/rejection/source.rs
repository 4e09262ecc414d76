//! The text that a command is given: a file, or standard input.

use howdah_config::DocumentPath;
use howdah_supervisor::system_error::words;
use std::io::{self, Read};
use std::path::Path;

/// A text, and where it belongs.
#[derive(Debug)]
pub struct Source {
    /// The file's name, for errors.
    pub name: String,
    /// What is in it; it need not be UTF-8.
    pub content: Vec<u8>,
    /// Where in the configuration it is to stand.
    pub path: DocumentPath,
}

// === impl Source ===

impl Source {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// A sentence with the file's name.
    pub fn read(file: &Path, path: DocumentPath) -> Result<Source, String> {
        let (name, content) = if file == Path::new("-") {
            let mut content = Vec::new();
            ("standard input".to_owned(), io::stdin().read_to_end(&mut content).map(|_| content))
        } else {
            (file.display().to_string(), std::fs::read(file))
        };
        let content = content.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("there is no file {name}; correct the path, or write - for standard input")
            }
            _ => format!("{name} cannot be read: {}", words(&error)),
        })?;
        Ok(Source { name, content, path })
    }

    /// As text, with a sign in the place of what is none.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}
