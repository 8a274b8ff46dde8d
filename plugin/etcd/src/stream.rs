//! A stream that records its first error, because HTTP/2 errors are less specific.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::endpoint::BoxedStream;

/// The first error that reading from or writing to a stream returned, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct FirstError(Arc<OnceLock<io::Error>>);

impl FirstError {
    pub(crate) fn cause(&self) -> Option<&io::Error> {
        self.0.get()
    }

    /// Records the error if it is the first, and returns a copy of it for HTTP/2.
    fn record<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        outcome.map_err(|error| {
            let copy = io::Error::new(error.kind(), error.to_string());
            // Later errors are consequences of the first one.
            let _ = self.0.set(error);
            copy
        })
    }
}

pub(crate) struct WatchedStream {
    stream: BoxedStream,
    first_error: FirstError,
}

impl WatchedStream {
    pub(crate) fn new(stream: BoxedStream) -> (Self, FirstError) {
        let first_error = FirstError::default();
        let watched = Self {
            stream,
            first_error: first_error.clone(),
        };
        (watched, first_error)
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.first_error.record(outcome)
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.first_error.record(outcome)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_flush(context);
        this.first_error.record(outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
