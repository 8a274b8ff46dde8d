//! Serves HTTP/1.1 on one connection, with timeouts.

use std::{
    convert::Infallible,
    future::poll_fn,
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::atomic::{AtomicU32, Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    task,
    time::{self, Instant, Sleep},
};

use super::{connection_slots::ConnectionSlot, shares::Peer};
use crate::{
    limits::{Limits, READ_BUFFER_BYTES},
    shutdown::{self, Phase},
};

/// The client at the other end of a connection.
pub(crate) struct Client {
    pub(crate) slot: ConnectionSlot,
    /// Whether the client's certificate was verified. Always false if clients need no certificate.
    pub(crate) verified: bool,
}

impl Client {
    /// The client that takes shares.
    pub(crate) const fn peer(&self) -> Peer {
        Peer {
            address: self.slot.peer(),
            verified: self.verified,
        }
    }
}

pub(crate) trait Handle: Send + Sync + 'static {
    /// Responds to one request.
    fn handle(
        &self,
        request: Request<Incoming>,
        client: &Client,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// How long a server that shuts down waits for the first request on a new connection.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Serves a connection until it ends, a timeout passes, it is evicted, or the server closes.
pub(crate) async fn serve<S, H>(
    stream: S,
    handler: &H,
    limits: &Limits,
    mut phase: watch::Receiver<Phase>,
    client: &Client,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
    H: Handle,
{
    let stage = Stage::default();
    let service = service_fn(|request| {
        stage.advance_to(Stage::RESPONDING);
        async {
            let response = handler.handle(request, client).await;
            stage.advance_to(Stage::IDLE);
            Ok::<_, Infallible>(response)
        }
    });
    let timed = Timed::new(stream, &stage, limits);
    let mut connection = pin!(
        http1::Builder::new()
            // Turn off hyper's timeout, which is the same for a slow head and for an idle connection. `Timed` has a timeout for
            // each of the two.
            .header_read_timeout(None)
            // Send the response even if the client has closed its sending side.
            .half_close(true)
            .max_buf_size(READ_BUFFER_BYTES)
            .serve_connection(TokioIo::new(timed), service)
    );
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = client.slot.wait_until_evicted() => return Ok(()),
        () = shutdown::wait_for_closing(&mut phase) => {}
    }
    // A client that has just connected is about to send a request. Wait for the request. The response tells the client to close
    // the connection.
    if stage.is_new()
        && let Ok(ended) = time::timeout(FIRST_REQUEST, connection.as_mut()).await
    {
        return ended;
    }
    // If the server closed an idle connection now, a review that has just been sent would be lost. So first read the
    // data that the kernel has received, and wait for the rest of a head that has begun.
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = task::yield_now() => {}
    }
    let ended = poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Pending if stage.is_within_head() => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
    });
    if let Some(ended) = ended.await {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// The stage of a connection. The counter only grows, so that a timeout notices if a whole request was served between two of
/// its polls.
#[derive(Default)]
struct Stage(AtomicU32);

impl Stage {
    /// No part of a request has arrived.
    const IDLE: u32 = 0;
    /// Part of a request's head has arrived.
    const READING_HEAD: u32 = 1;
    /// The body of the request is being read, or the response is being computed. The router has its own timeouts for both.
    const RESPONDING: u32 = 2;
    const COUNT: u32 = 3;

    /// Whether the connection has never received anything.
    fn is_new(&self) -> bool {
        self.now() == Self::IDLE
    }

    /// Whether part of a request's head has arrived, but not all of it.
    fn is_within_head(&self) -> bool {
        self.now() % Self::COUNT == Self::READING_HEAD
    }

    fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances the connection to a stage. The load and the store cannot race, because only one task polls a
    /// connection.
    fn advance_to(&self, stage: u32) {
        let now = self.now();
        let steps = (stage + Self::COUNT - now % Self::COUNT) % Self::COUNT;
        let steps = if steps == 0 { Self::COUNT } else { steps };
        self.0.store(now.wrapping_add(steps), Ordering::Relaxed);
    }
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] if a stage of the connection takes too long.
struct Timed<'s, S> {
    stream: S,
    stage: &'s Stage,
    /// Whether part of a response waits until the client reads.
    is_blocked: bool,
    /// What `deadline` applies to: sending, or else a stage.
    deadline_of: (bool, u32),
    deadline: Pin<Box<Sleep>>,
    limits: &'s Limits,
}

impl<'s, S> Timed<'s, S> {
    fn new(stream: S, stage: &'s Stage, limits: &'s Limits) -> Self {
        Self {
            stream,
            stage,
            is_blocked: false,
            deadline_of: (false, stage.now()),
            deadline: Box::pin(time::sleep(limits.request_timeout)),
            limits,
        }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let stage = self.stage.now();
        let limit = match stage % Stage::COUNT {
            _ if self.is_blocked => self.limits.write_timeout,
            // A new client must send its first request soon. Only a client that has received a response may be idle for long.
            Stage::IDLE if !self.stage.is_new() => self.limits.idle_timeout,
            Stage::IDLE | Stage::READING_HEAD => self.limits.request_timeout,
            _ => return Poll::Pending,
        };
        let wanted = (self.is_blocked, if self.is_blocked { 0 } else { stage });
        if self.deadline_of != wanted {
            self.deadline_of = wanted;
            self.deadline.as_mut().reset(Instant::now() + limit);
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncWrite + Unpin> Timed<'_, S> {
    /// Returns the result of sending, or an error if the client does not read for too long.
    fn poll_sent<T>(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_pending() {
            self.is_blocked = true;
            return self.poll_deadline(cx).map(Err);
        }
        sent
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_pending() {
            return self.poll_deadline(cx).map(Err);
        }
        if buffer.filled().len() > filled && self.stage.now() % Stage::COUNT == Stage::IDLE {
            self.stage.advance_to(Stage::READING_HEAD);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.poll_sent(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.poll_sent(cx, written)
    }

    /// Makes hyper send a response without copying it, so that the response holds its share until it is sent.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.is_blocked &= flushed.is_pending();
        self.poll_sent(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.poll_sent(cx, shut)
    }
}
