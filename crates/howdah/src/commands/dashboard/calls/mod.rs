//! The calls of the page: each is one or a few fixed requests to the control API.
//!
//! - [`howdah`]: the control API with timeouts; an error is an answer for the page
//! - [`now`]: the present state; a result is shared by all pages for a moment
//! - [`computing`]: work that takes some time
//! - [`recordings`]: stacks, profiles, leaks
//! - [`configuration`]: read, check, apply
//! - [`application`]: workers, slow requests, restart
//! - [`drain`]: drains a server or an application
//!
//! All text is JSON strings: the page shows it as text.

pub mod application;
pub mod computing;
pub mod configuration;
pub mod drain;
pub mod howdah;
pub mod now;
pub mod recordings;
