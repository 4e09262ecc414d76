//! The floor: a script in a bare loop of PHP's own request start-up, execution and shut-down, with nothing around it; and the
//! same for a worker script in worker mode.
//!
//! `howdah-php8.2 --floor [--worker] SCRIPT REQUESTS [INI]` prints the CPU microseconds of one request. bench/ compares them
//! with those of the whole of howdah. The request is one of a load generator, for /hello.php.

#![allow(unsafe_code)] // runs PHP

use crate::sapi;
use crate::worker::callbacks::{self, CurrentRequest};
use crate::worker::request::c_names;
use crate::worker::requests::Source;
use crate::worker::script::{self, Served};
use howdah_channel::request::NAMES;
use howdah_protocol::messages::prototype::WorkerScript;
use nix::sys::resource::{UsageWho, getrusage};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::ptr::null;

/// The variables of the request, beside SCRIPT_FILENAME.
const VARIABLES: [(&str, &CStr); 21] = [
    ("REQUEST_METHOD", c"GET"),
    ("REQUEST_URI", URI),
    ("QUERY_STRING", c""),
    ("SCRIPT_NAME", URI),
    ("DOCUMENT_ROOT", c"/srv/shop/public"),
    ("DOCUMENT_URI", URI),
    ("SERVER_PROTOCOL", c"HTTP/1.1"),
    ("SERVER_SOFTWARE", c"howdah"),
    ("SERVER_NAME", c"127.0.0.1"),
    ("SERVER_ADDR", c"127.0.0.1"),
    ("SERVER_PORT", c"8080"),
    ("REMOTE_ADDR", c"127.0.0.1"),
    ("REMOTE_PORT", c"50000"),
    ("REQUEST_SCHEME", c"http"),
    ("GATEWAY_INTERFACE", c"CGI/1.1"),
    ("REDIRECT_STATUS", c"200"),
    ("HTTP_HOST", c"127.0.0.1:8080"),
    ("HTTP_ACCEPT", c"*/*"),
    ("HTTP_CONNECTION", c"keep-alive"),
    ("HTTP_ACCEPT_ENCODING", c"gzip"),
    ("HTTP_USER_AGENT", c"howdah-floor"),
];
const URI: &CStr = c"/hello.php";

/// The same request again and again.
struct Repeated {
    variables: Vec<sapi::Variable>,
    script: CString,
    /// How many are left of the warm-up, and of the requests that are measured.
    warm_up: u32,
    measured: u32,
    requests: u32,
    /// The processor time at the end of the warm-up.
    before: f64,
}

/// Runs the loop and prints the figure.
///
/// # Errors
/// When PHP can't be started or an argument makes no sense.
pub fn run(arguments: &[String]) -> Result<(), String> {
    const USAGE: &str = "usage: --floor [--worker] SCRIPT REQUESTS [PHP_INI]";
    let is_worker = arguments.first().is_some_and(|argument| argument == "--worker");
    let arguments = &arguments[usize::from(is_worker)..];
    let script = arguments.first().ok_or(USAGE)?;
    let requests: u32 = arguments.get(1).and_then(|text| text.parse().ok()).filter(|n| *n > 0).ok_or(USAGE)?;
    // Without it the failures of PHP would be measured.
    if !Path::new(script).is_file() {
        return Err(format!("{script} is not a file"));
    }
    let c = |text: &str| CString::new(text).map_err(|_| USAGE);
    let ini = arguments.get(2).map(|path| c(path)).transpose()?;
    // SAFETY: once, on the only thread; the strings are literals or outlive PHP.
    let started = unsafe {
        if is_worker {
            sapi::howdah_php_enable_worker_script(0);
        }
        sapi::howdah_php_startup(ini.as_ref().map_or(null(), |path| path.as_ptr()), c"".as_ptr(), c"floor".as_ptr())
    };
    if started == 0 {
        return Err("PHP does not start".into());
    }
    let mut repeated = Repeated::new(c(script)?, requests);
    if is_worker {
        let path = PathBuf::from(script);
        let (root, name) = (path.parent().unwrap_or(Path::new("/")).to_owned(), String::new());
        let script = WorkerScript { root, name, filename: path, preboot: false, concurrency: None };
        return match script::run_with(&script, move || Served::OneByOne(Box::new(repeated))) {
            true => Ok(()),
            false => Err(script::ended_without_a_request(&script)),
        };
    }
    while let Some(request) = repeated.next() {
        // SAFETY: PHP is started; the pointers outlive the call.
        unsafe { sapi::howdah_php_run(&request) };
    }
    Ok(())
}

// === impl Repeated ===

impl Repeated {
    fn new(script: CString, requests: u32) -> Repeated {
        let variable = |(name, value): (&str, &CStr)| {
            let code = NAMES.iter().position(|known| *known == name).expect("a known name");
            let (c_name, value_len) = (&c_names()[code], value.count_bytes());
            let (name, name_len) = (c_name.as_ptr(), c_name.count_bytes());
            sapi::Variable { code: code as u16, name, name_len, value: value.as_ptr(), value_len }
        };
        // The pointers stay valid: the string's bytes do not move with the structure.
        let filename = ("SCRIPT_FILENAME", script.as_c_str());
        let variables = VARIABLES.into_iter().chain([filename]).map(variable).collect();
        Repeated { variables, script, warm_up: requests.div_ceil(10), measured: requests, requests, before: 0.0 }
    }
}

impl Source for Repeated {
    fn next(&mut self) -> Option<sapi::SapiRequest> {
        if self.warm_up > 0 {
            self.warm_up -= 1;
        } else if self.measured > 0 {
            if self.measured == self.requests {
                self.before = cpu_seconds();
            }
            self.measured -= 1;
        } else {
            println!("{:.3}", (cpu_seconds() - self.before) * 1e6 / f64::from(self.requests));
            return None;
        }
        callbacks::begin(CurrentRequest::Discard);
        Some(sapi::SapiRequest {
            variables: self.variables.as_ptr(),
            count: self.variables.len(),
            method: c"GET".as_ptr(),
            uri: URI.as_ptr(),
            query_string: c"".as_ptr(),
            script_name: URI.as_ptr(),
            script_filename: self.script.as_ptr(),
            ..sapi::SapiRequest::EMPTY
        })
    }

    fn finish(&mut self) -> bool {
        true
    }
}

fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of oneself can't fail");
    [usage.user_time(), usage.system_time()].iter().map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6).sum()
}
