//! `reload`: when an application starts anew by itself.

use crate::error::Error;
use crate::read::node::Node;

/// When a new generation of an application starts without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reload {
    /// When its symbolic links lead elsewhere: a release was deployed.
    #[default]
    OnSwap,
    /// Then, and when one of its files changes: for development.
    OnChange,
    /// Never.
    Never,
}

// === impl Reload ===

impl Reload {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[("on-swap", Self::OnSwap), ("on-change", Self::OnChange), ("never", Self::Never)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<Reload, String> {
        let value = json::parse(json).expect("JSON");
        Reload::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn there_are_three_times_to_reload() {
        assert_eq!(read(r#""on-swap""#), Ok(Reload::OnSwap));
        assert_eq!(read(r#""on-change""#), Ok(Reload::OnChange));
        assert_eq!(read(r#""never""#), Ok(Reload::Never));
        let advice = "write \"on-swap\", \"on-change\" or \"never\"";
        assert_eq!(read(r#""always""#), Err(format!("there is no \"always\"; {advice}")));
        assert_eq!(read("true"), Err("expected \"on-swap\", \"on-change\" or \"never\", found true".to_owned()));
    }
}
