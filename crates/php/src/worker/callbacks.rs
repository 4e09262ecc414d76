//! The functions that the SAPI in C calls.
//!
//! A worker runs one request at a time on its only PHP thread. The current request is in a thread-local cell, which each
//! callback borrows for the time of its call. No callback calls PHP, so that PHP's longjmp never crosses a Rust frame.

#![allow(unsafe_code)] // called from C with pointers

use super::account::cpu_meter::RequestCpu;
use super::request::c_names;
use crate::{log, sapi};
use howdah_channel::account::monotonic;
use howdah_channel::response::ResponseHeadWriter;
use howdah_channel::{BodyError, Claim, Violation};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_long};
use std::ptr::null;

/// The exit code of a worker whose slot another worker has overwritten: EX_SOFTWARE of sysexits.h.
const EXIT_VIOLATION: c_int = 70;

/// The request that the worker runs: where its bytes come from and go to.
pub enum CurrentRequest {
    /// Through the channel.
    Channel(Claim<'static>),
    /// Nowhere: `--floor` measures PHP alone.
    Discard,
}

thread_local! {
    static CURRENT: RefCell<Option<CurrentRequest>> = const { RefCell::new(None) };
    static REQUEST_CPU: RefCell<RequestCpu> = RefCell::new(RequestCpu::begin());
    static HEAD: RefCell<ResponseHeadWriter> = RefCell::new(ResponseHeadWriter::default());
}

/// The worker has slept between two requests.
pub fn worker_has_slept() {
    REQUEST_CPU.with_borrow_mut(RequestCpu::worker_has_slept);
}

/// Makes this the current request.
pub fn begin(request: CurrentRequest) {
    CURRENT.with_borrow_mut(|current| *current = Some(request));
}

fn with_claim<T>(default: T, act: impl FnOnce(&mut Claim<'static>) -> T) -> T {
    CURRENT.with_borrow_mut(|current| match current {
        Some(CurrentRequest::Channel(claim)) => act(claim),
        _ => default,
    })
}

/// The name of a variable by its code; null behind the last one.
#[unsafe(no_mangle)]
extern "C" fn howdah_variable_name(code: usize) -> *const c_char {
    c_names().get(code).map_or(null(), |name| name.as_ptr())
}

/// Reads from the request's body: 0 is the end, and -1 means that the rest will not arrive.
///
/// # Safety
/// `out` has room for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_read_body(out: *mut c_char, len: usize) -> c_long {
    // SAFETY: the caller guarantees the room; PHP's buffer is initialised memory.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast(), len) };
    with_claim(0, |claim| match claim.read_body(out) {
        Ok(read) => read as c_long,
        Err(BodyError::Incomplete) => -1,
        Err(BodyError::Broken(violation)) => exit_after_violation(&violation),
    })
}

/// # Safety
/// `bytes` points to `len` readable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_write(bytes: *const c_char, len: usize) -> c_int {
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
    with_claim(1, |claim| claim.write(bytes).is_ok().into())
}

#[unsafe(no_mangle)]
extern "C" fn howdah_flush() {
    with_claim((), Claim::flush);
}

#[unsafe(no_mangle)]
extern "C" fn howdah_client_is_gone() -> c_int {
    with_claim(0, |claim| claim.client_gone().into())
}

/// # Safety
/// `reason` points to `len` readable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_head_begin(status: c_int, reason: *const c_char, len: usize) {
    // SAFETY: the caller guarantees it.
    let reason = unsafe { std::slice::from_raw_parts(reason.cast(), len) };
    HEAD.with_borrow_mut(|head| head.restart(status as u16, reason));
}

/// # Safety
/// `line` points to `len` readable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_head_line(line: *const c_char, len: usize) {
    // SAFETY: the caller guarantees it.
    let line = unsafe { std::slice::from_raw_parts(line.cast(), len) };
    HEAD.with_borrow_mut(|head| head.header(line));
}

/// Passes the head of the response, which C has completed, to `write`.
pub fn with_head<T>(write: impl FnOnce(&[u8]) -> T) -> T {
    HEAD.with_borrow_mut(|head| write(head.finish()))
}

#[unsafe(no_mangle)]
extern "C" fn howdah_head_end() {
    with_head(|head| {
        with_claim((), |claim| {
            // The next write of the body detects a client that is gone.
            let _ = claim.write(head);
        });
    });
}

#[unsafe(no_mangle)]
extern "C" fn howdah_finish() {
    if let Some(CurrentRequest::Channel(mut claim)) = CURRENT.with_borrow_mut(Option::take) {
        let ran = claim.began().map(|began| monotonic().saturating_sub(began));
        if let Some(ran) = ran {
            let times = REQUEST_CPU.with_borrow_mut(|meter| meter.of_request(ran));
            claim.set_times(times.cpu, times.occupied);
        }
        if let Some(began) = claim.began() {
            sapi::with_slow_stack(began, |stack, after| claim.set_stack(stack, after));
        }
        claim.finish();
    }
}

/// # Safety
/// `message` is a C string; `method` and `uri` are C strings, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_log(
    message: *const c_char,
    syslog_level: c_int,
    method: *const c_char,
    uri: *const c_char,
) {
    // SAFETY: the caller guarantees it.
    let text = |string: *const c_char| unsafe { CStr::from_ptr(string) }.to_string_lossy();
    let request = (!method.is_null() && !uri.is_null()).then(|| (text(method), text(uri)));
    let request = request.as_ref().map(|(method, uri)| (&**method, &**uri));
    log::write_php(&text(message), syslog_level, request);
}

/// Another worker wrote into this worker's slot. Exits; the supervisor starts another worker.
pub fn exit_after_violation(violation: &Violation) -> ! {
    log::warn(&format!("{violation}; this worker exits"));
    exit(EXIT_VIOLATION)
}

/// Exits without exit handlers: opcache's memory, and the other things that PHP would clean up, belong to the prototype.
pub fn exit(code: c_int) -> ! {
    // SAFETY: ends the process; this process has nothing to clean up.
    unsafe { nix::libc::_exit(code) }
}
