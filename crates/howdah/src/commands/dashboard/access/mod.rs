//! Which requests the dashboard answers: those of its own page, in a browser that has the token.
//!
//! - [`origin`]: the page is ours: no other page asks, and no name of a stranger leads here (DNS rebinding)
//! - [`sessions`]: the browser has shown the token
//!
//! Both are pure. A request that fails gets 403 or 401, with the reason.

pub mod origin;
pub mod sessions;
