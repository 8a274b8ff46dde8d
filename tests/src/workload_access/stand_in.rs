//! A stand-in for a broken API server: its certificate is valid, but its answers are not.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::pki::KeyPairFiles;
use crate::wait::LIMIT;

/// The size of the answer of [`Behaviour::Flood`], which is valid JSON.
pub const FLOOD_BYTES: usize = 100_000_000;

const OPENING: &[u8] = br#"{"kind":"List","apiVersion":"v1","metadata":{},"items":[],"padding":""#;
const CLOSING: &[u8] = br#""}"#;

/// kubectl sends a few hundred bytes.
const HEAD_BYTES: u64 = 64 * 1024;

/// The server's reaction to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Behaviour {
    /// Answers 500.
    Error,
    /// Never answers.
    Silence,
    /// Answers with [`FLOOD_BYTES`].
    Flood,
}

/// The server. Dropping it closes all its connections.
pub(super) struct StandIn {
    port: u16,
    task: JoinHandle<()>,
}

impl StandIn {
    pub(super) async fn start(pair: &KeyPairFiles, behaviour: Behaviour) -> Result<Self> {
        let acceptor = pair.acceptor()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("listening in an API server's place")?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(accept(listener, acceptor, behaviour));
        Ok(Self { port, task })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, behaviour: Behaviour) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            // A client that gave up closes the connection.
            let _ = timeout(LIMIT, serve(stream, acceptor, behaviour)).await;
        });
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, behaviour: Behaviour) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut head = BufReader::new((&mut stream).take(HEAD_BYTES)).lines();
    while !head.next_line().await?.context("the head has no end")?.is_empty() {}
    match behaviour {
        Behaviour::Error => {
            let answer = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\
                Connection: close\r\n\r\nno reason";
            stream.write_all(answer.as_bytes()).await?;
        }
        Behaviour::Silence => std::future::pending().await,
        Behaviour::Flood => flood(&mut stream).await?,
    }
    stream.shutdown().await?;
    Ok(())
}

async fn flood(stream: &mut TlsStream<TcpStream>) -> Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {FLOOD_BYTES}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(OPENING).await?;
    let padding = vec![b'x'; 64 * 1024];
    let mut left = FLOOD_BYTES - OPENING.len() - CLOSING.len();
    while left > 0 {
        let part = padding.get(..left).unwrap_or(&padding);
        stream.write_all(part).await?;
        left -= part.len();
    }
    stream.write_all(CLOSING).await?;
    Ok(())
}
