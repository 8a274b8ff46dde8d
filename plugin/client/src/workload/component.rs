//! Reads the HTTPS server of a component that runs in a Pod, such as kube-controller-manager, through a port-forward.

use std::{io, sync::Arc, time::Duration};

use http::{Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use kcp_etcd::{BoxedStream, Dial};
use kube::{Config, client::ConfigExt as _};
use rustls::{ClientConfig, pki_types::ServerName};
use thiserror::Error;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

use kcp_control_plane::duration::format_limit;

use super::{any_certificate::AnyCertificate, port_forward::PortForward};

/// The host name in TLS and HTTP requests. Components do not check it.
const HOST_NAME: &str = "localhost";

/// Why the server of a component could not be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ComponentError {
    /// No process listens on the port, according to the kubelet.
    #[error("nothing listens on port {port}")]
    Refused { port: u16 },
    #[error("the port-forward failed: {0}")]
    Forward(String),
    #[error("the TLS or HTTP connection failed: {0}")]
    Connection(String),
    #[error("no response within {}", format_limit(*after))]
    Timeout { after: Duration },
    /// The port-forward did not open in time. To open it, the API server must first connect to the kubelet.
    #[error(
        "the API server did not open a port-forward to the Pod within {}; check that it can reach \
         the kubelet of the Node",
        format_limit(*after)
    )]
    NoForward { after: Duration },
    #[error("the response is larger than {max_mebibytes} MiB or is not text")]
    Response { max_mebibytes: usize },
    /// The kubeconfig has only a token. It is not sent, because the server's certificate is not verified, and anyone
    /// who receives a token can use it.
    #[error("the kubeconfig has no client certificate, and kubectl-kcp does not send tokens to components")]
    NoClientCertificate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentResponse {
    /// The HTTP status code of the response.
    pub code: u16,
    pub text: String,
}

/// The TLS settings for components. Their certificates are not verified, because kubeadm lets each component sign its
/// own. The stream comes from the API server, whose certificate is verified, and nothing secret is sent over it.
#[derive(Clone, Debug)]
pub struct ComponentTls {
    anonymous: Arc<ClientConfig>,
    /// The settings with the client certificate of the kubeconfig. `None` if the kubeconfig has no client certificate.
    identified: Option<Arc<ClientConfig>>,
}

/// The HTTPS server of a component. Each request uses a port-forward of its own.
pub struct ComponentServer<'t> {
    pub forward: PortForward,
    pub port: u16,
    pub tls: &'t ComponentTls,
    /// The time limit of each request.
    pub limit: Duration,
    /// The maximum size of a response.
    pub max_mebibytes: usize,
}

impl ComponentTls {
    /// Fails if the certificate or the key of the kubeconfig cannot be used.
    pub fn new(config: &Config) -> Result<Self, kube::Error> {
        let identified = if config.auth_info.client_certificate_data.is_some() {
            let mut tls = config.rustls_client_config()?;
            tls.dangerous()
                .set_certificate_verifier(Arc::new(AnyCertificate::default()));
            tls.alpn_protocols.clear();
            tls.enable_sni = false;
            Some(Arc::new(tls))
        } else {
            None
        };
        Ok(Self {
            identified,
            ..Self::anonymous().map_err(|error| kube::Error::Service(error.into()))?
        })
    }

    /// Fails if the TLS library supports no protocol version.
    pub fn anonymous() -> Result<Self, rustls::Error> {
        let mut tls = AnyCertificate::client(&Arc::default())?;
        tls.enable_sni = false;
        Ok(Self {
            anonymous: Arc::new(tls),
            identified: None,
        })
    }
}

impl ComponentServer<'_> {
    /// Sends a GET request without credentials. Fails only if no response was received.
    pub async fn get_anonymously(&self, path: &str) -> Result<ComponentResponse, ComponentError> {
        self.get_with(&self.tls.anonymous, path, "*/*").await
    }

    /// Sends a GET request with the client certificate of the kubeconfig. Fails if the kubeconfig has no client certificate, or
    /// no response was received.
    pub async fn get(&self, path: &str, accept: &str) -> Result<ComponentResponse, ComponentError> {
        let tls = self.tls.identified.as_ref();
        let tls = tls.ok_or(ComponentError::NoClientCertificate)?;
        self.get_with(tls, path, accept).await
    }

    async fn get_with(
        &self,
        tls: &Arc<ClientConfig>,
        path: &str,
        accept: &str,
    ) -> Result<ComponentResponse, ComponentError> {
        let (after, end) = (self.limit, Instant::now() + self.limit);
        let stream = match timeout_at(end, self.forward.dial()).await {
            Ok(stream) => stream.map_err(|error| ComponentError::Forward(root_cause(&error)))?,
            Err(_) => return Err(ComponentError::NoForward { after }),
        };
        match timeout_at(end, self.exchange(stream, tls, path, accept)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ComponentError::Timeout { after }),
        }
    }

    async fn exchange(
        &self,
        stream: BoxedStream,
        tls: &Arc<ClientConfig>,
        path: &str,
        accept: &str,
    ) -> Result<ComponentResponse, ComponentError> {
        let failed = |error: &hyper::Error| ComponentError::Connection(root_cause(error));
        let name =
            ServerName::try_from(HOST_NAME).map_err(|error| ComponentError::Connection(error.to_string()))?;
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await;
        let stream = stream.map_err(|error| self.stream_error(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        // The connection ends when this set is dropped.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let request = Request::get(path)
            .header(header::HOST, HOST_NAME)
            .header(header::ACCEPT, accept)
            .body(Empty::<Bytes>::new())
            .map_err(|error| ComponentError::Connection(error.to_string()))?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| failed(&error))?;
        let code = response.status().as_u16();
        let max_mebibytes = self.max_mebibytes;
        let too_large = || ComponentError::Response { max_mebibytes };
        let body = Limited::new(response.into_body(), max_mebibytes.saturating_mul(1024 * 1024))
            .collect()
            .await;
        let body = body.map_err(|_| too_large())?.to_bytes();
        let text = String::from_utf8(body.to_vec()).map_err(|_| too_large())?;
        Ok(ComponentResponse { code, text })
    }

    /// Describes an error of the forwarded stream, on which the kubelet reports that it could not connect.
    fn stream_error(&self, error: &io::Error) -> ComponentError {
        let message = error.to_string();
        if message.contains("connection refused") {
            return ComponentError::Refused { port: self.port };
        }
        ComponentError::Connection(message)
    }
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use serde_json::Value;

    use super::*;
    use crate::Connection;

    #[tokio::test]
    async fn a_port_forward_that_is_not_opened_is_no_missing_response() {
        let connection = Connection::canned_async(|_, _| pending::<(u16, Value)>());
        let server = ComponentServer {
            forward: PortForward::new(connection.client.clone(), "kube-system", "kcm", 10257),
            port: 10257,
            tls: &ComponentTls::anonymous().unwrap(),
            limit: Duration::from_millis(20),
            max_mebibytes: 1,
        };
        let error = server.get_anonymously("/healthz").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the API server did not open a port-forward to the Pod within 20ms; check that it can reach the kubelet of the Node"
        );
    }
}
