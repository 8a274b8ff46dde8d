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
    handle::{Client, Handle},
    limits::Limits,
    metrics::Connections,
    places::{Place, Places},
    shutdown::{self, Phase},
    tls,
};

/// The layer below HTTP.
pub(crate) enum Transport {
    Tls(Arc<tls::Acceptor>),
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
struct Admittance {
    places: Arc<Places>,
    /// Connections beyond the limit, which get the response 503.
    refused: Arc<Semaphore>,
    /// Each served connection has a clone.
    serving: mpsc::Sender<()>,
}

impl<H: Handle> Listener<H> {
    /// Accepts connections until [`Phase::Closing`], then waits for the open ones to end.
    pub(crate) async fn run(self, socket: TcpListener) {
        let (serving, mut served) = mpsc::channel(1);
        let admittance = Admittance {
            places: Places::new(&self.limits, self.counters.evicted.clone()),
            refused: Arc::new(Semaphore::new(self.limits.refused_connections)),
            serving,
        };
        let mut phase = self.phase.clone();
        let listener = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                () = shutdown::closing(&mut phase) => break,
            };
            listener.admit(accepted, &admittance).await;
        }
        // Serve the connections that the kernel has accepted already: closing the socket would reset them and lose their
        // reviews.
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = std::future::ready(()) => break,
            };
            listener.admit(accepted, &admittance).await;
        }
        // New connections now fail immediately, so that clients connect to another replica.
        drop(socket);
        drop(admittance);
        // Ends when every served connection has dropped its clone. Nothing is sent.
        _ = served.recv().await;
    }

    async fn admit(self: &Arc<Self>, accepted: io::Result<(TcpStream, SocketAddr)>, admittance: &Admittance) {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Without a delay, the loop would spin when file descriptors run out.
                warn!(%error, "cannot accept a connection");
                time::sleep(Duration::from_millis(100)).await;
                return;
            }
        };
        let listener = self.clone();
        if let Some(place) = admittance.places.take(peer.ip()) {
            let serving = admittance.serving.clone();
            tokio::spawn(async move {
                let _open = Open::count(&listener.counters.open);
                listener.serve(stream, peer, Some(place)).await;
                drop(serving);
            });
            return;
        }
        self.counters.refused.inc();
        let Ok(permit) = admittance.refused.clone().try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            let _open = Open::count(&listener.counters.open);
            listener.serve(stream, peer, None).await;
            drop(permit);
        });
    }

    /// Serves a connection, or refuses its requests if it has no place.
    async fn serve(&self, stream: TcpStream, peer: SocketAddr, place: Option<Place>) {
        // Nagle's algorithm would only delay responses: each is written in one piece.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%peer, %error, "the client disconnected before it was served");
            return;
        }
        let phase = self.phase.clone();
        let ended = match &self.transport {
            Transport::Plain => {
                let client = client(place, false);
                connection::serve(stream, &self.handler, &self.limits, phase, &client).await
            }
            Transport::Tls(acceptor) => {
                let handshake = time::timeout(self.limits.handshake, acceptor.accept(stream));
                let shaken = match &place {
                    Some(place) => tokio::select! {
                        shaken = handshake => shaken,
                        () = place.evicted() => return,
                    },
                    None => handshake.await,
                };
                match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Ok(stream) => {
                        // Only a certificate that the acceptor has verified is there.
                        let verified = stream.get_ref().1.peer_certificates().is_some();
                        let client = client(place, verified);
                        if verified {
                            client.prove();
                        }
                        connection::serve(stream, &self.handler, &self.limits, phase, &client).await
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

fn client(place: Option<Place>, verified: bool) -> Client {
    match place {
        Some(place) => {
            place.ready();
            Client::Served { place, verified }
        }
        None => Client::Refused,
    }
}

/// Counts an open connection until it is dropped, in a panic too.
struct Open<'c>(&'c Gauge);

impl<'c> Open<'c> {
    fn count(open: &'c Gauge) -> Self {
        open.inc();
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
