//! A client that can misbehave: HTTP/1.1 by hand.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The time limit for each step of a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A review that the server allows.
pub(crate) const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7","resource":{"group":"controlplane.cluster.x-k8s.io","version":"v1beta2","resource":"kubeadmcontrolplanes"},"operation":"DELETE"}}"#;
/// The response to [`REVIEW`].
pub(crate) const ANSWER: &str =
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"7","allowed":true}}"#;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) closes: bool,
    pub(crate) body: String,
}

impl Answer {
    /// The answer to [`REVIEW`].
    pub(crate) fn allowed(closes: bool) -> Self {
        Self {
            code: 200,
            closes,
            body: ANSWER.to_owned(),
        }
    }
}

pub(crate) struct Connection<S>(pub(crate) S);

/// Fails the test when `future` takes too long.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    time::timeout(DEADLINE, future).await.unwrap()
}

/// Connects with TLS.
pub(crate) async fn connect(
    address: SocketAddr,
    ca: &Path,
    protocols: &[&str],
) -> io::Result<Connection<TlsStream<TcpStream>>> {
    let stream = soon(TcpStream::connect(address)).await?;
    secure(stream, ca, protocols).await
}

/// Connects with TLS from one of this host's addresses.
pub(crate) async fn connect_from(
    from: Ipv4Addr,
    address: SocketAddr,
    ca: &Path,
) -> io::Result<Connection<TlsStream<TcpStream>>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
    let stream = soon(socket.connect(address)).await?;
    secure(stream, ca, &["http/1.1"]).await
}

/// A client certificate and its key.
pub(crate) type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// Starts TLS. The server must have a certificate of the authority in `ca`.
pub(crate) async fn secure(
    stream: TcpStream,
    ca: &Path,
    protocols: &[&str],
) -> io::Result<Connection<TlsStream<TcpStream>>> {
    secure_as(None, stream, ca, protocols).await
}

/// Starts TLS with a client certificate.
pub(crate) async fn secure_as(
    identity: Option<Identity>,
    stream: TcpStream,
    ca: &Path,
    protocols: &[&str],
) -> io::Result<Connection<TlsStream<TcpStream>>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    let name = ServerName::try_from("localhost").unwrap();
    // Otherwise a body waits up to 40 ms, until the server has acknowledged the head.
    stream.set_nodelay(true)?;
    soon(TlsConnector::from(Arc::new(config)).connect(name, stream))
        .await
        .map(Connection)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) async fn send(&mut self, bytes: &str) {
        self.try_send(bytes).await.unwrap();
    }

    /// The head of a request with a body of `length` bytes.
    pub(crate) async fn send_head(&mut self, path: &str, length: usize) {
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    }

    /// Sends [`REVIEW`] and reads the answer.
    pub(crate) async fn review(&mut self) -> Answer {
        self.send_head("/validate", REVIEW.len()).await;
        self.send(REVIEW).await;
        self.answer().await
    }

    /// Sends a review and reads the answer.
    pub(crate) async fn try_post(&mut self, path: &str, review: &str) -> io::Result<Answer> {
        let length = review.len();
        self.try_send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{review}"
        ))
        .await?;
        self.try_answer().await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            .await;
        self.answer().await
    }

    /// Reads one answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.try_answer().await.unwrap()
    }

    pub(crate) async fn try_send(&mut self, bytes: &str) -> io::Result<()> {
        soon(self.0.write_all(bytes.as_bytes())).await?;
        soon(self.0.flush()).await
    }

    pub(crate) async fn try_answer(&mut self) -> io::Result<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(self.0.read_u8()).await?);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let header = |name: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|value| value.trim_start_matches(':').trim().to_owned())
        };
        let length = header("content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        soon(self.0.read_exact(&mut body)).await?;
        Ok(Answer {
            code: head.split(' ').nth(1).unwrap().parse().unwrap(),
            closes: header("connection").as_deref() == Some("close"),
            body: String::from_utf8(body).unwrap(),
        })
    }

    /// Waits until the server closes the connection without sending anything.
    pub(crate) async fn ends(&mut self) {
        let mut rest = Vec::new();
        // The server resets the connection if it has not read everything.
        _ = soon(self.0.read_to_end(&mut rest)).await;
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}
