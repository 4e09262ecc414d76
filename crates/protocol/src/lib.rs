//! The messages between the supervisor, the router and the prototypes, and the sockets that carry them.
//!
//! A child finds its control socket at [`inherited::CONTROL_FD`]. The supervisor's first message is the boot message, with the
//! descriptors that it names, in their order.
//!
//! - [`control_socket`]: one end of a control socket: JSON messages with descriptors
//! - [`prototype_messages`]: the messages between the supervisor and a prototype
//! - [`router_messages`]: the messages between the supervisor and the router
//! - [`confinement`], [`generation_paths`], [`identity`], [`process_end`], [`warm_up`]: what these messages contain
//! - [`inherited`], [`parent_death`]: the first steps of a child: its descriptors, and its death with the supervisor
//! - [`launch`]: the order to start a program that is not howdah's own
//! - [`log_format`]: text or JSON
//! - [`refused_descriptors`]: sockets whose peers cannot attach descriptors
//! - [`test_time`]: shorter timeouts in end-to-end tests
//! - [`BUILD_ID`]: whether two executables are of the same build

#![deny(unsafe_code)]

mod build_id;
pub mod confinement;
pub mod control_socket;
pub mod generation_paths;
pub mod identity;
pub mod inherited;
pub mod launch;
pub mod log_format;
pub mod parent_death;
pub mod process_end;
pub mod prototype_messages;
pub mod refused_descriptors;
pub mod router_messages;
pub mod test_time;
pub mod warm_up;

pub use build_id::BUILD_ID;
