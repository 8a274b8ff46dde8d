//! The network between the etcd members of a workload cluster. It can cut off a member without help from the kernel.
//!
//! Members advertise addresses where nothing listens, and reach each other through one CONNECT proxy per member. etcd
//! uses Go's HTTP client with `ProxyFromEnvironment` for its peers (`client/pkg/transport/transport.go`), which uses
//! the proxy for every host except loopback addresses. The proxy thus knows both members of each connection. Host names
//! would be easier to read, but etcd resolves them before it joins, and retries for 30 seconds
//! (`pkg/netutil/netutil.go`).

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::etcd::PEER_PORT;

/// Go sends a few hundred bytes.
const HEAD_BYTES: u64 = 8 * 1024;

/// Closes a connection on which no request arrives.
const HEAD: Duration = Duration::from_secs(60);

/// The members and which of them are cut off.
pub(super) struct PeerNetwork {
    /// Listening addresses by member number.
    addresses: Mutex<HashMap<u8, Ipv4Addr>>,
    cut_off: watch::Sender<HashSet<u8>>,
}

/// The proxy of one member. Dropping it closes its connections.
pub(super) struct Uplink {
    port: u16,
    task: JoinHandle<()>,
}

impl Default for PeerNetwork {
    fn default() -> Self {
        Self {
            addresses: Mutex::default(),
            cut_off: watch::Sender::new(HashSet::new()),
        }
    }
}

impl PeerNetwork {
    /// Starts the proxy of a member that listens at this address.
    pub(super) async fn connect(self: &Arc<Self>, member: u8, address: Ipv4Addr) -> Result<Uplink> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("listening for a member's connections to its peers")?;
        let port = listener.local_addr().context("reading a port")?.port();
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.insert(member, address);
        let network = self.clone();
        let task = tokio::spawn(async move { network.serve(listener, member).await });
        Ok(Uplink { port, task })
    }

    /// Cuts off a member from all others: closes its connections and answers no new ones.
    pub(super) fn cut_off(&self, member: u8) {
        self.cut_off.send_modify(|members| {
            members.insert(member);
        });
    }

    pub(super) fn reconnect(&self, member: u8) {
        self.cut_off.send_modify(|members| {
            members.remove(&member);
        });
    }

    async fn serve(self: Arc<Self>, listener: TcpListener, member: u8) {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            while connections.try_join_next().is_some() {}
            let network = self.clone();
            connections.spawn(async move {
                // A member retries a failed connection.
                let _ = network.relay(stream, member).await;
            });
        }
    }

    async fn relay(&self, mut stream: TcpStream, from: u8) -> Result<()> {
        let to = timeout(HEAD, requested(&mut stream))
            .await
            .context("no request")??;
        let mut changes = self.cut_off.subscribe();
        let is_cut = |members: &HashSet<u8>| members.contains(&from) || members.contains(&to);
        if is_cut(&changes.borrow_and_update()) {
            // Packets are lost: the client waits until it gives up or the cut ends.
            changes.wait_for(|members| !is_cut(members)).await?;
            return Ok(());
        }
        let mut peer = TcpStream::connect((self.address(to)?, PEER_PORT)).await?;
        stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
        tokio::select! {
            copied = copy_bidirectional(&mut stream, &mut peer) => copied.map(drop)?,
            cut = changes.wait_for(is_cut) => { cut?; }
        }
        Ok(())
    }

    fn address(&self, member: u8) -> Result<Ipv4Addr> {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let address = addresses.get(&member).copied();
        address.with_context(|| format!("no member has number {member}"))
    }
}

impl Uplink {
    /// The environment variables with which a member uses its proxy.
    pub(super) fn environment(&self) -> [(&'static str, String); 1] {
        [("HTTPS_PROXY", format!("http://127.0.0.1:{}", self.port))]
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The address that a member advertises to its peers. RFC 5737 reserves the block for documentation.
pub(super) const fn peer_address(member: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, member)
}

/// The URL that a member advertises to its peers.
pub(super) fn peer_url(member: u8) -> String {
    format!("https://{}:{PEER_PORT}", peer_address(member))
}

/// The member that a CONNECT request names.
async fn requested(stream: &mut TcpStream) -> Result<u8> {
    let mut head = BufReader::new(stream.take(HEAD_BYTES)).lines();
    let request = head.next_line().await?.context("no request line")?;
    while !head.next_line().await?.context("the head has no end")?.is_empty() {}
    let target = request
        .strip_prefix("CONNECT ")
        .and_then(|rest| rest.split(' ').next());
    let address: Option<SocketAddrV4> = target.and_then(|target| target.parse().ok());
    match address.map(|address| (address.ip().octets(), address.port())) {
        Some(([192, 0, 2, member], PEER_PORT)) => Ok(member),
        _ => bail!("not a member's request: {request}"),
    }
}
