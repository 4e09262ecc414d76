//! The SAPI in C (`sapi/`): declarations of its structures and of the functions that Rust calls. The functions that C calls
//! are in [`worker::callbacks`](crate::worker::callbacks), [`worker::script`](crate::worker::script) and
//! `worker::async_callbacks`.

#![allow(unsafe_code)] // calls C

use howdah_channel::STACK_BYTES;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::path::PathBuf;
use std::ptr::null;
use std::time::Duration;

/// `struct howdah_variable`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Variable {
    /// Its place in [`NAMES`](howdah_channel::request::NAMES), or [`CUSTOM`](howdah_channel::request::CUSTOM).
    pub code: u16,
    pub name: *const c_char,
    pub name_len: usize,
    pub value: *const c_char,
    pub value_len: usize,
}

/// `struct howdah_request`.
#[repr(C)]
pub struct SapiRequest {
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
    pub trace_parent: *const c_char,
    pub began: u64,
}

impl SapiRequest {
    /// Without anything that a client sends.
    pub const EMPTY: SapiRequest = SapiRequest {
        variables: null(),
        count: 0,
        method: null(),
        uri: null(),
        query_string: null(),
        script_name: null(),
        script_filename: null(),
        path_info: null(),
        document_root: null(),
        content_type: null(),
        cookie: null(),
        authorization: null(),
        content_length: 0,
        trace_parent: null(),
        began: 0,
    };
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
    pub logs_json: c_int,
}

/// `struct howdah_held_request`.
#[repr(C)]
pub struct HeldRequest {
    pub method: *const c_char,
    pub uri: *const c_char,
    pub script: *const c_char,
    pub trace_parent: *const c_char,
    pub began: u64,
    pub held: u32,
}

/// `struct howdah_text`.
#[repr(C)]
pub struct Text {
    pub bytes: *mut u8,
    pub room: usize,
    pub len: usize,
}

unsafe extern "C" {
    pub fn howdah_text_time(text: *mut Text);
    pub fn howdah_loop_stack(text: *mut Text);
    fn howdah_slow_log_rule(threshold: *mut u64, samples: *mut u32) -> c_int;
    pub fn howdah_log_held_end(request: *const HeldRequest);
    pub fn howdah_log_blocked_loop(used_last: *const HeldRequest, number: c_uint);
    fn howdah_sampler_loop(holds_requests: c_int);
    pub fn howdah_php_startup(
        ini_file: *const c_char,
        ini_entries: *const c_char,
        server_software: *const c_char,
    ) -> c_int;
    pub fn howdah_lock_folder_set(folder: *const c_char, problem: *const c_char);
    pub fn howdah_php_count_settings(ini_entries: *const c_char) -> c_int;
    pub fn howdah_php_lock_setting(name: *const c_char);
    pub fn howdah_php_opcache_is_on() -> c_int;
    fn howdah_php_each_setting(visit: extern "C" fn(*mut c_void, *const c_char, usize), context: *mut c_void);
    pub fn howdah_php_compiles(path: *const c_char, reason: *mut c_char, room: usize) -> c_int;
    pub fn howdah_php_after_fork();
    pub fn howdah_php_run(request: *const SapiRequest);
    pub fn howdah_php_enable_worker_script(is_async: c_int);
    pub fn howdah_php_leave_worker_mode();
    pub fn howdah_php_run_worker_script(boot: *const SapiRequest);
    pub fn howdah_sampler_start(setup: *const SamplerSetup) -> c_int;
    fn howdah_sampler_has_ended_a_request() -> c_int;
    fn howdah_slow_stack(request: u64, out: *mut c_char, after: *mut u64) -> usize;
    fn howdah_php_shutdown();
    fn howdah_php_version() -> *const c_char;
    fn howdah_php_extension_dir() -> *const c_char;
    fn howdah_php_ini_dir() -> *const c_char;
    pub fn howdah_set_title(title: *const c_char);
    pub fn howdah_die_with_prototype(prototype_pid: c_int, pidfd_of_supervisor: c_int, pid_of_supervisor: c_int);
}

/// PHP's full version, such as `8.2.35`, of the headers that this was compiled with.
pub fn php_version() -> String {
    // SAFETY: a string literal.
    unsafe { CStr::from_ptr(howdah_php_version()) }.to_string_lossy().into_owned()
}

/// The names of all settings that this PHP and its extensions have.
pub fn setting_names() -> Vec<String> {
    extern "C" fn collect(context: *mut c_void, name: *const c_char, len: usize) {
        // SAFETY: the context is the vector below, which nothing else uses meanwhile.
        let names = unsafe { &mut *context.cast::<Vec<String>>() };
        // SAFETY: C passes a name with its length.
        let name = unsafe { std::slice::from_raw_parts(name.cast(), len) };
        names.push(String::from_utf8_lossy(name).into_owned());
    }
    let mut names: Vec<String> = Vec::new();
    // SAFETY: PHP is started; C calls `collect` with this context only until it returns.
    unsafe { howdah_php_each_setting(collect, (&raw mut names).cast()) };
    names
}

/// The folders where this PHP was built to look for extensions and for php.ini.
pub fn built_in_folders() -> [PathBuf; 2] {
    // SAFETY: string literals.
    unsafe { [howdah_php_extension_dir(), howdah_php_ini_dir()].map(|folder| CStr::from_ptr(folder)) }
        .map(|folder| PathBuf::from(folder.to_string_lossy().into_owned()))
}

/// Whether the request that PHP ran last was ended by `limits/timeout`.
pub fn has_ended_a_request() -> bool {
    // SAFETY: only reads a variable of this thread.
    unsafe { howdah_sampler_has_ended_a_request() != 0 }
}

/// The time from which on a request is slow, and the most samples of it; `None` without a slow log.
pub fn slow_log_rule() -> Option<(Duration, u32)> {
    let (mut threshold, mut samples) = (0, 0);
    // SAFETY: both point to variables of this function; C only writes them.
    let has_slow_log = unsafe { howdah_slow_log_rule(&raw mut threshold, &raw mut samples) } != 0;
    has_slow_log.then_some((Duration::from_nanos(threshold), samples))
}

/// Async mode: whether the script holds requests, for a profile.
pub fn sample_loop(holds_requests: bool) {
    // SAFETY: only writes variables of the sampler, and wakes its thread.
    unsafe { howdah_sampler_loop(holds_requests.into()) };
}

/// Passes the last stack that the slow log has of the request that began then to `take`, with the time after which it was
/// taken.
pub fn with_slow_stack(began: Duration, take: impl FnOnce(&[u8], Duration)) {
    thread_local! {
        static STACK: RefCell<[u8; STACK_BYTES]> = const { RefCell::new([0; STACK_BYTES]) };
    }
    let mut after = 0;
    STACK.with_borrow_mut(|stack| {
        // SAFETY: C writes at most `HOWDAH_STACK_BYTES`, which is the length of the buffer.
        let len = unsafe { howdah_slow_stack(began.as_nanos() as u64, stack.as_mut_ptr().cast(), &raw mut after) };
        if len > 0 {
            take(&stack[..len], Duration::from_nanos(after));
        }
    });
}

/// Ends PHP in this process, which does not use it any more.
pub fn shutdown() {
    // SAFETY: the last use of PHP in this process.
    unsafe { howdah_php_shutdown() };
}
