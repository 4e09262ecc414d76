//! `parameters` of a FastCGI application: further variables of its requests, as nginx's `fastcgi_param`.

use crate::error::{Error, quoted};
use crate::read::node::Node;
use std::collections::BTreeMap;

/// Variables that decide which script runs: another value would run one that no route leads to.
const OF_THE_SCRIPT: [&str; 2] = ["SCRIPT_FILENAME", "SCRIPT_NAME"];
/// Variables that frame the body.
const OF_THE_BODY: [&str; 2] = ["CONTENT_LENGTH", "REQUEST_METHOD"];

pub(crate) fn read(node: &Node<'_>) -> Result<BTreeMap<String, String>, Error> {
    let parameters = node.string_map()?;
    for (name, value) in node.named()? {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(node.error(format_args!(
                "the name {} is not one of a variable; write it with A-Z, 0-9 and \"_\"",
                quoted(name)
            )));
        }
        if OF_THE_SCRIPT.contains(&name) {
            return Err(
                value.error("howdah finds the script; write \"root\", \"remote_root\", \"script\" or \"index\"")
            );
        }
        if OF_THE_BODY.contains(&name) {
            return Err(value.error("howdah sets it from the request; remove it"));
        }
    }
    Ok(parameters)
}
