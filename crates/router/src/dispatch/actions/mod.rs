//! The actions that need more than one call of their backend.
//!
//! - [`application`]: runs an application; [`front_script`]: the script of it that a web server in front names
//! - [`share`]: looks for a file; [`send_file`]: sends the file that a script names
//! - [`action_body`]: the body that an action produces

pub mod action_body;
pub mod application;
mod front_script;
pub mod send_file;
pub mod share;
