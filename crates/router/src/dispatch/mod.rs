//! One request: a route's action is found and carried out.

pub mod application;
pub mod pins;
pub mod service;
pub mod snapshot;
