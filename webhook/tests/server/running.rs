//! A server in this process.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use kcp_webhook::{
    Limits, Stop,
    arguments::{IssueArguments, LogArguments, LogFormat, ServeArguments},
    manager::certs,
    serve::{Server, StopReason},
};
use tempfile::TempDir;
use tokio::{net::TcpStream, sync::mpsc::UnboundedSender, task::JoinHandle};
use tokio_rustls::client::TlsStream;

use crate::client::{self, Answer, Connection, DEADLINE, soon};

/// Certificates in a folder of their own.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    pub(crate) fn new() -> Self {
        let certificates = Self(tempfile::tempdir().unwrap());
        certificates.issue();
        certificates
    }

    /// Replaces the certificates.
    pub(crate) fn issue(&self) {
        let arguments = IssueArguments {
            dir: self.0.path().to_owned(),
            dns_names: vec!["localhost".to_owned()],
            ips: Vec::new(),
            days: 1,
            force: true,
        };
        certs::issue(&arguments, &mut io::sink()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A running server.
pub(crate) struct Running {
    pub(crate) certificates: Certificates,
    pub(crate) secure: SocketAddr,
    pub(crate) health: SocketAddr,
    pub(crate) stop: UnboundedSender<&'static str>,
    pub(crate) ended: JoinHandle<StopReason>,
}

/// Arguments of a server that stops without delay and reloads often.
pub(crate) fn arguments(certificates: &Certificates) -> ServeArguments {
    ServeArguments {
        bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        secure_port: 0,
        health_port: 0,
        tls_cert_file: certificates.path("tls.crt"),
        tls_private_key_file: certificates.path("tls.key"),
        client_ca_file: None,
        client_allowed_names: Vec::new(),
        tls_reload_interval: Duration::from_millis(5),
        kubeconfig: None,
        configuration: None,
        shutdown_delay: Duration::ZERO,
        drain_timeout: DEADLINE,
        log: LogArguments {
            log_format: LogFormat::Text,
            log_level: "off".parse().unwrap(),
        },
    }
}

impl Running {
    pub(crate) async fn start(limits: Limits) -> Self {
        Self::start_with(limits, |_| {}).await
    }

    pub(crate) async fn start_with(limits: Limits, change: impl FnOnce(&mut ServeArguments)) -> Self {
        let certificates = Certificates::new();
        let mut arguments = arguments(&certificates);
        change(&mut arguments);
        let server = Server::bind(&arguments, limits).await.unwrap();
        let (stop, stopped) = Stop::channel();
        Self {
            certificates,
            secure: server.secure_address().unwrap(),
            health: server.health_address().unwrap(),
            stop,
            ended: tokio::spawn(server.run(stopped)),
        }
    }

    /// Connects like the API server.
    pub(crate) async fn connect(&self) -> Connection<TlsStream<TcpStream>> {
        self.try_connect(&["http/1.1"]).await.unwrap()
    }

    pub(crate) async fn try_connect(
        &self,
        protocols: &[&str],
    ) -> io::Result<Connection<TlsStream<TcpStream>>> {
        client::connect(self.secure, &self.certificates.path("ca.crt"), protocols).await
    }

    /// Sends a GET to the health port.
    pub(crate) async fn probe(&self, path: &str) -> Answer {
        let stream = soon(TcpStream::connect(self.health)).await.unwrap();
        Connection(stream).get(path).await
    }

    /// The value of one series.
    pub(crate) async fn metric(&self, series: &str) -> String {
        let text = self.probe("/metrics").await.body;
        value_of(&text, series).unwrap_or_else(|| panic!("{series} is missing from:\n{text}"))
    }

    /// Waits until a series has a value. Some series exist only after their first event.
    pub(crate) async fn until_metric(&self, series: &str, value: &str) {
        let has_value = async || {
            let text = self.probe("/metrics").await.body;
            value_of(&text, series).as_deref() == Some(value)
        };
        soon(async { while !has_value().await {} }).await;
    }

    pub(crate) async fn ended(self) -> StopReason {
        soon(self.ended).await.unwrap()
    }
}

fn value_of(metrics: &str, series: &str) -> Option<String> {
    let mut values = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    values.next().map(str::to_owned)
}
