//! The queue of connections that a listening socket has not accepted yet.

/// The longest one that the kernel allows, net.core.somaxconn; `None` if it cannot be read.
pub fn longest_backlog() -> Option<u32> {
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?;
    somaxconn.trim().parse().ok()
}
