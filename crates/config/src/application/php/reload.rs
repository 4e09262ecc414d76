//! `reload`: when howdah starts a new generation of an application on its own.

use crate::error::Error;
use crate::read::node::Node;

/// When howdah starts a new generation of an application on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reload {
    /// When its symbolic links change: a release was deployed.
    #[default]
    OnSwap,
    /// When its symbolic links or its files change: for development.
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
    fn reload_has_three_values() {
        assert_eq!(read(r#""on-swap""#), Ok(Reload::OnSwap));
        assert_eq!(read(r#""on-change""#), Ok(Reload::OnChange));
        assert_eq!(read(r#""never""#), Ok(Reload::Never));
        let advice = "write \"on-swap\", \"on-change\" or \"never\"";
        assert_eq!(read(r#""always""#), Err(format!("\"always\" is not possible here; {advice}")));
        assert_eq!(read("true"), Err("expected \"on-swap\", \"on-change\" or \"never\", found true".to_owned()));
    }
}
