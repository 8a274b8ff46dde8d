//! The way from a workload cluster's API server to etcd.
//!
//! Under kubeadm each machine's API server asks its own machine's member, and a load balancer leaves alone an API server
//! whose member is ill. Here is one API server for all machines, so its way to etcd leaves the member alone: else what is
//! done to one member would take the API server away, and with it the sight of the member.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener as Listener};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::etcd::CLIENT_PORT;

/// Members by number.
type Offered = BTreeMap<u8, Ipv4Addr>;

/// A port behind which is a member that nothing was done to. Dropping it ends its connections.
pub(super) struct EtcdRoute {
    port: u16,
    offered: Arc<watch::Sender<Offered>>,
    task: JoinHandle<()>,
}

impl EtcdRoute {
    pub(super) fn new() -> Result<Self> {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening for an API server")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let listener = TcpListener::from_std(listener)?;
        let offered = Arc::new(watch::Sender::new(Offered::new()));
        let task = tokio::spawn(accept(listener, offered.clone()));
        Ok(Self { port, offered, task })
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// From now on a member is asked.
    pub(super) fn offer(&self, member: u8, address: Ipv4Addr) {
        self.offered.send_modify(|offered| {
            offered.insert(member, address);
        });
    }

    /// A member is not asked any more. Connections to it end.
    pub(super) fn withdraw(&self, member: u8) {
        self.offered.send_modify(|offered| {
            offered.remove(&member);
        });
    }

    /// How many members may be asked.
    pub(super) fn members(&self) -> usize {
        self.offered.borrow().len()
    }

    /// A member that is asked.
    pub(super) fn member(&self) -> Option<Ipv4Addr> {
        self.offered.borrow().values().next().copied()
    }
}

impl Drop for EtcdRoute {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, offered: Arc<watch::Sender<Offered>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let offered = offered.subscribe();
        connections.spawn(async move {
            // Whoever is turned away or cut off connects again.
            let _ = carry(client, offered).await;
        });
    }
}

async fn carry(mut client: TcpStream, mut offered: watch::Receiver<Offered>) -> Result<()> {
    let candidates = offered.borrow_and_update().clone();
    for (number, address) in candidates {
        let Ok(mut member) = TcpStream::connect((address, CLIENT_PORT)).await else {
            continue;
        };
        client.set_nodelay(true)?;
        member.set_nodelay(true)?;
        tokio::select! {
            copied = copy_bidirectional(&mut client, &mut member) => copied.map(drop)?,
            withdrawn = offered.wait_for(|offered| !offered.contains_key(&number)) => { withdrawn?; }
        }
        break;
    }
    Ok(())
}
