//! `basic_auth`: the users that may use an action, and their passwords.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{Error, quoted};
use crate::read::node::{Node, Options};
use crate::routing::password_hash::PasswordHash;

pub(crate) const OPTIONS: Options = Options { known: &["realm", "users", "user_file"], unsupported: &[] };

/// The users of an action. There is a user or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// Its path in the configuration, for errors about its file.
    pub option: String,
    /// The name of the protected part, which browsers may show: visible ASCII and spaces, without quotes and
    /// backslashes.
    pub realm: String,
    /// The users by name. A name has no colon and no control character.
    pub users: BTreeMap<String, PasswordHash>,
    /// A file with further users, in the form of `htpasswd`. A user of `users` has priority.
    pub user_file: Option<PathBuf>,
}

// === impl BasicAuth ===

impl BasicAuth {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let realm = object.require("realm", "the name of the protected part, as in \"realm\": \"staging\"")?;
        let read = Self {
            option: node.to_string(),
            realm: read_realm(&realm)?,
            users: object.read("users", read_users)?.unwrap_or_default(),
            user_file: object.read("user_file", |node| node.absolute_path())?,
        };
        if read.users.is_empty() && read.user_file.is_none() {
            return Err(node.error("there is no user; add one to \"users\", or a \"user_file\""));
        }
        Ok(read)
    }
}

fn read_realm(node: &Node<'_>) -> Result<String, Error> {
    let realm = node.nonempty_string()?;
    let is_plain = |c: char| (c == ' ' || c.is_ascii_graphic()) && c != '"' && c != '\\';
    match realm.chars().all(is_plain) {
        true => Ok(realm),
        false => Err(node.error(format_args!(
            "{} has a character that browsers may misread; write letters, digits and punctuation of ASCII, without \
             quotes and backslashes",
            quoted(&realm)
        ))),
    }
}

fn read_users(node: &Node<'_>) -> Result<BTreeMap<String, PasswordHash>, Error> {
    let mut users = BTreeMap::new();
    for (name, node) in node.named()? {
        if name.contains(':') {
            return Err(node.error("a user's name has no colon; remove it"));
        }
        let hash = PasswordHash::parse(&node.string()?).map_err(|problem| node.error(problem))?;
        users.insert(name.to_owned(), hash);
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    const HASH: &str = "$apr1$8sFt66rZ$TNvTM3CyjLhLWCsSnWNkJ1";

    fn read(json: &str) -> Result<BasicAuth, String> {
        let text = format!(r#"{{"routes": [{{"action": {{"return": 200, "basic_auth": {json}}}}}]}}"#);
        let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        let route = configuration.routes.find(None).expect("routes");
        Ok(route.steps()[0].action.basic_auth.clone().expect("basic_auth"))
    }

    #[test]
    fn users_are_in_the_configuration_or_in_a_file() {
        let read = read(&format!(r#"{{"realm": "the shop", "users": {{"ann": "{HASH}"}}, "user_file": "/etc//x"}}"#));
        let read = read.expect("valid");
        assert_eq!(read.option, "routes/0/action/basic_auth");
        assert_eq!((&*read.realm, read.user_file), ("the shop", Some("/etc/x".into())));
        assert_eq!(read.users["ann"].as_str(), HASH);
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (json, expected) in [
            ("{}", ": \"realm\" is missing; add the name of the protected part"),
            (r#"{"realm": "x"}"#, ": there is no user; add one to \"users\", or a \"user_file\""),
            (r#"{"realm": "x", "users": {}}"#, ": there is no user"),
            (r#"{"realm": ""}"#, "/realm: the string is empty"),
            (r#"{"realm": "a\"b"}"#, "/realm: \"a\\\"b\" has a character that browsers may misread"),
            (r#"{"realm": "x", "user_file": "x"}"#, "/user_file: \"x\" is not an absolute path"),
            (r#"{"realm": "x", "users": {"a:b": "x"}}"#, "/users/a:b: a user's name has no colon; remove it"),
            (r#"{"realm": "x", "users": {"a": "secret"}}"#, "/users/a: this is no hash of bcrypt"),
            (r#"{"realm": "x", "user": {}}"#, "/user: there is no such option; did you mean \"users\"?"),
        ] {
            let error = read(json).expect_err(json);
            let expected = format!("routes/0/action/basic_auth{expected}");
            assert!(error.starts_with(&expected), "{error}");
            assert!(!error.contains("secret"));
        }
    }
}
