//! PHP: a request's way to a worker and back, over the channel of its application's generation.
//!
//! In the order of a request:
//!
//! - `run`: the whole way; `retry` decides on another attempt
//! - `admission`: the slots, and the requests that kill workers; `generation` applies them for all threads; `run_times`:
//!   how quick its requests are, and when another worker is woken for them
//! - `port`: a thread's requests in the channel
//! - `response_head`, `response_body`: PHP's response as one of HTTP
//! - `warm_up`: the first requests of a generation, which come from the supervisor

mod admission;
mod generation;
mod port;
mod response_body;
mod response_head;
mod retry;
mod run;
mod run_times;
mod warm_up;

pub use generation::SharedGeneration;
pub use port::{GenerationPort, SWEEP};
pub use response_body::PhpBody;
pub use run::{ScriptCall, run};
pub use warm_up::{WarmUpOrder, Warming};
