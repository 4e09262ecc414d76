//! The product's name and version, as the header `Server` and the variable `SERVER_SOFTWARE` have them (RFC 9110, 10.2.4).

/// The name alone, for where the version is to stay hidden.
pub const NAME: &str = "howdah";
/// Name and version.
pub const SOFTWARE: &str = concat!("howdah/", env!("CARGO_PKG_VERSION"));
