//! Accepts connections up to a limit.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, watch},
    time,
};
use tracing::{debug, warn};

use crate::{
    connection,
    connection_slots::{ConnectionSlot, ConnectionSlots},
    handle::{Client, Handle},
    limits::Limits,
    metrics::ConnectionMetrics,
    shutdown::{self, Phase},
    tls,
};

/// How a listener transports HTTP.
pub(crate) enum Transport {
    Tls(Arc<tls::Acceptor>),
    Plain,
}

/// Binds a port. As in the API server, an unspecified address of either family means all IPv4 and IPv6 addresses, or all
/// IPv4 addresses if the kernel has no IPv6.
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
    pub(crate) metrics: ConnectionMetrics,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// The connections that a listener may still serve or refuse.
struct ConnectionLimits {
    slots: Arc<ConnectionSlots>,
    /// Permits for connections beyond the limit, which get the response 503.
    refused: Arc<Semaphore>,
    /// Each served connection has a clone of this sender. The receiver notices when all clones are dropped.
    serving: mpsc::Sender<()>,
}

impl<H: Handle> Listener<H> {
    /// Accepts connections until [`Phase::Closing`], and then waits until the open connections have ended.
    pub(crate) async fn run(self, socket: TcpListener) {
        let (serving, mut served) = mpsc::channel(1);
        let connection_limits = ConnectionLimits {
            slots: ConnectionSlots::new(&self.limits, self.metrics.evicted.clone()),
            refused: Arc::new(Semaphore::new(self.limits.refused_connections)),
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
        // Serve the connections that the kernel has already accepted. If the socket were closed now, they would be reset and their reviews lost.
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
        let listener = self.clone();
        if let Some(slot) = connection_limits.slots.take(peer.ip()) {
            let serving = connection_limits.serving.clone();
            tokio::spawn(async move {
                let _open = OpenConnectionGuard::count(&listener.metrics.open);
                listener.serve(stream, peer, Some(slot)).await;
                drop(serving);
            });
            return;
        }
        self.metrics.refused.inc();
        let Ok(permit) = connection_limits.refused.clone().try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            let _open = OpenConnectionGuard::count(&listener.metrics.open);
            listener.serve(stream, peer, None).await;
            drop(permit);
        });
    }

    /// Serves a connection. Without a slot, responds to each request with 503.
    async fn serve(&self, stream: TcpStream, peer: SocketAddr, slot: Option<ConnectionSlot>) {
        // Turn off Nagle's algorithm, which would only delay responses, because each response is written in
        // one piece.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%peer, %error, "the client disconnected before kcp-webhook served it");
            return;
        }
        let phase = self.phase.clone();
        let ended = match &self.transport {
            Transport::Plain => {
                let client = client(slot, false);
                connection::serve(stream, &self.handler, &self.limits, phase, &client).await
            }
            Transport::Tls(acceptor) => {
                let handshake = time::timeout(self.limits.handshake_timeout, acceptor.accept(stream));
                let shaken = match &slot {
                    Some(slot) => tokio::select! {
                        shaken = handshake => shaken,
                        () = slot.wait_until_evicted() => return,
                    },
                    None => handshake.await,
                };
                match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(stream) => {
                        // A client certificate is present only if the acceptor has verified it.
                        let verified = stream.get_ref().1.peer_certificates().is_some();
                        let client = client(slot, verified);
                        if verified {
                            client.mark_proven();
                        }
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

fn client(slot: Option<ConnectionSlot>, verified: bool) -> Client {
    match slot {
        Some(slot) => {
            slot.mark_ready();
            Client::Served { slot, verified }
        }
        None => Client::Refused,
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
