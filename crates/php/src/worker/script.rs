//! The worker script of an application in worker mode: PHP runs it once, and it asks for one request after another.
//!
//! A worker is ready when the script asks for its first request. Until then its standard error goes to the supervisor, for
//! the answer about the start. A script that ends without a request is an error: [`EXIT_BOOT_FAILED`].
//!
//! With `preboot` the prototype runs the script, and forks its workers when the script asks for its first request.

#![allow(unsafe_code)] // runs PHP, and is called by it

use super::async_mode::held_requests::HeldRequests;
use super::forked::Worker;
use super::requests::{Children, Requests, Source};
use crate::{log, sapi};
use howdah_channel::request::CUSTOM;
use howdah_protocol::messages::process_end::EXIT_BOOT_FAILED;
use howdah_protocol::messages::prototype::WorkerScript;
use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::ptr::null;

/// The service of a script that has booted.
pub enum Served {
    OneByOne(Box<dyn Source>),
    /// Async mode.
    Several(Box<HeldRequests>),
}

/// The state that PHP's calls need.
struct Running {
    boot: BootState,
    /// The current request. PHP has a pointer to it.
    request: Box<Option<sapi::SapiRequest>>,
    /// No other request follows.
    is_over: bool,
}

enum BootState {
    /// The script boots. The function is called when it asks for its first request.
    Boots(Box<dyn FnOnce() -> Served>),
    /// The function runs.
    IsReady,
    Serves(Served),
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Runs the script of this worker until it ends. Returns the exit code of the worker.
pub fn boot_and_serve(script: &WorkerScript, worker: Worker) -> c_int {
    let end = worker.end;
    worker.stderr.to_supervisor();
    let is_ready = run(script, move || {
        worker.stderr.to_log();
        worker
    });
    if is_ready || end.must_stop() {
        return exit_code();
    }
    log::warn(&ended_without_a_request(script));
    EXIT_BOOT_FAILED
}

/// The error about a script that has not asked for a request.
pub fn ended_without_a_request(script: &WorkerScript) -> String {
    let advice = match script.concurrency {
        Some(_) => "howdah\\Async\\stream(), and run an event loop that calls howdah\\Async\\accept()",
        None => {
            "howdah\\handle_request() in a loop; an event loop with howdah\\Async needs \"concurrency\" in the \
             application's \"worker\", or --concurrency"
        }
    };
    format!(
        "the worker script {} ended before it asked for a request; it must call {advice}",
        script.filename.display()
    )
}

/// Runs the script until it ends. `on_ready` is called when it asks for its first request; it may fork this process, and then
/// returns in the workers only. Returns whether the script has asked for a request.
pub fn run(script: &WorkerScript, on_ready: impl FnOnce() -> Worker + 'static) -> bool {
    let concurrency = script.concurrency;
    run_with(script, move || {
        let service = on_ready().service();
        match concurrency {
            Some(most) => Served::Several(Box::new(HeldRequests::begin(service, most))),
            None => Served::OneByOne(Box::new(Requests::begin(service, Children::Keep))),
        }
    })
}

/// The same with requests of any source.
pub fn run_with(script: &WorkerScript, on_ready: impl FnOnce() -> Served + 'static) -> bool {
    RUNNING.set(Some(Running { boot: BootState::Boots(Box::new(on_ready)), request: Box::new(None), is_over: false }));
    let boot = Boot::new(script);
    // SAFETY: PHP was started in the prototype; all pointers point into `boot`, which outlives the call.
    unsafe { sapi::howdah_php_run_worker_script(&boot.request()) };
    RUNNING.with_borrow(|running| running.as_ref().is_some_and(|running| !matches!(running.boot, BootState::Boots(_))))
}

/// The exit code of a worker whose script has ended after its boot. A script in async mode ends when it is asked to.
pub fn exit_code() -> c_int {
    with_held(false, |held| held.takes_requests()).into()
}

/// The requests of a script in async mode; `default` if it has not booted, or is no such script.
pub fn with_held<T>(default: T, act: impl FnOnce(&mut HeldRequests) -> T) -> T {
    RUNNING.with_borrow_mut(|running| match running {
        Some(Running { boot: BootState::Serves(Served::Several(held)), .. }) => act(held),
        _ => default,
    })
}

/// The script asks for a request: if it is the first time, it has booted.
pub fn end_boot() {
    let on_ready = RUNNING.with_borrow_mut(|running| {
        let boot = &mut running.as_mut()?.boot;
        match std::mem::replace(boot, BootState::IsReady) {
            BootState::Boots(on_ready) => Some(on_ready),
            other => {
                *boot = other;
                None
            }
        }
    });
    // Outside of the borrow: it may take long, and fork.
    if let Some(on_ready) = on_ready {
        let served = on_ready();
        RUNNING.with_borrow_mut(|running| {
            if let Some(running) = running {
                running.boot = BootState::Serves(served);
            }
        });
    }
}

/// Waits for the next request. Null: the script must end.
#[unsafe(no_mangle)]
extern "C" fn howdah_next_request() -> *const sapi::SapiRequest {
    end_boot();
    RUNNING.with_borrow_mut(|running| {
        let Some(Running { boot: BootState::Serves(Served::OneByOne(source)), request, is_over: is_over @ false }) =
            running
        else {
            return null();
        };
        **request = source.next();
        *is_over = request.is_none();
        (**request).as_ref().map_or(null(), |request| request)
    })
}

#[unsafe(no_mangle)]
extern "C" fn howdah_request_done() {
    RUNNING.with_borrow_mut(|running| {
        if let Some(Running { boot: BootState::Serves(Served::OneByOne(source)), is_over, .. }) = running {
            *is_over |= !source.finish();
        }
    });
}

/// The number of the recording of memory that goes on; 0 without one.
#[unsafe(no_mangle)]
extern "C" fn howdah_memory_recording() -> u32 {
    RUNNING.with_borrow(|running| match running {
        Some(Running { boot: BootState::Serves(Served::OneByOne(source)), .. }) => source.memory_recording(),
        Some(Running { boot: BootState::Serves(Served::Several(held)), .. }) => held.memory_recording(),
        _ => 0,
    })
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
            code: CUSTOM,
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
            script_name: value(SCRIPT_NAME),
            script_filename: value(SCRIPT_FILENAME),
            document_root: value(DOCUMENT_ROOT),
            ..sapi::SapiRequest::EMPTY
        }
    }
}
