//! The JSON Schema of the language.

/// The JSON Schema (draft 2020-12) of the language, for editors and for `howdah config schema`.
///
/// It knows the shape of a configuration: options, types, ranges, defaults. What depends on the rest of the
/// configuration (does the route of this `pass` exist?) only [`Configuration`](crate::Configuration) tells. Each
/// option says in `x-unit` what became of it since NGINX Unit.
pub const SCHEMA: &str = include_str!("../../schema.json");

#[cfg(test)]
mod tables;
#[cfg(test)]
mod tests;
