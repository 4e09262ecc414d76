//! `hsts`: browsers use HTTPS only (RFC 6797).

use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};

pub(crate) const OPTIONS: Options = Options { known: &["max_age", "include_subdomains", "preload"], unsupported: &[] };

/// A year, which the browsers' lists for `preload` ask for.
const DEFAULT_SECONDS: u64 = 31_536_000;
const MAX_SECONDS: u64 = 10 * DEFAULT_SECONDS;

/// The header of all answers of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// The value of `Strict-Transport-Security`, in ASCII.
    pub header: String,
}

// === impl Hsts ===

impl Hsts {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        // 0 makes browsers forget it.
        let max_age = object.read("max_age", |node| duration::whole_seconds(node, 0..=MAX_SECONDS))?;
        let seconds = max_age.map_or(DEFAULT_SECONDS, |age| age.as_secs());
        let mut header = format!("max-age={seconds}");
        let with_subdomains = object.read("include_subdomains", Node::boolean)?.unwrap_or(false);
        if with_subdomains {
            header += "; includeSubDomains";
        }
        if let Some(preload) = object.get("preload")
            && preload.boolean()?
        {
            if !with_subdomains || seconds < DEFAULT_SECONDS {
                return Err(preload.error(format_args!(
                    "browsers accept this only with \"include_subdomains\": true and a \"max_age\" of at least {DEFAULT_SECONDS}"
                )));
            }
            header += "; preload";
        }
        Ok(Self { header })
    }
}
