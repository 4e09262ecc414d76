//! Routing: routes with their steps, the actions of steps, and where a `pass` leads.

pub(crate) mod action;
pub(crate) mod basic_auth;
mod circles;
pub(crate) mod connection_limit;
pub(crate) mod early_hints;
pub(crate) mod pass;
pub(crate) mod password_hash;
pub(crate) mod proxy;
pub(crate) mod rate_limit;
pub(crate) mod response_headers;
mod route_index;
pub(crate) mod routes;
pub(crate) mod share;
pub(crate) mod step;
