//! Runs a lab: checks, rounds, results. Everything that was started is stopped, also after Ctrl-C.
//!
//! - [`session`]: the lab's own folders and the conditions of all stacks; [`services`]: helpers of the application
//! - [`machine`]: the machine, and whether it is fit for the lab
//! - [`treatment`]: are all stacks treated equally?
//! - [`race`]: one run: a stack under a load
//! - [`rounds`]: all runs in their order
//! - [`limit`]: the highest rate that a stack holds
//! - [`serve`]: starts one stack and keeps it; [`single_load`]: one load on a server that runs already
//! - [`lab`]: a whole lab, from its plan to its results
//! - [`output`]: results.json, CSV files, the table on the terminal
//! - [`progress`]: the messages while it runs

pub mod lab;
pub mod limit;
pub mod machine;
pub mod output;
pub mod progress;
pub mod race;
pub mod rounds;
pub mod serve;
pub mod services;
pub mod session;
pub mod single_load;
pub mod treatment;
