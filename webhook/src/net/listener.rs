//! Accepts connections up to a limit.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{mpsc, watch},
    time,
};
use tracing::{debug, warn};

use super::{
    connection::{self, Client, Handle},
    connection_slots::{ConnectionSlot, ConnectionSlots},
    tls,
};
use crate::{
    limits::{Limits, SEND_BUFFER_BYTES},
    metrics::ConnectionMetrics,
    shutdown::{self, Phase},
};

/// The maximum number of connections that the kernel accepts before the listener takes them.
const BACKLOG: u32 = 1024;

/// How a listener transports HTTP.
pub(crate) enum Transport {
    Tls(Arc<tls::Acceptor>),
    Plain,
}

/// Binds a port. As in the API server, an unspecified address of either family means all IPv4 and IPv6 addresses, or all
/// IPv4 addresses if the kernel has no IPv6.
pub(crate) fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    if !address.is_unspecified() {
        return listen((address, port).into());
    }
    match listen((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            listen((Ipv4Addr::UNSPECIFIED, port).into())
        }
        bound => bound,
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit this size.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves the connections to a listening socket.
pub(crate) struct Listener<H> {
    pub(crate) transport: Transport,
    pub(crate) handler: H,
    pub(crate) limits: Limits,
    pub(crate) metrics: ConnectionMetrics,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// The connections that a listener serves.
struct ConnectionLimits {
    slots: Arc<ConnectionSlots>,
    /// Each served connection has a clone of this sender. The receiver notices when all clones are dropped.
    serving: mpsc::Sender<()>,
}

impl<H: Handle> Listener<H> {
    /// Accepts connections until [`Phase::Closing`], and then waits until the open connections have ended.
    pub(crate) async fn run(self, socket: TcpListener) {
        let (serving, mut served) = mpsc::channel(1);
        let connection_limits = ConnectionLimits {
            slots: ConnectionSlots::new(self.limits.connections, self.metrics.evicted.clone()),
            serving,
        };
        let mut phase = self.phase.clone();
        let listener = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                () = shutdown::wait_for_closing(&mut phase) => break,
            };
            listener.admit(accepted, &connection_limits).await;
        }
        // Serve the connections that the kernel has already accepted. If the socket were closed now, these connections
        // would be reset, and their reviews lost.
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = std::future::ready(()) => break,
            };
            listener.admit(accepted, &connection_limits).await;
        }
        // New connections now fail immediately, so that clients connect to another replica.
        drop(socket);
        drop(connection_limits);
        // Wait until every served connection has dropped its clone. No message is ever sent.
        _ = served.recv().await;
    }

    async fn admit(
        self: &Arc<Self>,
        accepted: io::Result<(TcpStream, SocketAddr)>,
        connection_limits: &ConnectionLimits,
    ) {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Pause, because the loop would spin if there are no file descriptors left.
                warn!(%error, "cannot accept a connection");
                time::sleep(Duration::from_millis(100)).await;
                return;
            }
        };
        let Some(slot) = connection_limits.slots.take(peer.ip()) else {
            warn!(%peer, "closed a new connection, because kcp-webhook handles a review on every open connection");
            return;
        };
        let (listener, serving) = (self.clone(), connection_limits.serving.clone());
        tokio::spawn(async move {
            let _open = OpenConnectionGuard::count(&listener.metrics.open);
            listener.serve(stream, peer, slot).await;
            drop(serving);
        });
    }

    async fn serve(&self, stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot) {
        // Turn off Nagle's algorithm, which would only delay responses, because each response is written in
        // one piece.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%peer, %error, "the client disconnected before kcp-webhook served it");
            return;
        }
        let phase = self.phase.clone();
        let ended = match &self.transport {
            Transport::Plain => {
                let client = Client {
                    slot,
                    verified: false,
                };
                connection::serve(stream, &self.handler, &self.limits, phase, &client).await
            }
            Transport::Tls(acceptor) => {
                let handshake = time::timeout(self.limits.handshake_timeout, acceptor.accept(stream));
                let shaken = tokio::select! {
                    shaken = handshake => shaken,
                    () = slot.wait_until_evicted() => return,
                };
                match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(stream) => {
                        // A client certificate is present only if the acceptor has verified it.
                        let verified = stream.get_ref().1.peer_certificates().is_some();
                        let client = Client { slot, verified };
                        connection::serve(stream, &self.handler, &self.limits, phase, &client).await
                    }
                    Err(error) => {
                        self.metrics.failed_handshakes.inc();
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

/// Counts an open connection until this guard is dropped, even by a panic.
struct OpenConnectionGuard<'c>(&'c Gauge);

impl<'c> OpenConnectionGuard<'c> {
    fn count(open: &'c Gauge) -> Self {
        open.inc();
        Self(open)
    }
}

impl Drop for OpenConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
