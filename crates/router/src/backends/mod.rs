//! The backends: who answers a request that is not for a file.
//!
//! - `php`: workers of howdah, over shared memory; `roadrunner`: PHP processes, over pipes
//! - `fastcgi`: PHP-FPM and other FastCGI servers
//! - `proxy`: upstreams, and the processes of HTTP applications
//!
//! What they share, below them:
//!
//! - `admission`: which requests may wait for a worker
//! - `buffering`: bodies for slow clients
//! - `script`: which script a path runs; `cgi`: the variables of a script
//! - `connecting`: sockets to other servers

pub mod admission;
pub mod buffering;
pub mod cgi;
pub mod connecting;
pub mod fastcgi;
pub mod php;
pub mod proxy;
pub mod roadrunner;
pub mod script;
