//! A stream that remembers its first error, because HTTP/2 reports less than the stream below it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::endpoint::BoxedStream;

/// The first error of a stream, once there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Breakage(Arc<OnceLock<io::Error>>);

impl Breakage {
    pub(super) fn cause(&self) -> Option<&io::Error> {
        self.0.get()
    }

    /// Stores the original error and passes a copy of its text to HTTP/2.
    fn note<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        outcome.map_err(|error| {
            let copy = io::Error::new(error.kind(), error.to_string());
            // Later errors follow from the first one.
            let _ = self.0.set(error);
            copy
        })
    }
}

pub(super) struct Watched {
    stream: TlsStream<BoxedStream>,
    breakage: Breakage,
}

impl Watched {
    pub(super) fn new(stream: TlsStream<BoxedStream>) -> (Self, Breakage) {
        let breakage = Breakage::default();
        let watched = Self {
            stream,
            breakage: breakage.clone(),
        };
        (watched, breakage)
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.breakage.note(outcome)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.breakage.note(outcome)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_flush(context);
        this.breakage.note(outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
