//! A TCP balancer in place of the Service, its endpoints and a node's kube-proxy.
//!
//! A new connection goes to a server that is ready. An existing connection stays with its server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Request;
use kube::Client;
use tokio::io;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time;

/// The interval of readiness probes. A kubelet probes every few seconds, but a pod that is being deleted leaves its
/// endpoints at once.
const PROBE: Duration = Duration::from_millis(200);

pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) health: Client,
    pub(crate) is_ready: Arc<AtomicBool>,
}

/// The balancer. Dropping it closes all its connections.
pub(crate) struct Balancer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Balancer {
    /// Starts with the servers that are ready now.
    pub(crate) async fn start(backends: Vec<Backend>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("listening for the balancer")?;
        let address = listener.local_addr()?;
        let backends: Arc<[Backend]> = backends.into();
        let mut tasks = JoinSet::new();
        for number in 0..backends.len() {
            let backends = backends.clone();
            tasks.spawn(async move {
                if let Some(backend) = backends.get(number) {
                    backend.probe().await;
                }
            });
        }
        tasks.spawn(accept(listener, backends));
        Ok(Self {
            address,
            _tasks: tasks,
        })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Backend {
    async fn probe(&self) {
        let mut ticks = time::interval(PROBE);
        loop {
            ticks.tick().await;
            // One failed probe means nothing: a kubelet needs three, and the machine may be busy.
            if let Ok(is_ready) = time::timeout(PROBE * 5, self.asked()).await {
                self.is_ready.store(is_ready, Ordering::Relaxed);
            }
        }
    }

    async fn asked(&self) -> bool {
        let Ok(request) = Request::get("/readyz").body(Vec::new()) else {
            return false;
        };
        self.health.request_text(request).await.is_ok()
    }
}

async fn accept(listener: TcpListener, backends: Arc<[Backend]>) {
    let turn = Arc::new(AtomicUsize::new(0));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A client that disconnects before it is accepted sees its own error.
                if let Ok((client, _)) = accepted {
                    let (backends, turn) = (backends.clone(), turn.clone());
                    connections.spawn(async move { carry(client, &backends, &turn).await });
                }
            }
            // Both ends of a connection see its errors.
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Without a ready server it closes the connection, as kube-proxy rejects connections to a Service without endpoints.
async fn carry(mut client: TcpStream, backends: &[Backend], turn: &AtomicUsize) -> io::Result<()> {
    let first = turn.fetch_add(1, Ordering::Relaxed);
    for number in 0..backends.len() {
        let Some(backend) = backends.get((first + number) % backends.len()) else {
            continue;
        };
        if !backend.is_ready.load(Ordering::Relaxed) {
            continue;
        }
        if let Ok(mut server) = TcpStream::connect(backend.address).await {
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            io::copy_bidirectional(&mut client, &mut server).await?;
            return Ok(());
        }
    }
    Ok(())
}
