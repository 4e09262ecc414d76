//! The worker's loop in classic mode: PHP starts and ends each request.
//!
//! PHP itself may end the process, and the worker's death signal does when the supervisor dies.

#![allow(unsafe_code)] // runs PHP

use super::requests::{Requests, Source};
use crate::sapi;

/// Serves until the worker must exit.
pub fn serve(mut requests: Requests) {
    while let Some(request) = requests.next() {
        // SAFETY: PHP was started in the prototype; the request's pointers are valid until `finish`.
        unsafe { sapi::howdah_php_run(&request) };
        if !requests.finish() {
            return;
        }
    }
}
