//! A configuration becomes what is to be started: paths resolved, confinement prepared, PHP found and set.

pub mod application;
pub mod confinement;
pub mod defaults;
pub mod fastcgi;
mod opcache;
pub mod option_error;
pub mod php;
pub mod php_application;
pub mod planning;
pub mod program;
pub mod readable;
pub mod resolution;
mod sent_folders;
mod slow_log;
pub mod socket_access;
