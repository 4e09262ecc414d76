//! `socket`: who may connect to a Unix socket.

use crate::address::Address;
use crate::error::{Error, quoted};
use crate::read::node::{Node, Options};

pub(crate) const OPTIONS: Options = Options { known: &["user", "group", "mode"], unsupported: &[] };

/// The access to the file of a Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixSocketAccess {
    /// The name or number of its owner; `None`: howdah's user.
    pub user: Option<String>,
    /// The name or number of its group; `None`: the group of applications without a user.
    pub group: Option<String>,
    /// Its mode; `None`: 0660.
    pub mode: Option<u32>,
}

// === impl UnixSocketAccess ===

impl UnixSocketAccess {
    /// Reads the option of a listener with this address.
    pub(crate) fn read(node: &Node<'_>, address: &Address) -> Result<Self, Error> {
        if !matches!(address, Address::Unix(_)) {
            return Err(
                node.error("only a Unix socket with a path, as in unix:/run/x.sock, has a file; remove this option")
            );
        }
        let object = node.object(&OPTIONS)?;
        Ok(Self {
            user: object.read("user", Node::nonempty_string)?,
            group: object.read("group", Node::nonempty_string)?,
            mode: object.read("mode", read_mode)?,
        })
    }
}

/// A mode as chmod(1) takes it. JSON has no octal numbers, so it is a string.
fn read_mode(node: &Node<'_>) -> Result<u32, Error> {
    let text = node.string()?;
    let digits = matches!(text.len(), 3..=4) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| digits && *mode <= 0o777);
    mode.ok_or_else(|| {
        node.error(format_args!("{} is not a mode; write three octal digits, as in \"660\" or \"0660\"", quoted(&text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn parse(address: &str, socket: &str) -> Result<UnixSocketAccess, String> {
        let text =
            format!(r#"{{"routes": [], "listeners": {{"{address}": {{"pass": "routes", "socket": {socket}}}}}}}"#);
        let parsed = Configuration::parse(&text).map_err(|error| error.to_string());
        parsed.map(|mut configuration| configuration.listeners.remove(0).socket)
    }

    #[test]
    fn access_is_read() {
        let read = parse("unix:/x", r#"{"user": "root", "group": "www-data", "mode": "0660"}"#);
        let (user, group) = (Some("root".to_owned()), Some("www-data".to_owned()));
        assert_eq!(read, Ok(UnixSocketAccess { user, group, mode: Some(0o660) }));
        assert_eq!(parse("unix:/x", "{}"), Ok(UnixSocketAccess::default()));
        assert_eq!(parse("unix:/x", r#"{"mode": "666"}"#).map(|access| access.mode), Ok(Some(0o666)));
    }

    #[test]
    fn an_error_names_the_option() {
        let no_mode = "is not a mode; write three octal digits, as in \"660\" or \"0660\"";
        let only = "only a Unix socket with a path, as in unix:/run/x.sock, has a file; remove this option";
        let cases = [
            ("unix:/x", r#"{"mode": "0888"}"#, format!("listeners/unix:%2Fx/socket/mode: \"0888\" {no_mode}")),
            ("unix:/x", r#"{"mode": "7777"}"#, format!("listeners/unix:%2Fx/socket/mode: \"7777\" {no_mode}")),
            ("unix:/x", r#"{"mode": "+66"}"#, format!("listeners/unix:%2Fx/socket/mode: \"+66\" {no_mode}")),
            ("*:80", "{}", format!("listeners/*:80/socket: {only}")),
            ("unix:@x", "{}", format!("listeners/unix:@x/socket: {only}")),
        ];
        for (address, socket, expected) in cases {
            assert_eq!(parse(address, socket), Err(expected), "{address} {socket}");
        }
    }
}
