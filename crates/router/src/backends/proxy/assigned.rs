//! A request that counts as one of its server: a process of an HTTP application, or a server of an upstream.

use crate::backends::proxy::application::ProcessRequest;
use crate::backends::proxy::health::server_health::ServerRequest;

/// The server is in use until this is dropped.
pub enum AssignedRequest {
    /// Of a process of an HTTP application.
    Process { _request: ProcessRequest },
    /// Of a server of an upstream.
    Server { _request: ServerRequest },
}
