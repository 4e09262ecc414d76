//! `http3`: HTTP/3 on a listener.

use crate::address::Address;
use crate::error::Error;
use crate::read::node::{Node, Options};
use crate::tls::Tls;
use crate::tls::conf_commands::TlsVersions;

pub(crate) const OPTIONS: Options = Options { known: &["early_data"], unsupported: &[] };

/// HTTP/3 on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http3 {
    /// Whether clients that come again may send requests before the handshake is complete (0-RTT). Default: no.
    pub early_data: bool,
}

// === impl Http3 ===

impl Http3 {
    /// HTTP/3 has no form without TLS 1.3, and none on a Unix socket.
    pub(crate) fn read(node: &Node<'_>, address: &Address, tls: Option<&Tls>) -> Result<Option<Http3>, Error> {
        let mut http3 = Http3 { early_data: false };
        let mut early_data = None;
        if node.is_object() {
            let object = node.object(&OPTIONS)?;
            http3.early_data = object.read("early_data", Node::boolean)?.unwrap_or(false);
            early_data = object.get("early_data");
        } else if !node.boolean().map_err(|_| node.expected("true, false or an object"))? {
            return Ok(None);
        }
        if !matches!(address, Address::Tcp(_)) {
            return Err(node.error("HTTP/3 needs a port, and this listener has a Unix socket; remove \"http3\""));
        }
        match tls {
            None => Err(node.error("HTTP/3 is always encrypted; add \"tls\", or remove \"http3\"")),
            Some(tls) if tls.policy.versions == TlsVersions::Tls12 => Err(node.error(
                "HTTP/3 needs TLS 1.3, which \"conf_commands\" of \"tls\" disables; allow it, or remove \"http3\"",
            )),
            Some(tls) if http3.early_data && tls.clients.is_some() => Err(early_data.as_ref().unwrap_or(node).error(
                "requests would come before the certificates of their clients, which \"client_ca\" of \"tls\" asks for; \
                 remove one of them",
            )),
            Some(_) => Ok(Some(http3)),
        }
    }
}
