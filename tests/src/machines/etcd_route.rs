//! The connection of a workload cluster's API server to etcd.
//!
//! Under kubeadm each API server uses its own machine's member, and a load balancer avoids an API server whose member
//! is broken. Here all machines share one API server. It therefore avoids a broken member: otherwise a fault of one
//! member would stop the API server, and nobody could observe the fault.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener as Listener};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::etcd::CLIENT_PORT;

/// Addresses by member number.
type Offered = BTreeMap<u8, Ipv4Addr>;

/// A local port that forwards to a member without a fault. Dropping it closes its connections.
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

    /// Allows connections to a member.
    pub(super) fn offer(&self, member: u8, address: Ipv4Addr) {
        self.offered.send_modify(|offered| {
            offered.insert(member, address);
        });
    }

    /// Forbids connections to a member and closes the existing ones.
    pub(super) fn withdraw(&self, member: u8) {
        self.offered.send_modify(|offered| {
            offered.remove(&member);
        });
    }

    /// The number of members to which connections are allowed.
    pub(super) fn members(&self) -> usize {
        self.offered.borrow().len()
    }

    /// A member to which connections are allowed.
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
            // The client reconnects after a closed connection.
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
