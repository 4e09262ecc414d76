//! Responses, whichever action produces them.
//!
//! - `body`: the bytes that hyper sends, from an action's `Source`; `compression`: the same, compressed
//! - `application_head`: the status and the headers of an application
//! - `failure`, `redirect`: responses of howdah itself; `not_modified`: the facts that a 304 leaves out
//! - `error_pages`: the operator's pages for failures
//! - `header_case`: the case of header names
//! - `access_log`: the log's file; `log_entry`: a line of it

pub mod access_log;
pub mod application_head;
pub mod body;
pub mod compression;
pub mod error_pages;
pub mod failure;
pub mod header_case;
pub mod log_entry;
pub mod not_modified;
pub mod redirect;
