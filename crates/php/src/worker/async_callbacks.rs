//! The functions that the SAPI in C calls in async mode. Requests have numbers. None of these functions calls PHP.

#![allow(unsafe_code)] // called from C with pointers

use crate::sapi;
use crate::worker::callbacks;
use crate::worker::script::{end_boot, with_held};
use howdah_channel::BodyError;
use std::ffi::{c_char, c_int, c_long};
use std::os::fd::AsRawFd;
use std::ptr::null;

/// The script has booted. Returns the descriptor that its event loop watches.
#[unsafe(no_mangle)]
extern "C" fn howdah_async_begin() -> c_int {
    end_boot();
    with_held(-1, |held| held.descriptor().as_raw_fd())
}

#[unsafe(no_mangle)]
extern "C" fn howdah_async_accept() -> i64 {
    with_held(-1, |held| held.accept().map_or(-1, i64::from))
}

#[unsafe(no_mangle)]
extern "C" fn howdah_async_is_idle() -> c_int {
    with_held(0, |held| held.is_idle().into())
}

#[unsafe(no_mangle)]
extern "C" fn howdah_async_takes_requests() -> c_int {
    with_held(0, |held| held.is_running().into())
}

/// The pointer is valid until the request is released.
#[unsafe(no_mangle)]
extern "C" fn howdah_async_request(number: u32) -> *const sapi::SapiRequest {
    with_held(null(), |held| held.get(number).map_or(null(), |held| &raw const held.request))
}

#[unsafe(no_mangle)]
extern "C" fn howdah_async_is_open(number: u32) -> c_int {
    with_held(0, |held| held.get(number).is_some_and(|held| held.is_open()).into())
}

/// # Safety
/// `out` has room for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_async_read_body(number: u32, out: *mut c_char, len: usize) -> c_long {
    // SAFETY: the caller guarantees the room; PHP's buffer is initialised memory.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast(), len) };
    with_held(-1, |held| {
        let Some(claim) = held.get(number).and_then(|held| held.claim.as_mut()) else { return -1 };
        match claim.read_body(out) {
            Ok(read) => read as c_long,
            Err(BodyError::Incomplete) => -1,
            Err(BodyError::Broken(violation)) => callbacks::exit_after_violation(&violation),
        }
    })
}

/// Writes the head of the response, which C has completed.
#[unsafe(no_mangle)]
extern "C" fn howdah_async_write_head(number: u32) -> c_int {
    with_held(0, |held| {
        let Some(held) = held.get(number) else { return 0 };
        held.has_begun = true;
        callbacks::with_head(|head| held.write(head)).into()
    })
}

/// # Safety
/// `bytes` points to `len` readable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_async_write(number: u32, bytes: *const c_char, len: usize) -> c_int {
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
    with_held(0, |held| held.get(number).is_some_and(|held| held.write(bytes)).into())
}

#[unsafe(no_mangle)]
extern "C" fn howdah_async_flush(number: u32) {
    with_held((), |held| {
        if let Some(claim) = held.get(number).and_then(|held| held.claim.as_mut()) {
            claim.flush();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn howdah_async_finish(number: u32) {
    with_held((), |held| held.finish(number));
}

#[unsafe(no_mangle)]
extern "C" fn howdah_async_release(number: u32) {
    with_held((), |held| held.release(number));
}

#[unsafe(no_mangle)]
extern "C" fn howdah_async_close() {
    with_held((), |held| held.close());
}
