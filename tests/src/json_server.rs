//! A TLS server on this host that answers each request with JSON.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::api_server::ApiServer;
use crate::manifests;
use crate::pki::Subject;
use crate::wait::LIMIT;

/// Clients send objects of a few kilobytes.
const BODY_BYTES: u64 = 1024 * 1024;

/// The answer to the body of a request.
type Answer = dyn Fn(&Value) -> Result<Value> + Send + Sync;

/// The server. Dropping it closes all its connections.
pub(crate) struct JsonServer {
    /// How a client reaches it: the URL, and the CA of its certificate.
    pub(crate) client_config: Value,
    task: JoinHandle<()>,
}

impl JsonServer {
    /// Starts a server. A request without an answer gets none. `name` separates its certificate from those of other servers.
    pub(crate) async fn start(
        api: &ApiServer,
        name: &str,
        answer: impl Fn(&Value) -> Result<Value> + Send + Sync + 'static,
    ) -> Result<Self> {
        let subject = Subject {
            common_name: name,
            addresses: &[Ipv4Addr::LOCALHOST.into()],
            ..Subject::default()
        };
        let authority = api.authority();
        let pair = authority.issue(&api.folder().join(name), "tls", &subject)?;
        let acceptor = pair.acceptor()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self {
            client_config: manifests::local_client_config(port, "/", authority.certificate())?,
            task: tokio::spawn(accept(listener, acceptor, Arc::new(answer))),
        })
    }
}

impl Drop for JsonServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, answer: Arc<Answer>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        connections.spawn(async move {
            // A client that gave up closes the connection.
            let _ = timeout(LIMIT, serve(stream, acceptor, &*answer)).await;
        });
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, answer: &Answer) -> Result<()> {
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    let mut length = 0_u64;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = Vec::new();
    (&mut stream)
        .take(length.min(BODY_BYTES))
        .read_to_end(&mut body)
        .await?;
    let answer = answer(&serde_json::from_slice(&body)?)?.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}
