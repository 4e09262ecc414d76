//! The body that an action produces: a file's, a script's, or an upstream's.

use crate::backends::buffering::spooled_body::SpooledBody;
use crate::backends::php::PhpBody;
use crate::backends::proxy::UpstreamBody;
use crate::response::body::Source;
use crate::static_files::FileBody;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::upgrade::Upgraded;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An action's body.
pub enum ActionBody {
    /// A static file.
    File(FileBody),
    /// A script's response.
    Php(PhpBody),
    /// A response of a worker of RoadRunner, or of a FastCGI server.
    Spooled(SpooledBody),
    /// An upstream's response.
    Upstream(UpstreamBody),
}

macro_rules! with_body {
    ($self:expr, $body:ident => $result:expr) => {
        match $self {
            ActionBody::File($body) => $result,
            ActionBody::Php($body) => $result,
            ActionBody::Spooled($body) => $result,
            ActionBody::Upstream($body) => $result,
        }
    };
}

// === impl ActionBody ===

impl Body for ActionBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        with_body!(self.get_mut(), body => Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        with_body!(self, body => body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        with_body!(self, body => body.size_hint())
    }
}

impl Source for ActionBody {
    fn whole(&self) -> Option<&Bytes> {
        with_body!(self, body => body.whole())
    }

    fn is_flushed_on_pause(&self) -> bool {
        with_body!(self, body => body.is_flushed_on_pause())
    }

    fn take_tunnel(&mut self) -> Option<Upgraded> {
        with_body!(self, body => body.take_tunnel())
    }
}
