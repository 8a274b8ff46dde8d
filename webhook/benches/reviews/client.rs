//! The client: one connection with keep-alive, as an API server has.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, pki_types::ServerName};

use crate::{bodies::Body, certificates::Certificates};

/// The time limit of a step, which is longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

impl Client {
    pub(crate) fn connect(port: u16, certificates: &Certificates) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(certificates.trusted.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let name = ServerName::try_from("localhost")?;
        let session = ClientConnection::new(Arc::new(config), name)?;
        Ok(Self {
            stream: BufReader::new(StreamOwned::new(session, socket)),
        })
    }

    /// Connects once the server listens.
    pub(crate) fn connect_as_soon_as(
        port: u16,
        certificates: &Certificates,
        limit: Duration,
    ) -> Result<Self> {
        let started = Instant::now();
        loop {
            match Self::connect(port, certificates) {
                Ok(client) => return Ok(client),
                Err(error) if started.elapsed() > limit => return Err(error),
                // The server runs on another core, so spinning does not slow it down.
                Err(_) => std::hint::spin_loop(),
            }
        }
    }

    /// Sends a review and reads the answer.
    pub(crate) fn send(&mut self, body: &Body) -> Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(&body.request)?;
        stream.flush()?;
        let mut length = None;
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(
                self.stream.read_line(&mut line)? > 0,
                "the server closed the connection"
            );
            if length.is_none() && line.starts_with("HTTP/1.1 ") {
                ensure!(line.starts_with("HTTP/1.1 200"), "{line}");
            }
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse().context("content-length")?);
            }
        }
        let Some(length) = length else {
            bail!("the answer has no content-length")
        };
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        let allowed = br#""allowed":true"#;
        ensure!(
            answer.windows(allowed.len()).any(|window| window == allowed),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    }
}

/// Keeps this process off the servers' core.
pub(crate) fn stay_on_core(core: &str) -> Result<()> {
    let pid = std::process::id().to_string();
    let moved = Command::new("taskset")
        .args(["-cp", core, &pid])
        .output()
        .context("starting taskset")?;
    ensure!(
        moved.status.success(),
        "{}",
        String::from_utf8_lossy(&moved.stderr)
    );
    Ok(())
}
