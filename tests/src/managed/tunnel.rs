//! **Stand-in** for konnectivity: the tunnel through which an API server reaches Pods and Services. While it is closed, the API
//! server reaches none, and all others do.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use tokio::io::{self, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::run::Run;

/// The tunnel. Dropping it closes it.
pub struct Tunnel {
    socket: PathBuf,
    configuration: PathBuf,
    connections: JoinSet<()>,
}

impl Tunnel {
    /// A closed tunnel. `name` separates its files from those of others.
    pub fn closed(run: &Run, name: &str) -> Result<Self> {
        let (socket, configuration) = (
            run.folder().join(format!("{name}.sock")),
            run.folder().join(format!("{name}.yaml")),
        );
        let text = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: cluster\n  \
             connection: {{proxyProtocol: HTTPConnect, transport: {{uds: {{udsName: {}}}}}}}\n",
            socket.display()
        );
        fs::write(&configuration, text).with_context(|| format!("writing {}", configuration.display()))?;
        Ok(Self {
            socket,
            configuration,
            connections: JoinSet::new(),
        })
    }

    /// The flag with which an API server uses the tunnel.
    pub fn flag(&self) -> String {
        format!("--egress-selector-config-file={}", self.configuration.display())
    }

    pub fn open(&mut self) -> Result<()> {
        let listener = UnixListener::bind(&self.socket).context("opening the tunnel")?;
        self.connections.spawn(async move {
            let mut carried = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                carried.spawn(carry(client));
            }
        });
        Ok(())
    }

    /// Closes the tunnel and its connections.
    pub async fn close(&mut self) -> Result<()> {
        self.connections.shutdown().await;
        fs::remove_file(&self.socket).context("closing the tunnel")
    }
}

/// Connects to the address that an HTTP CONNECT names.
async fn carry(client: UnixStream) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut request = String::new();
    client.read_line(&mut request).await?;
    let address = request.split(' ').nth(1).unwrap_or_default().to_owned();
    while client.read_line(&mut request).await? > 2 {}
    let mut server = TcpStream::connect(address).await?;
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
    io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
