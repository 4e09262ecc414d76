//! The first steps of a child.
//!
//! - [`inherited`]: the descriptors that it gets from the process that started it
//! - [`parent_death`]: it dies with the supervisor
//! - [`identity`]: the user that it becomes
//! - [`system_authorities`]: the certificates that it trusts

pub mod identity;
pub mod inherited;
pub mod parent_death;
pub mod system_authorities;
