//! Matching: patterns of texts and addresses, predicates, and the conditions of steps that are made of them.

pub(crate) mod address_pattern;
pub(crate) mod condition;
pub(crate) mod fields;
pub(crate) mod pattern;
mod pcre;
pub(crate) mod predicate;
mod regular_expression;
pub(crate) mod request;
#[cfg(test)]
pub(crate) mod test_request;
