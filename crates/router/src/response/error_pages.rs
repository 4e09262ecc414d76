//! The operator's pages for errors of howdah itself, read when a configuration is applied.
//!
//! A page that cannot be read then is an error of the configuration. Answers of applications and upstreams are not
//! changed.
//!
//! Clients get the content. A user who owns the folder of a page must not put a link to a file of another user there, which
//! the router may read.

use bytes::Bytes;
use howdah_config::{ErrorPage, ErrorPages};
use howdah_protocol::trusted_path;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::PathBuf;

/// The pages, by status.
#[derive(Debug, Default)]
pub struct LoadedErrorPages {
    pages: HashMap<u16, LoadedPage>,
}

#[derive(Clone, Debug)]
struct LoadedPage {
    content: Bytes,
    content_type: HeaderValue,
}

/// A page is kept in memory.
const MAX_BYTES: u64 = 1 << 20;

// === impl LoadedErrorPages ===

impl LoadedErrorPages {
    /// Reads all pages. The files that are tolerated may be missing.
    ///
    /// # Errors
    /// The path of the option, and why its file cannot be used.
    pub fn load(pages: &ErrorPages, tolerated: &HashSet<PathBuf>) -> Result<LoadedErrorPages, String> {
        // A file that is tolerated and missing has no page.
        let mut by_file: HashMap<_, Option<LoadedPage>> = HashMap::new();
        let mut loaded = HashMap::new();
        for (status, page) in pages.iter() {
            if !by_file.contains_key(&page.file) {
                let content = read(page).map_err(|problem| {
                    format!("settings/http/error_pages/{}: {:?}: {problem}; correct the path", page.option, page.file)
                });
                let content = match content {
                    Err(problem) if tolerated.contains(&page.file) => {
                        tracing::error!("{problem}; these errors have howdah's own page");
                        None
                    }
                    content => Some(content?),
                };
                by_file.insert(page.file.clone(), content);
            }
            loaded.extend(by_file.get(&page.file).cloned().flatten().map(|page| (status, page)));
        }
        Ok(LoadedErrorPages { pages: loaded })
    }

    /// Puts the page of this response's status in place of its content.
    pub fn apply(&self, response: &mut Response<Bytes>) {
        if let Some(page) = self.pages.get(&response.status().as_u16()) {
            *response.body_mut() = page.content.clone();
            response.headers_mut().insert(CONTENT_TYPE, page.content_type.clone());
        }
    }
}

fn read(page: &ErrorPage) -> Result<LoadedPage, String> {
    let mut content = Vec::new();
    let file = trusted_path::read(&page.file).map_err(|error| error.to_string())?;
    file.take(MAX_BYTES + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    if content.len() as u64 > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    Ok(LoadedPage { content: content.into(), content_type: HeaderValue::from_static(page.content_type) })
}
