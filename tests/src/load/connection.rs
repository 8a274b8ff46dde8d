//! One connection to a webhook, as the API server uses it: HTTP/1.1 over TLS. It is written by hand so that the test
//! knows how much of a request was sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A review without an answer after this time is lost. The shipped configurations wait 5 s at most, but a machine that is
/// busy with other tests may take longer. The report shows how long each review took.
pub(super) const ANSWER: Duration = Duration::from_secs(120);

#[derive(Clone)]
pub(super) struct Dialer {
    address: SocketAddr,
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Dialer {
    /// `bundle` has all trusted CA certificates, as PEM.
    pub(super) fn new(address: SocketAddr, host: &str, bundle: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(authority?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // As k8s.io/apiserver, pkg/util/webhook/client.go, sets it for a Service.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            address,
            name: ServerName::try_from(host.to_owned())?,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    /// A dialer to the same server that trusts other CAs.
    pub(super) fn trusting(&self, bundle: &str) -> Result<Self> {
        Self::new(self.address, &self.name.to_str(), bundle)
    }

    pub(super) async fn dial(&self) -> Result<Connection> {
        let socket = TcpStream::connect(self.address).await.context("connecting")?;
        socket.set_nodelay(true)?;
        let stream = self.connector.connect(self.name.clone(), socket).await;
        Ok(Connection {
            stream: BufStream::new(stream.context("TLS handshake")?),
        })
    }
}

pub(super) struct Answered {
    pub(super) code: u16,
    pub(super) body: Vec<u8>,
    /// Whether the server requested to close the connection.
    pub(super) closes: bool,
}

pub(super) struct Connection {
    stream: BufStream<TlsStream<TcpStream>>,
}

impl Connection {
    /// Whether the server has closed the connection or announced it. Go's client has a task that reads each idle
    /// connection and removes a closed one from its pool.
    pub(super) fn has_ended(&self) -> bool {
        let socket = self.stream.get_ref().get_ref().0;
        let mut byte = [0];
        // An idle connection has nothing to read except for its end, because the server issues no session tickets.
        recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) != Err(rustix::io::Errno::AGAIN)
    }

    /// The server's certificate in DER.
    pub(super) fn certificate(&self) -> Option<Vec<u8>> {
        let session = self.stream.get_ref().get_ref().1;
        session.peer_certificates()?.first().map(|leaf| leaf.to_vec())
    }

    /// Sends a review and reads the complete answer.
    pub(super) async fn ask(&mut self, path: &str, body: &[&[u8]]) -> Result<Answered> {
        let length: usize = body.iter().map(|part| part.len()).sum();
        let head = format!(
            "POST {path}?timeout=5s HTTP/1.1\r\nHost: {}:443\r\nUser-Agent: kube-apiserver-admission\r\n\
             Content-Length: {length}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\
             Accept-Encoding: gzip\r\n\r\n",
            super::HOST
        );
        self.stream.write_all(head.as_bytes()).await.context("sending")?;
        for part in body {
            self.stream.write_all(part).await.context("sending")?;
        }
        self.stream.flush().await.context("sending")?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answered> {
        let status = self.line().await?;
        let code = status
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3))
            .and_then(|code| code.parse().ok());
        let code = code.with_context(|| format!("no status line: {status:?}"))?;
        let (mut length, mut closes) = (None, false);
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                break;
            }
            match line.split_once(": ") {
                Some(("content-length", value)) => length = value.parse().ok(),
                Some(("connection", value)) => closes = value == "close",
                _ => {}
            }
        }
        let mut body = vec![0; length.context("an answer without a length")?];
        self.stream
            .read_exact(&mut body)
            .await
            .context("reading the answer's body")?;
        Ok(Answered { code, body, closes })
    }

    /// A line of the head without its line break. All but the first are lower-case.
    async fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        loop {
            match self.stream.read_u8().await.context("reading the answer")? {
                b'\n' => break,
                byte => line.push(byte),
            }
        }
        if line.pop() != Some(b'\r') {
            bail!("a line that does not end as HTTP's do")
        }
        String::from_utf8(line).context("reading the answer")
    }
}
