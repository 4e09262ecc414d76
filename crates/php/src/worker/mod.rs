//! A worker: runs requests on PHP, one at a time.
//!
//! - [`serve`]: the loop of classic mode; [`script`]: the worker script of worker mode
//! - [`forked`]: a worker that has just been forked; [`run`] is its life
//! - [`requests`]: the requests, from the channel to the account
//! - `request`: a request's head, prepared for PHP
//! - [`callbacks`]: the functions that the SAPI in C calls
//! - `allowance`, `growth`: when a worker exits for a replacement
//! - `cpu_meter`: the processor time in the worker's account
//! - [`sampler`]: starts the thread that reads PHP's stack
//! - [`stderr`]: where standard error goes

mod allowance;
pub mod callbacks;
mod cpu_meter;
pub mod forked;
mod growth;
mod request;
pub mod requests;
pub mod sampler;
pub mod script;
pub mod serve;
pub mod stderr;

use forked::Worker;
use howdah_protocol::messages::prototype::WorkerScript;
use requests::Children;

/// Handles requests in classic mode, or runs this script, until the worker must exit.
pub fn run(worker: Worker, script: Option<&WorkerScript>) -> ! {
    callbacks::exit(match script {
        Some(script) => script::boot_and_serve(script, worker),
        None => {
            serve::serve(worker.requests(Children::Reap));
            0
        }
    })
}
