//! The user's side of the commands: standard output, tables, text that is safe for a terminal.

pub mod output;
pub mod plain;
pub mod table;
pub mod watch;
