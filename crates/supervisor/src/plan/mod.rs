//! A configuration becomes what is to be started: paths resolved, confinement prepared, PHP found and set.

pub mod application;
pub mod checked_paths;
pub mod confinement;
pub mod defaults;
pub mod fastcgi;
pub mod option_error;
pub mod php;
pub mod planning;
pub mod program;
pub mod readable;
pub mod resolution;
mod sent_folders;
pub mod socket_access;
