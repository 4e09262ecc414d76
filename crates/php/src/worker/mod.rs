//! A worker: runs requests on PHP, one at a time.
//!
//! - [`serve`]: the loop of classic mode; [`script`]: the worker script of worker mode
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
mod growth;
mod request;
pub mod requests;
pub mod sampler;
pub mod script;
pub mod serve;
pub mod stderr;
