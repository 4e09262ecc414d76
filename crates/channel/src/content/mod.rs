//! The bytes that a slot carries: the format of a request's head and of a response.

pub mod request;
pub mod response;
