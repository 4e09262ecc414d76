//! Reading, shared by all parts of the configuration: nodes with their paths, the scope, the names that a `pass` may
//! have, sizes, times, statuses, percent escapes.

pub(crate) mod destination;
pub(crate) mod duration;
pub(crate) mod header_name;
pub(crate) mod node;
pub(crate) mod percent;
pub(crate) mod scope;
pub(crate) mod size;
pub(crate) mod status;
