//! The processes of an HTTP application are HTTP servers, each with an address that howdah chose.

pub mod addresses;
pub mod probe;
