//! A request's head, prepared for PHP. Its memory is private: PHP keeps pointers into it, and may continue after the
//! response is finished and the slot belongs to another request.

#![allow(unsafe_code)] // reads a C string

use crate::sapi;
use howdah_channel::request::{CUSTOM, NAMES, Variable, code, parse_head};
use howdah_channel::{Claim, Violation};
use std::ffi::{CStr, CString, c_char};
use std::ptr::null;
use std::sync::LazyLock;
use std::time::Duration;

/// The buffers of a request, reused for the next one.
#[derive(Default)]
pub struct RequestBuffers {
    head: Vec<u8>,
    variables: Vec<Variable>,
    pointers: Vec<sapi::Variable>,
}

/// The variable with the trace of the request, which the router has checked.
pub const TRACE_PARENT: &str = "TRACEPARENT";

/// The names of [`NAMES`] for PHP.
pub fn c_names() -> &'static [CString] {
    static C_NAMES: LazyLock<Vec<CString>> =
        LazyLock::new(|| NAMES.iter().map(|name| CString::new(*name).expect("a name has no NUL")).collect());
    &C_NAMES
}

// === impl RequestBuffers ===

impl RequestBuffers {
    /// Whether it is a request of a warm-up. The router writes this variable last.
    pub fn is_warm_up(&self) -> bool {
        self.variables.last().is_some_and(|variable| variable.code == code::HOWDAH_WARM_UP)
    }

    /// Reads the head of the claimed request.
    ///
    /// # Errors
    /// When another worker has overwritten it.
    pub fn read(&mut self, claim: &Claim<'_>) -> Result<(), Violation> {
        claim.head(&mut self.head).and_then(|()| parse_head(&self.head, &mut self.variables))
    }

    /// The request for PHP. Its pointers point into `self`.
    pub fn for_php(&mut self, began: Duration) -> sapi::SapiRequest {
        let head = &self.head;
        let at = |start: u32| head[start as usize..].as_ptr().cast::<c_char>();
        let c_names = c_names();
        let mut by_code = [null::<c_char>(); NAMES.len()];
        let mut trace_parent = null();
        self.pointers.clear();
        for variable in &self.variables {
            let value = at(variable.value.0);
            let (name, name_len) = if variable.code == CUSTOM {
                let (start, len) = (variable.name.0 as usize, variable.name.1 as usize);
                if &head[start..start + len] == TRACE_PARENT.as_bytes() {
                    trace_parent = value;
                }
                (at(variable.name.0), variable.name.1 as usize)
            } else {
                let name = &c_names[usize::from(variable.code)];
                by_code[usize::from(variable.code)] = value;
                (name.as_ptr(), name.count_bytes())
            };
            self.pointers.push(sapi::Variable {
                code: variable.code,
                name,
                name_len,
                value,
                value_len: variable.value.1 as usize,
            });
        }
        let known = |code: u16| by_code[usize::from(code)];
        let length = known(code::CONTENT_LENGTH);
        let content_length = if length.is_null() {
            0
        } else {
            // SAFETY: `parse_head` has checked the NUL behind each value.
            unsafe { CStr::from_ptr(length) }.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let or_empty = |text: *const c_char| if text.is_null() { c"".as_ptr() } else { text };
        sapi::SapiRequest {
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
            trace_parent,
            began: began.as_nanos() as u64,
        }
    }
}
