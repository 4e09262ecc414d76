//! Names on demand: a client asks for a name that is not in the configuration, and the operator's program allows it.
//!
//! - `names`: which names are asked for, and how many; what was asked, and what the router does not know yet
//! - `messages`: the way of a name, from the router's report over the question to the order, and back to the router

mod messages;
mod names;

pub use names::OnDemandNames;
