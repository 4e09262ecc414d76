//! Responses: their bodies, their compression, howdah's own failure pages, and the access log.

pub mod access_log;
pub mod body;
pub mod compression;
pub mod failure;
pub mod log_entry;
pub mod not_modified;
pub mod redirect;
