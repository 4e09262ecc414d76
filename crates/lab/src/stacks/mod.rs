//! Stacks: servers of PHP applications, as data.
//!
//! A stack is a folder with a `manifest.json` and templates of configuration files: below `crates/lab/stacks` for those
//! that howdah brings, below `--stacks-dir` for those of the user. No stack has code here.
//!
//! - [`manifest`]: the fields of a manifest; [`library`]: all manifests
//! - [`template`]: the language of templates and its variables
//! - [`detect`]: is it installed, and in which version?
//! - [`php`]: the one php.ini of all stacks, and the facts that PHP reports about itself
//! - [`process`]: starts and stops processes; [`running`]: a stack from its start to its stop; [`user_files`]: folders of PHP's user; [`account`]: users

pub mod account;
pub mod detect;
pub mod library;
pub mod manifest;
pub mod php;
pub mod process;
pub mod running;
pub mod template;
pub mod user_files;

pub use detect::{Detection, Missing};
pub use library::{Definition, Library};
pub use running::{Conditions, Running, StackSpec, StartFailure};
