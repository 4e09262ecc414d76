//! The first steps of a child.
//!
//! - [`inherited`]: the descriptors that it gets from the process that started it
//! - [`parent_death`]: it dies with the supervisor
//! - [`session`]: it has neither the terminal nor the keys of the user who started howdah
//! - [`identity`]: the user that it becomes
//! - [`system_authorities`]: the certificates that it trusts

pub mod identity;
pub mod inherited;
pub mod parent_death;
pub mod session;
pub mod system_authorities;
