//! The bodies that can be compressed.

use super::encoder::Encoder;
use crate::resources::counted_memory::CountedMemory;
use bytes::Bytes;
use http_body::Body;

/// A response's body, which may be replaced by its compressed form.
pub trait Compressible: Body {
    /// A body of these bytes.
    fn of_bytes(bytes: Bytes) -> Self;

    /// The whole body, if it is in memory.
    fn whole(&self) -> Option<&Bytes>;

    /// The same body, compressed while it is sent, by an encoder with this memory.
    fn compressed_by(self, encoder: Encoder, memory: CountedMemory) -> Self;
}
