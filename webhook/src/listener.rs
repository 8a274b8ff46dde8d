//! Accepts connections, up to a number.

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

/// What a connection speaks before HTTP.
pub(crate) enum Transport {
    /// TLS.
    Tls(TlsAcceptor),
    /// Nothing.
    Plain,
}

/// Binds a port. An unspecified address of either family means all addresses of both, as for the API server; where
/// the kernel has no IPv6, those of IPv4.
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

/// What answers on a listening socket.
pub(crate) struct Listener<H> {
    pub(crate) transport: Transport,
    pub(crate) handler: H,
    pub(crate) limits: Limits,
    pub(crate) counters: Connections,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// The places that there are for connections.
struct Places {
    /// Of those that are served.
    served: Arc<Semaphore>,
    /// Of those that are told that there is no place.
    refused: Arc<Semaphore>,
}

impl<H: Handle> Listener<H> {
    /// Accepts until [`Phase::Closing`], then waits for the connections to end.
    pub(crate) async fn run(self, socket: TcpListener) {
        let places = Places {
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
            listener.admit(accepted, &places).await;
        }
        // Connections that the kernel has accepted for us would be reset with the socket, and their reviews lost.
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = std::future::ready(()) => break,
            };
            listener.admit(accepted, &places).await;
        }
        // From here on clients are refused at once, and turn to another server.
        drop(socket);
        let all = u32::try_from(listener.limits.connections).unwrap_or(u32::MAX);
        // Every place is free again when every connection has ended. The semaphore is never closed.
        _ = places.served.acquire_many(all).await;
    }

    async fn admit(self: &Arc<Self>, accepted: io::Result<(TcpStream, SocketAddr)>, places: &Places) {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Without a pause, running out of file descriptors would spin.
                warn!(%error, "cannot accept a connection");
                time::sleep(Duration::from_millis(100)).await;
                return;
            }
        };
        let served = places.served.clone().try_acquire_owned();
        let overloaded = served.is_err();
        let place = served.or_else(|_| {
            self.counters.refused.inc();
            places.refused.clone().try_acquire_owned()
        });
        let Ok(place) = place else {
            return;
        };
        let listener = self.clone();
        tokio::spawn(async move {
            listener.counters.open.inc();
            listener.serve(stream, peer, overloaded).await;
            listener.counters.open.dec();
            drop(place);
        });
    }

    async fn serve(&self, stream: TcpStream, peer: SocketAddr, overloaded: bool) {
        // Answers are written at once: waiting for more to send with them can only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%peer, %error, "the connection ended before it was served");
            return;
        }
        let phase = self.phase.clone();
        let ended = match &self.transport {
            Transport::Plain => {
                connection::serve(stream, &self.handler, &self.limits, phase, overloaded).await
            }
            Transport::Tls(acceptor) => {
                let shaken = time::timeout(self.limits.handshake, acceptor.accept(stream)).await;
                match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
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
            debug!(%peer, %error, "the connection ended early");
        }
    }
}
