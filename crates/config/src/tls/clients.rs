//! `client_ca` and `client_verify`: the certificates that clients show (mTLS).

use crate::error::Error;
use crate::read::node::{Node, Object};
use crate::read::scope::Scope;
use crate::tls::names::read_authority;

/// The certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The names of uploaded certificates: a client's certificate must lead to one of them. At least one, each once.
    pub authorities: Vec<String>,
    /// Whether a client without a certificate is refused. Default: it is.
    pub required: bool,
}

// === impl ClientCertificates ===

impl ClientCertificates {
    pub(crate) fn read(tls: &Object<'_>, scope: &Scope<'_>) -> Result<Option<Self>, Error> {
        let required = tls.read("client_verify", |node| {
            if tls.get("client_ca").is_none() {
                return Err(node.error("\"client_ca\" is missing; add the name of the uploaded authorities"));
            }
            node.one_of(&[("required", true), ("optional", false)])
        })?;
        let Some(node) = tls.get("client_ca") else { return Ok(None) };
        let mut authorities: Vec<String> = Vec::new();
        for name in node.one_or_many(|node: &Node<'_>| read_authority(node, scope))? {
            if !authorities.contains(&name) {
                authorities.push(name);
            }
        }
        if authorities.is_empty() {
            return Err(node.error("the array is empty; add the name of the uploaded authorities"));
        }
        Ok(Some(Self { authorities, required: required.unwrap_or(true) }))
    }
}
