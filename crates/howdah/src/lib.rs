//! howdah
