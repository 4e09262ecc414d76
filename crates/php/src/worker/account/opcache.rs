//! The numbers of opcache: C reads them ([`sapi/opcache.c`](../../../../sapi/opcache.c)), and the channel has them.

#![allow(unsafe_code)] // called from C with a pointer

use howdah_channel::WorkerEnd;
use howdah_channel::account::monotonic;
use howdah_channel::opcache::OpcacheNumbers;
use std::ffi::c_int;
use std::sync::OnceLock;

/// `struct howdah_opcache`.
#[repr(C)]
struct Numbers {
    used: u64,
    free: u64,
    wasted: u64,
    scripts: u64,
    hits: u64,
    misses: u64,
    restarts: u64,
}

/// The channel of this worker.
static END: OnceLock<&'static WorkerEnd> = OnceLock::new();

/// From now on reports are due.
pub fn begin(end: &'static WorkerEnd) {
    let _ = END.set(end);
}

/// Whether this worker is to report now.
#[unsafe(no_mangle)]
extern "C" fn howdah_opcache_is_due() -> c_int {
    END.get().is_some_and(|end| end.opcache_is_due(monotonic())).into()
}

/// # Safety
/// `numbers` is valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_opcache_numbers(numbers: *const Numbers) {
    // SAFETY: the caller guarantees it.
    let Numbers { used, free, wasted, scripts, hits, misses, restarts } = unsafe { numbers.read() };
    let numbers =
        OpcacheNumbers { used_bytes: used, free_bytes: free, wasted_bytes: wasted, scripts, hits, misses, restarts };
    END.get().into_iter().for_each(|end| end.enter_opcache(&numbers));
}
