//! The messages between the supervisor, the router and the prototypes, and the sockets that carry them.
//!
//! A child finds its control socket at [`child::inherited::CONTROL_FD`]. The supervisor's first message is the boot message, with the
//! descriptors that it names, in their order.
//!
//! - [`messages`]: what the processes send to each other
//! - [`sockets`]: the sockets that carry the messages, and sockets whose peers cannot attach descriptors
//! - [`child`]: the first steps of a child: its descriptors, its user, and its death with the supervisor
//! - [`log_format`]: text or JSON
//! - [`plain_text`]: text of strangers in log lines and on terminals
//! - [`canonical`]: a path without links
//! - [`descriptor_path`]: a path of an open file
//! - [`trusted_path`]: opens files where another user may have put a link
//! - [`own_mount`]: opens files where another user may have mounted a file system
//! - [`test_time`]: shorter timeouts in end-to-end tests
//! - [`host_name`]: the name of this machine
//! - [`BUILD_ID`]: whether two executables are of the same build

#![deny(unsafe_code)]

mod build_id;
mod canonical_path;
pub mod child;
mod descriptor_path;
mod host_name;
pub mod log_format;
pub mod messages;
pub mod own_mount;
pub mod plain_text;
pub mod sockets;
pub mod test_time;
pub mod trusted_path;

pub use build_id::BUILD_ID;
pub use canonical_path::canonical;
pub use descriptor_path::descriptor_path;
pub use host_name::host_name;
