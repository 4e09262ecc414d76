//! What every reader of a part of the configuration uses: nodes with their paths, the scope, sizes, percent escapes.

pub(crate) mod destination;
pub(crate) mod node;
pub(crate) mod percent;
pub(crate) mod scope;
pub(crate) mod size;
