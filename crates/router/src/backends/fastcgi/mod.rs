//! Requests for applications of the type `fastcgi`: PHP-FPM, or another FastCGI server, runs their scripts. howdah does not
//! start it.
//!
//! In the order of a request:
//!
//! - `mod`: the whole way
//! - `request`: its records
//! - `generation`: the queue, for all threads; `places`: which request gets which connection; `connection`: one of them
//! - `exchange`: one request on one connection; `messages`: what scripts log
//! - `response`: the answer as an HTTP response
//!
//! A process of FPM serves one connection at a time, and accepts the next one when that ends. Therefore the number of
//! connections has a limit, beyond which requests wait in howdah's queue: FPM's own has no deadlines, and refuses when it is
//! full. A server that cannot be reached is no error of a request: the request waits until it can, or its time is over.
//!
//! A server is not trusted: its bytes are checked by `howdah_fastcgi`, its head has a limit, and its body is held in a spool
//! with a limit. A connection is used again only after a complete answer.

mod connection;
mod exchange;
mod generation;
mod messages;
mod places;
mod request;
mod response;

pub use generation::FastCgiGeneration;

use crate::backends::admission::{Line, RunningRequest};
use crate::backends::buffering::request_body::{self, BufferedBody};
use crate::backends::buffering::spooled_body::SpooledBody;
use crate::backends::fastcgi::exchange::{Call, NoAnswer};
use crate::backends::fastcgi::generation::RemoteTarget;
use crate::backends::script::Script;
use crate::request::incoming::IncomingBody;
use crate::request::subject::Subject;
use crate::response::failure::{Answer, Failure};
use howdah_config::{Http, Retry};
use http::Method;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::body::Body;
use request::ServerRequest;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The pause before a request is sent again to a server that did not carry it out, or closed its connection. Each further
/// one is twice as long: the whole body goes to the server each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Sends a request to the server, and returns its response.
///
/// # Errors
/// The failure that is answered in place of a response.
pub async fn run(
    generation: &Arc<FastCgiGeneration>,
    target: &RemoteTarget,
    subject: &Subject<'_>,
    script: &Script,
    body: IncomingBody,
    retry: Retry,
    http: &Http,
) -> Answer<SpooledBody> {
    let parts = subject.parts;
    if parts.headers.contains_key(TRANSFER_ENCODING) && !http.chunked_transform {
        return Err(Failure::LengthRequired);
    }
    let has_body = !body.is_end_stream();
    let body = match has_body {
        true => {
            generation.reject_early().await?;
            request_body::read(body, http).await?
        }
        false => BufferedBody::EMPTY,
    };
    let body_len = (has_body || parts.headers.contains_key(CONTENT_LENGTH)).then(|| body.len());
    let disk = body.notice();
    let request = Rc::new(ServerRequest::new(generation, target, subject, script, body, body_len));
    // RFC 9110 calls more methods idempotent, but few scripts agree.
    let is_repeatable = !has_body && matches!(parts.method, Method::GET | Method::HEAD);
    let admitted = disk.unless_it_gives_way(generation.admit()).await??;
    let (mut may_reuse, mut may_retry) = (is_repeatable, is_repeatable && retry == Retry::Idempotent);
    let mut pause = FIRST_PAUSE;
    loop {
        let (place, connection) = disk.unless_it_gives_way(generation.connect(admitted, may_reuse)).await??;
        disk.keep();
        let is_reused = connection.is_reused();
        let running = RunningRequest::new(generation);
        let call = Call { generation, place, connection, running, spool_folder: http.body_temp_path.as_deref() };
        let pauses = match exchange::send(call, Rc::clone(&request)).await {
            Ok(started) => return response::of(started, parts),
            Err(NoAnswer::Failed(failure)) => return Err(failure),
            // Nothing of the request was sent. The next connection is a new one.
            Err(NoAnswer::Unsent) if is_reused => {
                may_reuse = false;
                false
            }
            Err(NoAnswer::Unsent | NoAnswer::Refused) => true,
            Err(NoAnswer::Closed(trouble)) => {
                // FPM closes a connection that it has kept when its process has reached pm.max_requests.
                let repeats = is_reused && may_reuse || std::mem::take(&mut may_retry);
                if !repeats {
                    return Err(trouble.fail());
                }
                trouble.log_retry(is_reused);
                may_reuse = false;
                // A server that stops closes the connections that it has not accepted: another one would be among them.
                !is_reused
            }
        };
        if pauses {
            let paused = generation.admission().in_time(admitted, sleep(pause));
            if disk.unless_it_gives_way(paused).await?.is_none() {
                return Err(generation.reject_late().await);
            }
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }
}
