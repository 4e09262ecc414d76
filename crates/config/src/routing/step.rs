//! A step of a route: a condition, and the action for the requests that meet it.

use crate::error::Error;
use crate::matching::condition::Condition;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::routing::action::Action;

pub(crate) const OPTIONS: Options = Options { known: &["match", "action"], unsupported: &[] };

/// A step of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStep {
    /// `match`: the requests that the step is for.
    pub condition: Condition,
    /// `action`: what is done with them.
    pub action: Action,
    /// Its path in the configuration: `routes/main/0`.
    pub path: String,
}

// === impl RouteStep ===

impl RouteStep {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let condition = object.read("match", |node| Condition::read(node, scope))?.unwrap_or_default();
        let action = object.require("action", "what to do, as in \"action\": {\"pass\": \"applications/NAME\"}")?;
        Ok(Self { condition, action: Action::read(&action, scope)?, path: node.to_string() })
    }
}
