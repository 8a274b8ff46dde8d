//! The network between the etcd members of a workload cluster, which can be cut without the kernel's help.
//!
//! Members know each other by addresses at which nobody listens, and reach each other through a CONNECT proxy that each
//! has to itself. etcd's peers use Go's HTTP client with `ProxyFromEnvironment` (`client/pkg/transport/transport.go`), which
//! asks the proxy for every host but loopback addresses. So each connection shows who wants to talk to whom. Names would
//! read better, but etcd resolves those before it joins, and tries for 30 seconds (`pkg/netutil/netutil.go`).

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

/// Who can be reached, and who is cut off.
pub(super) struct PeerNetwork {
    /// Where members listen, by number.
    addresses: Mutex<HashMap<u8, Ipv4Addr>>,
    cut_off: watch::Sender<HashSet<u8>>,
}

/// A member's way to the others. Dropping it ends its connections.
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
    /// Connects a member that listens at an address.
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

    /// Cuts a member off from all others: what runs is broken, what is asked for is never answered.
    pub(super) fn cut_off(&self, member: u8) {
        self.cut_off.send_modify(|members| {
            members.insert(member);
        });
    }

    /// Undoes [`Self::cut_off`].
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
                // A member that is refused, or whose peer is gone, dials again.
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
            // Packets that are lost: the caller waits for an answer until it gives up, or this ends.
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
    /// What a member's environment says of it.
    pub(super) fn environment(&self) -> [(&'static str, String); 1] {
        [("HTTPS_PROXY", format!("http://127.0.0.1:{}", self.port))]
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where a member's peers think that it is. RFC 5737 reserves the block: nobody is there.
pub(super) const fn peer_address(member: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, member)
}

/// Where a member's peers reach it.
pub(super) fn peer_url(member: u8) -> String {
    format!("https://{}:{PEER_PORT}", peer_address(member))
}

/// Whom a CONNECT request asks for.
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
