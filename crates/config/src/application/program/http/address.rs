//! `address`: how a process of an HTTP application gets the address where it listens.

use crate::application::program::command::AddressVariable;
use crate::error::{Error, quoted};
use crate::read::node::Node;

/// How a process gets its address. howdah chooses another one for each process and generation, because the processes of
/// an old generation finish their requests while the new ones serve already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpAddress {
    /// The path of a Unix socket.
    #[default]
    Unix,
    /// A port of 127.0.0.1.
    Port,
    /// A socket that howdah listens on already, as descriptor 3: `LISTEN_FDS`.
    ListenFds,
}

// === impl HttpAddress ===

impl HttpAddress {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let words = [("unix", Self::Unix), ("port", Self::Port), ("listen_fds", Self::ListenFds)];
        if node.is_string() {
            let text = node.string()?;
            if text.contains(':') || text.contains('/') || text.parse::<u16>().is_ok() {
                return Err(node.error(format_args!(
                    "{} is one address, but an old and a new process run at the same time; write \"unix\", \"port\" or \
                     \"listen_fds\": the program then gets its address from howdah",
                    quoted(&text)
                )));
            }
        }
        node.one_of(&words)
    }

    /// Whether a process has this variable.
    pub fn has(self, variable: AddressVariable) -> bool {
        match variable {
            AddressVariable::Port => self == Self::Port,
            AddressVariable::Socket => self == Self::Unix,
            AddressVariable::Address => true,
        }
    }

    /// Whether a command may use this variable.
    ///
    /// # Errors
    /// With the remedy, if the process does not have it.
    pub(crate) fn check(self, variable: AddressVariable) -> Result<(), String> {
        if self.has(variable) {
            return Ok(());
        }
        let remedy = if variable == AddressVariable::Port { "port" } else { "unix" };
        let name = variable.name();
        Err(format!("${name} does not exist with this \"address\"; write \"address\": \"{remedy}\""))
    }
}

#[cfg(test)]
mod tests {
    use crate::Configuration;

    #[test]
    fn howdah_chooses_the_address() {
        let parse = |address: &str| {
            let command = if address.contains("command") { "" } else { r#", "command": "c""# };
            let text = format!(r#"{{"applications": {{"x": {{"type": "http", "address": {address}{command}}}}}}}"#);
            Configuration::parse(&text).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!([r#""unix""#, r#""port""#].map(parse), [Ok(()), Ok(())]);
        for fixed in [r#""unix:/run/x.sock""#, r#""127.0.0.1:80""#, r#""8080""#] {
            let error = parse(fixed).expect_err(fixed);
            assert!(error.contains("is one address, but an old and a new process run at the same time"), "{error}");
        }
        let variables = [
            (
                r#""unix", "command": "a $PORT""#,
                "$PORT does not exist with this \"address\"; write \"address\": \"port\"",
            ),
            (
                r#""port", "command": "$HOWDAH_SOCKET""#,
                "does not exist with this \"address\"; write \"address\": \"unix\"",
            ),
        ];
        for (address, expected) in variables {
            let error = parse(address).expect_err(address);
            assert!(error.contains(expected), "{error}");
        }
        assert!(parse("8080").expect_err("a number").contains("expected \"unix\", \"port\" or \"listen_fds\""));
        assert!(parse(r#""tcp""#).expect_err("a word").contains("write \"unix\", \"port\" or \"listen_fds\""));
    }
}
