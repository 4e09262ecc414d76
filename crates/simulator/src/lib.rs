//! A server under load in virtual time: clients, a router, a queue and workers on a few shared processors.
//!
//! Unit tests use it to judge a policy in hundreds of cases within seconds: how many workers there are ([`Sizing`]),
//! and which requests wait or are refused ([`Admission`]). It knows nothing of howdah's other crates: the tests of the
//! crate that has the policy write the few lines between the two.
//!
//! A [`Scenario`] describes the machine, the pages, the clients and the disturbances; [`run`] plays it and returns an
//! [`Outcome`]. The same scenario has the same outcome in each run. The model:
//!
//! - Processors run tasks in time slices and share them fairly, as the kernel does ([`processors`]). The load
//!   generator, the router's threads, the workers and a noisy neighbour are tasks on the same processors. A change of
//!   the task costs time.
//! - A page computes and waits in turn. Its waits may need a resource that few requests can use at a time (a lock, a
//!   database with few connections).
//! - Clients come at a rate, or wait for each answer; after an error they return at once, later, or never.
//!
//! The costs in [`Costs`] have the order of magnitude of the real ones. A simulation shows which of two policies is
//! better and whether one of them collapses; only `bench` shows how fast howdah is.

#![forbid(unsafe_code)]

pub mod outcome;
pub mod policy;
pub mod processors;
mod random;
pub mod scenario;
mod simulation;

pub use outcome::Outcome;
pub use policy::{Admission, Sizing};
pub use scenario::{Costs, Scenario};
pub use simulation::run;
