//! Requests for applications of the type `roadrunner`: their workers are PHP processes that get one request at a time over
//! a pipe, and answer over another one. The supervisor starts them, and hands over the pipes.
//!
//! In the order of a request:
//!
//! - `mod`: the whole way
//! - `request`: the request as workers get it; `form`, `multipart`, `upload`: parsed forms and uploaded files
//! - `generation`: the workers and the queue, for all threads; `line`: which request gets which worker; `worker`: the pipes
//!   of one
//! - `exchange`: one request on one worker
//! - `response`: the answer as an HTTP response
//!
//! A worker is not trusted: its bytes are checked by `howdah_goridge`, it is killed when it breaks the rules, and no
//! worker gets a request before its last answer is complete.

mod exchange;
mod form;
mod generation;
mod line;
mod multipart;
mod request;
mod response;
mod upload;
mod worker;

pub use generation::RoadRunnerGeneration;
pub use request::RequestOptions;

use crate::backends::admission::Line;
use crate::backends::buffering::spooled_body::SpooledBody;
use crate::request::clock::RequestClock;
use crate::request::incoming::IncomingBody;
use crate::request::subject::Subject;
use crate::response::failure::{Answer, Failure};
use exchange::NoAnswer;
use howdah_config::Http;
use http::header::TRANSFER_ENCODING;
use hyper::body::Body;
use request::WorkerRequest;
use std::rc::Rc;
use std::sync::Arc;

/// The number of workers that may refuse a request.
const MAX_REFUSALS: u32 = 3;

/// Sends a request to a worker, and returns its response.
///
/// # Errors
/// The failure that is answered in place of a response.
pub async fn run(
    generation: &Arc<RoadRunnerGeneration>,
    subject: &Subject<'_>,
    body: IncomingBody,
    options: RequestOptions,
    http: &Http,
    clock: &RequestClock,
) -> Answer<SpooledBody> {
    let parts = subject.parts;
    if parts.headers.contains_key(TRANSFER_ENCODING) && !http.chunked_transform {
        return Err(Failure::LengthRequired);
    }
    if !body.is_end_stream() {
        generation.reject_early().await?;
    }
    let request = WorkerRequest::read(subject, body, options, &generation.upload_folder, http).await?;
    let request = Rc::new(request);
    let disk = request.notice();
    let admitted = disk.unless_it_gives_way(generation.admit()).await??;
    let mut refusals = 0;
    loop {
        let (worker, running) = disk.unless_it_gives_way(generation.acquire(admitted)).await??;
        disk.keep();
        let folder = http.body_temp_path.as_deref();
        match exchange::send(generation, worker, running, Rc::clone(&request), clock, folder).await {
            Ok(started) => return response::of(started, parts),
            Err(NoAnswer::Failed(failure)) => return Err(failure),
            Err(NoAnswer::NotRun) => {}
            Err(NoAnswer::Refused) => {
                refusals += 1;
                if refusals == MAX_REFUSALS {
                    tracing::error!(
                        "{refusals} workers asked to be replaced instead of handling this request: answered 502"
                    );
                    return Err(Failure::BadGateway);
                }
            }
        }
    }
}
