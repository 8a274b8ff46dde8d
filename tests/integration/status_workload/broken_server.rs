//! A stand-in for a broken API server, because a real one cannot be made to send an endless answer.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

#[derive(Clone, Copy, Debug)]
pub(super) enum Behavior {
    /// Answers 500 with an HTML page.
    Fails,
    /// Never answers.
    Hangs,
    /// Answers with 100 MB.
    Floods,
}

/// The server, over plain HTTP. Dropping it closes its connections.
pub(super) struct BrokenServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl BrokenServer {
    pub(super) async fn start(behavior: Behavior) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    // A client closes the connection when the answer is too large.
                    let _ = serve(stream, behavior).await;
                });
            }
        });
        Ok(Self { address, task })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for BrokenServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, behavior: Behavior) -> Result<()> {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        seen.extend(buffer.iter().take(read));
        // No request has a body.
        if seen.ends_with(b"\r\n\r\n") {
            answer(&mut stream, behavior).await?;
            seen.clear();
        }
    }
}

async fn answer(stream: &mut TcpStream, behavior: Behavior) -> Result<()> {
    match behavior {
        Behavior::Hangs => {}
        Behavior::Fails => {
            let page = "<html>\n<h1>Bad gateway</h1>\n</html>\n";
            let head = format!("HTTP/1.1 500 Oops\r\ncontent-length: {}\r\n\r\n", page.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(page.as_bytes()).await?;
        }
        Behavior::Floods => {
            const MEGABYTE: usize = 1_000_000;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 100 * MEGABYTE);
            stream.write_all(head.as_bytes()).await?;
            let blanks = vec![b' '; MEGABYTE];
            for _ in 0..100 {
                stream.write_all(&blanks).await?;
            }
        }
    }
    Ok(())
}
