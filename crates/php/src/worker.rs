//! A worker: claims a request, runs it, claims the next.
//!
//! It ends when it is told to stop, when the supervisor dies, when it has done its part ([`Allowance`]), or when PHP ends
//! it. Memory of the request's head is private: PHP keeps pointers into it, and may go on after the response is finished
//! and the slot is someone else's.

use crate::allowance::{Allowance, Enough};
use crate::growth::Growth;
use crate::stderr::Stderr;
use crate::{sampler, sapi};
use howdah_channel::account::{monotonic, process_cpu_time};
use howdah_channel::request::{CUSTOM, NAMES, Variable, code, parse_head};
use howdah_channel::{Next, WorkerEnd};
use howdah_protocol::process_end::EXIT_ROUTER_UNREACHABLE;
use rustix::io::Errno;
use rustix::process::WaitOptions;
use std::ffi::{CStr, c_char};
use std::ptr::null;
use std::time::Duration;

/// The worker's buffers, reused from one request to the next.
#[derive(Default)]
struct Request {
    head: Vec<u8>,
    variables: Vec<Variable>,
    pointers: Vec<sapi::Variable>,
}

/// A worker that is never idle looks for dead children after so many requests: one system call, as there are mostly none.
const REAP_AFTER: u32 = 64;

/// What bounds a worker of an application.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The application's name.
    pub application: String,
    /// After so many requests it ends.
    pub requests: Option<u32>,
    /// Beyond so much memory of its own, in bytes, it ends.
    pub memory: Option<u64>,
}

/// Serves until told to stop, or as long as it may.
pub fn serve(end: &'static WorkerEnd, c_names: &[std::ffi::CString], bounds: &Bounds, stderr: &Stderr) {
    let allowance = Allowance::new(bounds.requests, bounds.memory, end.index());
    let mut growth = Growth::begin();
    let mut served = 0;
    let mut request = Request::default();
    let mut since_reaped = 0;
    let ledger = end.open_ledger();
    let cpu_at_birth = process_cpu_time();
    while let Next::Run(claim) = end.next(reap_children) {
        let read = claim.head(&mut request.head).and_then(|()| parse_head(&request.head, &mut request.variables));
        if let Err(violation) = read {
            sapi::broken(&violation);
        }
        let began = monotonic();
        let for_php = request.for_php(c_names, began);
        let (slot, sequence) = claim.name();
        ledger.begin(slot, sequence, began);
        sapi::begin(sapi::Exchange::Channel(claim));
        // SAFETY: PHP was started in the prototype; all pointers go to `request` and `c_names`, which outlive the call.
        let run = || unsafe { sapi::howdah_php_run(&for_php) };
        if request.is_warm_up() {
            stderr.heard(run)
        } else {
            run()
        }
        if end.is_cut_off() {
            bounds.tell("ends: a script has closed its descriptors");
            sapi::end(EXIT_ROUTER_UNREACHABLE);
        }
        let now = monotonic();
        ledger.finish(now, process_cpu_time().saturating_sub(cpu_at_birth));
        if sampler::has_ended_a_request() || sapi::is_altered() {
            return;
        }
        served += 1;
        if growth.after(request.path(), request.value(code::SCRIPT_NAME), began, now)
            && bounds.memory.is_none()
            && let Some(news) = growth.news()
        {
            bounds.tell(&news);
        }
        if let Some(enough) = allowance.is_used_up(served, growth.grown(), || end.may_recycle(now)) {
            if let Some(summary) = growth.summary(enough == Enough::Memory) {
                bounds.tell(&format!("{summary}; another one takes its place"));
            }
            return;
        }
        since_reaped += 1;
        if since_reaped == REAP_AFTER {
            since_reaped = 0;
            reap_children();
        }
    }
}

/// Reaps what PHP started and did not wait for; says whether some of it still runs. Between requests only: within one,
/// children are PHP's to wait for.
fn reap_children() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(None) => return true,
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

// === impl Bounds ===

impl Bounds {
    fn tell(&self, what: &str) {
        crate::warn(&format!("worker of \"{}\" (pid {}) {what}", self.application, std::process::id()));
    }
}

// === impl Request ===

impl Request {
    /// The router writes this variable last.
    fn is_warm_up(&self) -> bool {
        self.variables.last().is_some_and(|variable| variable.code == code::HOWDAH_WARM_UP)
    }

    /// The path of its URI, as the client wrote it.
    fn path(&self) -> &[u8] {
        self.value(code::REQUEST_URI).split(|byte| *byte == b'?').next().unwrap_or_default()
    }

    fn value(&self, code: u16) -> &[u8] {
        let variable = self.variables.iter().find(|variable| variable.code == code);
        variable.map_or(&[], |Variable { value: (start, len), .. }| &self.head[*start as usize..][..*len as usize])
    }

    fn for_php(&mut self, c_names: &[std::ffi::CString], began: Duration) -> sapi::Request {
        let head = &self.head;
        let at = |start: u32| head[start as usize..].as_ptr().cast::<c_char>();
        let mut by_code = [null::<c_char>(); NAMES.len()];
        self.pointers.clear();
        for variable in &self.variables {
            let value = at(variable.value.0);
            let (name, name_len) = if variable.code == CUSTOM {
                (at(variable.name.0), variable.name.1 as usize)
            } else {
                let name = &c_names[usize::from(variable.code)];
                by_code[usize::from(variable.code)] = value;
                (name.as_ptr(), name.count_bytes())
            };
            self.pointers.push(sapi::Variable { name, name_len, value, value_len: variable.value.1 as usize });
        }
        let known = |code: u16| by_code[usize::from(code)];
        let length = known(code::CONTENT_LENGTH);
        let content_length = if length.is_null() {
            0
        } else {
            // SAFETY: `parse_head` saw the NUL behind each value.
            unsafe { CStr::from_ptr(length) }.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let or_empty = |text: *const c_char| if text.is_null() { c"".as_ptr() } else { text };
        sapi::Request {
            variables: self.pointers.as_ptr(),
            count: self.pointers.len(),
            method: or_empty(known(code::REQUEST_METHOD)),
            uri: or_empty(known(code::REQUEST_URI)),
            query_string: or_empty(known(code::QUERY_STRING)),
            script_name: known(code::SCRIPT_NAME),
            script_filename: or_empty(known(code::SCRIPT_FILENAME)),
            path_info: known(code::PATH_INFO),
            document_root: known(code::DOCUMENT_ROOT),
            content_type: known(code::CONTENT_TYPE),
            cookie: known(code::HTTP_COOKIE),
            authorization: known(code::HTTP_AUTHORIZATION),
            content_length,
            began: began.as_nanos() as u64,
        }
    }
}
