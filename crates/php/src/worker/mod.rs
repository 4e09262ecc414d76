//! A worker: runs requests on PHP, one at a time, or several in async mode.
//!
//! - [`serve`]: the loop of classic mode; [`script`]: the worker script of worker mode
//! - [`forked`]: a worker that has just been forked; [`run`] is its life
//! - [`requests`]: the requests, one after the other, from the channel to the account
//! - [`async_mode`]: the same for several requests at a time
//! - [`service`]: the account and the limits of a worker
//! - `request`: a request's head, prepared for PHP
//! - [`callbacks`], `async_callbacks`: the functions that the SAPI in C calls
//! - `account`: its processor time, its growth, and when it exits for a replacement
//! - [`sampler`]: starts the thread that reads PHP's stack
//! - [`stderr`]: where standard error goes

mod account;
mod async_callbacks;
pub mod async_mode;
pub mod callbacks;
pub mod forked;
pub mod request;
pub mod requests;
pub mod sampler;
pub mod script;
pub mod serve;
pub mod service;
pub mod stderr;

use forked::Worker;
use requests::{Children, Requests};

/// Handles requests in classic mode, or runs its script, until the worker must exit.
pub fn run(mut worker: Worker) -> ! {
    callbacks::exit(match worker.script.take() {
        Some(script) => script::boot_and_serve(&script, worker),
        None => {
            serve::serve(Requests::begin(worker.service(), Children::Reap));
            0
        }
    })
}
