//! The default paths of howdah's files: the state directory and the control socket of a `howdah run`, and the private
//! folder of each `howdah serve`.

mod serving;
mod state;

pub use serving::{ServeFolders, absolute};
pub use state::StatePaths;
