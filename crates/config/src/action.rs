//! `action`: what is done with a request.

use crate::error::{Error, quoted};
use crate::node::{Node, Object, Options};
use crate::pass::{Destinations, Pass};
use crate::percent;
use crate::share::Share;

const OPTIONS: Options = Options {
    known: &["pass", "share", "return", "index", "follow_symlinks", "chroot", "fallback", "location"],
    not_yet: &["proxy", "response_headers", "rewrite", "traverse_mounts", "types"],
};

/// An action has exactly one of these options, which makes it what it is; and these go together with each.
const KINDS: [(&str, &[&str]); 3] =
    [("pass", &[]), ("share", &["index", "follow_symlinks", "chroot", "fallback"]), ("return", &["location"])];

/// What is done with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It goes on.
    Pass(Pass),
    /// It is answered with a file.
    Share(Share),
    /// It is answered at once, with a status and no body of its own.
    Return {
        /// From 200 to 999.
        status: u16,
        /// The `Location` header: visible ASCII only, and not empty.
        location: Option<String>,
    },
}

// === impl Action ===

impl Action {
    pub(crate) fn read(node: &Node<'_>, destinations: &Destinations<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let mut kinds = KINDS.iter().filter(|(kind, _)| object.get(kind).is_some());
        let (Some((kind, companions)), None) = (kinds.next(), kinds.next()) else {
            return Err(node.error("an action has exactly one of \"pass\", \"share\" and \"return\"; write one"));
        };
        let mut strays = OPTIONS.known.iter().filter(|key| *key != kind && !companions.contains(key));
        if let Some(stray) = strays.find_map(|key| object.get(key)) {
            return Err(stray.error(format_args!("this option does not go together with {kind:?}; remove it")));
        }
        if let Some(pass) = object.get("pass") {
            return Pass::read(&pass, destinations).map(Self::Pass);
        }
        if let Some(status) = object.get("return") {
            return read_return(&status, &object);
        }
        Share::read(&object, |node| Self::read(node, destinations)).map(Self::Share)
    }
}

fn read_return(status: &Node<'_>, object: &Object<'_>) -> Result<Action, Error> {
    Ok(Action::Return {
        status: status.integer(200..=999, "(an HTTP status)")?,
        location: object.read("location", read_location)?,
    })
}

fn read_location(node: &Node<'_>) -> Result<String, Error> {
    let text = node.nonempty_string()?;
    if text.contains('$') {
        let problem = "has a variable, which howdah does not support in \"location\" yet; write %24 for a dollar sign";
        return Err(node.error(format_args!("{} {problem}", quoted(&text))));
    }
    if text.chars().any(char::is_control) {
        return Err(node.error(format_args!("{} has a control character; remove it", quoted(&text))));
    }
    Ok(percent::encode_header_value(&text))
}
