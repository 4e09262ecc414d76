//! Which script a path runs.
//!
//! - `files`: whether a script exists
//! - `resolve`: the script of a path, and its PATH_INFO
//! - `search`: the same, also in a file system that has to wait

mod files;
mod resolve;
mod search;

pub use files::ScriptFiles;
pub use resolve::{Resolved, Script};
pub use search::find_script;
