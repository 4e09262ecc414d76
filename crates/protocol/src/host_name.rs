//! The name of this machine.

use std::sync::OnceLock;

const MAX_BYTES: usize = 255;

/// The name in printable ASCII; empty if it has none.
pub fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.chars().filter(char::is_ascii_graphic).take(MAX_BYTES).collect()
    })
}
