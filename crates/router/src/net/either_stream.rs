//! Reading and writing, for an enum of two streams.

macro_rules! with_either {
    ($self:ident: $kind:ident, $one:ident, $other:ident; $method:ident($($argument:ident),*)) => {
        match $self.get_mut() {
            $kind::$one(stream) => std::pin::Pin::new(stream).$method($($argument),*),
            $kind::$other(stream) => std::pin::Pin::new(stream).$method($($argument),*),
        }
    };
}

/// Implements reading and writing for an enum of two streams.
macro_rules! either_stream {
    ($kind:ident: $one:ident, $other:ident) => {
        impl tokio::io::AsyncRead for $kind {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                with_either!(self: $kind, $one, $other; poll_read(context, buffer))
            }
        }

        impl tokio::io::AsyncWrite for $kind {
            fn poll_write(self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>, bytes: &[u8]) -> std::task::Poll<std::io::Result<usize>> {
                with_either!(self: $kind, $one, $other; poll_write(context, bytes))
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                with_either!(self: $kind, $one, $other; poll_write_vectored(context, buffers))
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                with_either!(self: $kind, $one, $other; poll_flush(context))
            }

            fn poll_shutdown(self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                with_either!(self: $kind, $one, $other; poll_shutdown(context))
            }
        }
    };
}

pub(crate) use {either_stream, with_either};
