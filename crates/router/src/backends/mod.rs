//! The backends: who answers a request that is not for a file.
//!
//! - `php`: workers of howdah, over shared memory; `roadrunner`: PHP processes, over pipes
//! - `proxy`: upstreams, and the processes of HTTP applications
//!
//! What they share, below them:
//!
//! - `admission`: which requests may wait for a worker
//! - `buffering`: bodies for slow clients

pub mod admission;
pub mod buffering;
pub mod php;
pub mod proxy;
pub mod roadrunner;
