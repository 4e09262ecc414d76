//! The names of uploaded certificates to which options refer.

use std::collections::BTreeSet;

use crate::error::{Error, did_you_mean, quoted};
use crate::read::node::Node;
use crate::read::scope::Scope;

/// Reads the name of a stored certificate that has a key.
pub(crate) fn read_certificate(node: &Node<'_>, scope: &Scope<'_>) -> Result<String, Error> {
    let name = node.nonempty_string()?;
    match scope.context.certificates {
        Some(known) if known.with_key.contains(&name) => Ok(name),
        Some(known) if known.authorities.contains(&name) => Err(node.error(format_args!(
            "{} was uploaded without a private key; upload it again under another name: cat chain.pem key.pem",
            quoted(&name)
        ))),
        Some(known) => Err(unknown_certificate(node, &name, &known.with_key)),
        None => Ok(name),
    }
}

/// Reads the name of stored certificates, with a key or without.
pub(crate) fn read_authority(node: &Node<'_>, scope: &Scope<'_>) -> Result<String, Error> {
    let name = node.nonempty_string()?;
    match scope.context.certificates {
        Some(known) if !known.authorities.contains(&name) && !known.with_key.contains(&name) => {
            Err(unknown_certificate(node, &name, &known.authorities))
        }
        _ => Ok(name),
    }
}

fn unknown_certificate(node: &Node<'_>, name: &str, known: &BTreeSet<String>) -> Error {
    let similar = did_you_mean(name, known.iter().map(String::as_str));
    let otherwise = if similar.is_empty() { "; upload it first: howdah certificate put" } else { &similar };
    node.error(format_args!("there is no certificate {}{otherwise}", quoted(name)))
}
