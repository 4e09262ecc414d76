//! The channel's memory: what lies where, how it is mapped, and how bytes are copied in and out.
//!
//! - [`layout`]: the offsets, from the [`Geometry`](layout::Geometry) alone
//! - [`mapping`]: the sealed memfd
//! - [`word_copy`]: copies of bytes that are sound against a racing writer
//! - [`ring`]: a byte ring
//! - [`doorbell`]: to sleep on a word, and to wake the sleeper
//! - [`offsets`]: the layout, for tests that play a hostile worker

pub(crate) mod doorbell;
pub(crate) mod layout;
pub(crate) mod mapping;
pub mod offsets;
pub(crate) mod ring;
pub(crate) mod word_copy;
