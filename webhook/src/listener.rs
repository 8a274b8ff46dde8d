//! Accepts connections up to a limit.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::{
    connection,
    handle::Handle,
    limits::Limits,
    metrics::Connections,
    shutdown::{self, Phase},
};

/// The layer below HTTP.
pub(crate) enum Transport {
    Tls(TlsAcceptor),
    Plain,
}

/// Binds a port. As in the API server, an unspecified address of either family means all addresses of both families, or
/// of IPv4 if the kernel has no IPv6.
pub(crate) async fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    if !address.is_unspecified() {
        return TcpListener::bind((address, port)).await;
    }
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        bound => bound,
    }
}

/// Serves the connections to a listening socket.
pub(crate) struct Listener<H> {
    pub(crate) transport: Transport,
    pub(crate) handler: H,
    pub(crate) limits: Limits,
    pub(crate) counters: Connections,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// The connections that may still be opened.
struct FreeConnections {
    served: Arc<Semaphore>,
    /// Connections beyond the limit, which are answered with 503.
    refused: Arc<Semaphore>,
}

impl<H: Handle> Listener<H> {
    /// Accepts connections until [`Phase::Closing`], then waits for the open ones to end.
    pub(crate) async fn run(self, socket: TcpListener) {
        let free = FreeConnections {
            served: Arc::new(Semaphore::new(self.limits.connections)),
            refused: Arc::new(Semaphore::new(self.limits.refused_connections)),
        };
        let mut phase = self.phase.clone();
        let listener = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                () = shutdown::closing(&mut phase) => break,
            };
            listener.admit(accepted, &free).await;
        }
        // Serve the connections that the kernel has accepted already: closing the socket would reset them and lose their
        // reviews.
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = std::future::ready(()) => break,
            };
            listener.admit(accepted, &free).await;
        }
        // New connections now fail immediately, so that clients connect to another replica.
        drop(socket);
        let all = u32::try_from(listener.limits.connections).unwrap_or(u32::MAX);
        // All permits are back when every connection has ended. Nothing closes the semaphore.
        _ = free.served.acquire_many(all).await;
    }

    async fn admit(self: &Arc<Self>, accepted: io::Result<(TcpStream, SocketAddr)>, free: &FreeConnections) {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Without a delay, the loop would spin when file descriptors run out.
                warn!(%error, "cannot accept a connection");
                time::sleep(Duration::from_millis(100)).await;
                return;
            }
        };
        let served = free.served.clone().try_acquire_owned();
        let overloaded = served.is_err();
        let permit = served.or_else(|_| {
            self.counters.refused.inc();
            free.refused.clone().try_acquire_owned()
        });
        let Ok(permit) = permit else {
            return;
        };
        let listener = self.clone();
        tokio::spawn(async move {
            listener.counters.open.inc();
            listener.serve(stream, peer, overloaded).await;
            listener.counters.open.dec();
            drop(permit);
        });
    }

    async fn serve(&self, stream: TcpStream, peer: SocketAddr, overloaded: bool) {
        // Nagle's algorithm would only delay answers: each is written in one piece.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%peer, %error, "the client disconnected before it was served");
            return;
        }
        let phase = self.phase.clone();
        let ended = match &self.transport {
            Transport::Plain => {
                connection::serve(stream, &self.handler, &self.limits, phase, overloaded).await
            }
            Transport::Tls(acceptor) => {
                let handshake = time::timeout(self.limits.handshake, acceptor.accept(stream)).await;
                match handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(stream) => {
                        connection::serve(stream, &self.handler, &self.limits, phase, overloaded).await
                    }
                    Err(error) => {
                        self.counters.failed_handshakes.inc();
                        debug!(%peer, %error, "TLS handshake failed");
                        return;
                    }
                }
            }
        };
        if let Err(error) = ended {
            debug!(%peer, %error, "the connection ended with an error");
        }
    }
}
