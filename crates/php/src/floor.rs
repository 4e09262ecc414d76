//! The floor: a script in a bare loop of PHP's own request start-up, execution and shut-down, with nothing around it.
//!
//! `howdah-php8.2 --floor SCRIPT REQUESTS [INI]` prints the CPU microseconds of one request. bench/ compares them with
//! those of the whole of howdah.

#![allow(unsafe_code)] // runs PHP

use crate::sapi;
use crate::worker::callbacks::{self, CurrentRequest};
use nix::sys::resource::{UsageWho, getrusage};
use std::ffi::CString;
use std::ptr::null;

/// Runs the loop and prints the figure.
///
/// # Errors
/// When PHP can't be started or an argument makes no sense.
pub fn run(arguments: &[String]) -> Result<(), String> {
    const USAGE: &str = "usage: --floor SCRIPT REQUESTS [PHP_INI]";
    let script = arguments.first().ok_or(USAGE)?;
    let requests: u32 = arguments.get(1).and_then(|text| text.parse().ok()).filter(|n| *n > 0).ok_or(USAGE)?;
    // Without it the failures of PHP would be measured.
    if !std::path::Path::new(script).is_file() {
        return Err(format!("{script} is not a file"));
    }
    let c = |text: &str| CString::new(text).map_err(|_| USAGE);
    let ini = arguments.get(2).map(|path| c(path)).transpose()?;
    // SAFETY: once, on the only thread; the strings are literals or outlive PHP.
    if unsafe {
        sapi::howdah_php_startup(ini.as_ref().map_or(null(), |path| path.as_ptr()), c"".as_ptr(), c"floor".as_ptr())
    } == 0
    {
        return Err("PHP does not start".into());
    }
    let script = c(script)?;
    let request = sapi::SapiRequest {
        variables: null(),
        count: 0,
        method: c"GET".as_ptr(),
        uri: c"/".as_ptr(),
        query_string: c"".as_ptr(),
        script_name: c"/".as_ptr(),
        script_filename: script.as_ptr(),
        path_info: null(),
        document_root: null(),
        content_type: null(),
        cookie: null(),
        authorization: null(),
        content_length: 0,
        trace_parent: null(),
        began: 0,
    };
    let run = |count: u32| {
        for _ in 0..count {
            callbacks::begin(CurrentRequest::Discard);
            // SAFETY: PHP is started; the pointers outlive the call.
            unsafe { sapi::howdah_php_run(&request) };
        }
    };
    run(requests.div_ceil(10));
    let before = cpu_seconds();
    run(requests);
    println!("{:.3}", (cpu_seconds() - before) * 1e6 / f64::from(requests));
    Ok(())
}

fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of oneself can't fail");
    [usage.user_time(), usage.system_time()].iter().map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6).sum()
}
