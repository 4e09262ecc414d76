//! The JSON Schema of the language.

/// The JSON Schema (draft 2020-12) of the language, for editors and for `howdah config schema`.
///
/// It describes the form of a configuration: options, types, ranges, defaults. Only
/// [`Configuration`](crate::Configuration) checks values that depend on each other, such as whether the route of a
/// `pass` exists. The `x-unit` of each option compares it to NGINX Unit.
pub const SCHEMA: &str = include_str!("../../schema.json");

#[cfg(test)]
mod tables;
#[cfg(test)]
mod tests;
