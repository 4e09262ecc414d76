//! The worker script of an application in worker mode: PHP runs it once, and it asks for one request after another.
//!
//! The worker is ready when the script asks for its first request. Until then its standard error goes to the
//! supervisor, for the answer about the start. A script that ends without a request is an error: [`EXIT_BOOT_FAILED`].

#![allow(unsafe_code)] // runs PHP, and is called by it

use super::requests::{Children, Requests, WorkerLimits};
use super::stderr::Stderr;
use crate::{log, sapi};
use howdah_channel::WorkerEnd;
use howdah_protocol::messages::process_end::EXIT_BOOT_FAILED;
use howdah_protocol::messages::prototype::WorkerScript;
use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::ptr::null;

/// The state that PHP's calls need.
struct Running {
    end: &'static WorkerEnd,
    limits: WorkerLimits,
    stderr: &'static Stderr,
    /// `None` until the script asks for its first request.
    requests: Option<Requests>,
    /// The current request. PHP has a pointer to it.
    request: Box<Option<sapi::SapiRequest>>,
    /// No other request follows.
    is_over: bool,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Runs the script until it ends. Returns the exit code of the worker.
pub fn run(script: &WorkerScript, end: &'static WorkerEnd, limits: WorkerLimits, stderr: &'static Stderr) -> c_int {
    stderr.to_supervisor();
    let running = Running { end, limits, stderr, requests: None, request: Box::new(None), is_over: false };
    RUNNING.set(Some(running));
    let boot = Boot::new(script);
    // SAFETY: PHP was started in the prototype; all pointers point into `boot`, which outlives the call.
    unsafe { sapi::howdah_php_run_worker_script(&boot.request()) };
    let is_booted = RUNNING.with_borrow(|running| running.as_ref().is_some_and(|running| running.requests.is_some()));
    if is_booted || end.must_stop() {
        return 0;
    }
    log::warn(&format!(
        "the worker script {} ended before it asked for a request; it must call howdah\\handle_request() in a loop",
        script.filename.display()
    ));
    EXIT_BOOT_FAILED
}

/// Waits for the next request. Null: the script must end.
#[unsafe(no_mangle)]
extern "C" fn howdah_next_request() -> *const sapi::SapiRequest {
    RUNNING.with_borrow_mut(|running| {
        let Some(running) = running.as_mut().filter(|running| !running.is_over) else { return null() };
        let requests = running.requests.get_or_insert_with(|| {
            running.stderr.to_log();
            Requests::begin(running.end, running.limits.clone(), running.stderr, Children::Keep)
        });
        *running.request = requests.next();
        running.is_over = running.request.is_none();
        running.request.as_ref().as_ref().map_or(null(), |request| request)
    })
}

#[unsafe(no_mangle)]
extern "C" fn howdah_request_done() {
    RUNNING.with_borrow_mut(|running| {
        let Some(running) = running else { return };
        if let Some(requests) = &mut running.requests {
            running.is_over |= !requests.finish();
        }
    });
}

/// The variables of the script's boot, as `$_SERVER` has them.
struct Boot {
    strings: Vec<(CString, CString)>,
    variables: Vec<sapi::Variable>,
}

/// The indices of [`Boot::strings`].
const SCRIPT_FILENAME: usize = 0;
const SCRIPT_NAME: usize = 1;
const DOCUMENT_ROOT: usize = 2;

// === impl Boot ===

impl Boot {
    fn new(script: &WorkerScript) -> Boot {
        let text = |text: String| CString::new(text.replace('\0', "")).expect("the NULs were just removed");
        let name = |name: &str| text(name.to_owned());
        let strings = vec![
            (name("SCRIPT_FILENAME"), text(script.filename.display().to_string())),
            (name("SCRIPT_NAME"), text(format!("/{}", script.name))),
            (name("DOCUMENT_ROOT"), text(script.root.display().to_string())),
            (name("HOWDAH_WORKER"), name("1")),
            (name("FRANKENPHP_WORKER"), name("1")),
        ];
        let variable = |(name, value): &(CString, CString)| sapi::Variable {
            name: name.as_ptr(),
            name_len: name.count_bytes(),
            value: value.as_ptr(),
            value_len: value.count_bytes(),
        };
        let variables = strings.iter().map(variable).collect();
        Boot { strings, variables }
    }

    /// A request without a client. Its pointers point into `self`.
    fn request(&self) -> sapi::SapiRequest {
        let value = |index: usize| self.strings[index].1.as_ptr();
        sapi::SapiRequest {
            variables: self.variables.as_ptr(),
            count: self.variables.len(),
            method: null(),
            uri: null(),
            query_string: null(),
            script_name: value(SCRIPT_NAME),
            script_filename: value(SCRIPT_FILENAME),
            path_info: null(),
            document_root: value(DOCUMENT_ROOT),
            content_type: null(),
            cookie: null(),
            authorization: null(),
            content_length: 0,
            began: 0,
        }
    }
}
