//! The border between Rust and the SAPI in C: declarations, and the functions that C calls.
//!
//! A worker runs one request at a time on its only thread. The request under way is in a thread-local cell that the
//! callbacks borrow for the time of one call; none of them calls PHP, so that PHP's longjmp never crosses a Rust frame.

use howdah_channel::response::HeadWriter;
use howdah_channel::{BodyError, Claim, Violation};
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_long};

/// `struct howdah_variable`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Variable {
    pub name: *const c_char,
    pub name_len: usize,
    pub value: *const c_char,
    pub value_len: usize,
}

/// `struct howdah_request`.
#[repr(C)]
pub struct Request {
    pub variables: *const Variable,
    pub count: usize,
    pub method: *const c_char,
    pub uri: *const c_char,
    pub query_string: *const c_char,
    pub script_name: *const c_char,
    pub script_filename: *const c_char,
    pub path_info: *const c_char,
    pub document_root: *const c_char,
    pub content_type: *const c_char,
    pub cookie: *const c_char,
    pub authorization: *const c_char,
    pub content_length: c_long,
    pub began: u64,
}

/// `struct howdah_sampler_setup`.
#[repr(C)]
pub struct SamplerSetup {
    pub application: *const c_char,
    pub bell: *const u32,
    pub rate: *const u32,
    pub end: *const u64,
    pub slow_log: c_int,
    pub profile: c_int,
    pub slow_threshold: u64,
    pub slow_samples: u32,
    pub has_limit: c_int,
}

/// `struct howdah_text`.
#[repr(C)]
struct Text {
    bytes: *mut u8,
    room: usize,
    len: usize,
}

unsafe extern "C" {
    fn howdah_text_warning(text: *mut Text);
    fn howdah_is_altered() -> c_int;
    pub fn howdah_php_startup(
        ini_file: *const c_char,
        ini_entries: *const c_char,
        server_software: *const c_char,
    ) -> c_int;
    pub fn howdah_php_count_settings(ini_entries: *const c_char) -> c_int;
    pub fn howdah_php_lock_setting(name: *const c_char);
    pub fn howdah_php_opcache_is_on() -> c_int;
    pub fn howdah_php_after_fork();
    pub fn howdah_php_run(request: *const Request);
    pub fn howdah_sampler_start(setup: *const SamplerSetup) -> c_int;
    pub fn howdah_sampler_has_ended_a_request() -> c_int;
    pub fn howdah_php_shutdown();
    pub fn howdah_php_version() -> *const c_char;
    pub fn howdah_php_extension_dir() -> *const c_char;
    pub fn howdah_php_ini_dir() -> *const c_char;
    pub fn howdah_set_title(title: *const c_char);
    pub fn howdah_die_with_prototype(prototype_pid: c_int, pidfd_of_supervisor: c_int, pid_of_supervisor: c_int);
}

/// Where a request's bytes come from and go to.
pub enum Exchange {
    /// Through the channel.
    Channel(Claim<'static>),
    /// Nowhere: the floor of a bare loop is being measured.
    Discard,
}

thread_local! {
    static CURRENT: RefCell<Option<Exchange>> = const { RefCell::new(None) };
    static HEAD: RefCell<HeadWriter> = RefCell::new(HeadWriter::default());
}

/// Whether a script has altered the process for good: its limits, its priority, who it is.
pub fn is_altered() -> bool {
    // SAFETY: only reads a variable of this thread.
    unsafe { howdah_is_altered() != 0 }
}

/// Makes this the request under way.
pub fn begin(exchange: Exchange) {
    CURRENT.with_borrow_mut(|current| *current = Some(exchange));
}

fn with_claim<T>(default: T, act: impl FnOnce(&mut Claim<'static>) -> T) -> T {
    CURRENT.with_borrow_mut(|current| match current {
        Some(Exchange::Channel(claim)) => act(claim),
        _ => default,
    })
}

/// # Safety
/// `out` has room for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_read_body(out: *mut c_char, len: usize) -> c_long {
    // SAFETY: the caller promises the room; PHP's buffer is initialised memory.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast(), len) };
    with_claim(0, |claim| match claim.read_body(out) {
        Ok(read) => read as c_long,
        Err(BodyError::Incomplete) => -1,
        Err(BodyError::Broken(violation)) => broken(&violation),
    })
}

/// # Safety
/// `bytes` points to `len` readable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_write(bytes: *const c_char, len: usize) -> c_int {
    // SAFETY: the caller promises it.
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
    // SAFETY: the caller promises it.
    let reason = unsafe { std::slice::from_raw_parts(reason.cast(), len) };
    HEAD.with_borrow_mut(|head| head.restart(status as u16, reason));
}

/// # Safety
/// `line` points to `len` readable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_head_line(line: *const c_char, len: usize) {
    // SAFETY: the caller promises it.
    let line = unsafe { std::slice::from_raw_parts(line.cast(), len) };
    HEAD.with_borrow_mut(|head| head.header(line));
}

#[unsafe(no_mangle)]
extern "C" fn howdah_head_end() {
    HEAD.with_borrow_mut(|head| {
        with_claim((), |claim| {
            // A client that is gone is noticed at the next write of the body.
            let _ = claim.write(head.finish());
        });
    });
}

#[unsafe(no_mangle)]
extern "C" fn howdah_finish() {
    if let Some(Exchange::Channel(claim)) = CURRENT.with_borrow_mut(Option::take) {
        claim.finish();
    }
}

/// # Safety
/// `message` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_log(message: *const c_char) {
    // SAFETY: the caller promises it.
    let message = unsafe { std::ffi::CStr::from_ptr(message) };
    crate::log(&message.to_string_lossy());
}

/// How a warning in the log begins: time and level.
pub fn beginning_of_warning() -> String {
    let mut bytes = [0; 64];
    let mut text = Text { bytes: bytes.as_mut_ptr(), room: bytes.len(), len: 0 };
    // SAFETY: the text is as long as it says, and what is written there is counted.
    unsafe { howdah_text_warning(&raw mut text) };
    String::from_utf8_lossy(&bytes[..text.len]).into_owned()
}

/// Another worker wrote into our slot: this process can't serve any more. The supervisor starts another.
pub fn broken(violation: &Violation) -> ! {
    crate::warn(&format!("{violation}; this worker ends"));
    end(70)
}

/// Ends a worker. Not through exit handlers: opcache's memory, and whatever else PHP would tidy up, belongs to the
/// prototype.
pub fn end(code: c_int) -> ! {
    // SAFETY: ends the process; nothing of ours needs cleaning up.
    unsafe { nix::libc::_exit(code) }
}
