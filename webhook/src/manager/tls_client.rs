//! Connects to the webhook as the API server does: over TLS, with the CA certificates of a caBundle and nothing else.

use std::{sync::Arc, time::Duration};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::{
    ClientConfig, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::CertifiedKey,
};
use thiserror::Error;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::authority::{Lifetime, lifetime, serial_number};

/// How long a connection and its response may take: the longest timeout of the webhook configurations.
const LIMIT: Duration = Duration::from_secs(5);

/// The maximum size of a response.
const MAX_RESPONSE: usize = 1 << 20;

/// Why the webhook does not respond as it should.
#[derive(Debug, Error)]
pub(crate) enum ProbeError {
    #[error("cannot connect to {0}: {1}")]
    Connect(String, String),
    #[error("the caBundle does not verify the certificate of {0}: {1}")]
    Untrusted(String, String),
    #[error("{0} did not respond within {LIMIT:?}")]
    TooSlow(String),
    #[error("{0} did not respond as an admission webhook: {1}")]
    WrongResponse(String, String),
    #[error("the CA certificates cannot be used: {0}")]
    Bundle(String),
}

/// The CA certificates that a client trusts, and the name that it expects in the server's certificate.
#[derive(Clone)]
pub(crate) struct Trust {
    roots: Arc<RootCertStore>,
    name: ServerName<'static>,
}

impl Trust {
    pub(crate) fn new(bundle: &str, host: &str) -> Result<Self, ProbeError> {
        let unusable = |error: String| ProbeError::Bundle(error);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            roots
                .add(certificate)
                .map_err(|error| unusable(error.to_string()))?;
        }
        Ok(Self {
            roots: Arc::new(roots),
            name: ServerName::try_from(host.to_owned()).map_err(|error| unusable(error.to_string()))?,
        })
    }

    /// The validity of a serving certificate, if its key belongs to it and these CAs verify it.
    pub(crate) fn verify(&self, certificate: &[u8], key: &[u8], now: Timestamp) -> Option<Lifetime> {
        if self.roots.is_empty() {
            return None;
        }
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .ok()?;
        let (leaf, intermediates) = chain.split_first()?;
        let provider = ring::default_provider();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(self.roots.clone(), Arc::new(provider.clone()));
        let seconds = u64::try_from(now.as_second()).ok()?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier
            .build()
            .ok()?
            .verify_server_cert(leaf, intermediates, &self.name, &[], time)
            .ok()?;
        let lifetime = lifetime(leaf)?;
        let key = PrivateKeyDer::from_pem_slice(key).ok()?;
        CertifiedKey::from_der(chain, key, &provider).ok()?;
        Some(lifetime)
    }

    /// Completes a TLS handshake with the server at an address. Returns the serial number of its certificate.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> Result<String, ProbeError> {
        let stream = self.stream(host, port).await?;
        let (_, connection) = stream.get_ref();
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        certificate
            .and_then(|certificate| serial_number(certificate))
            .ok_or_else(|| {
                let address = format!("{host}, port {port}");
                ProbeError::Untrusted(address, "its certificate has no serial number".to_owned())
            })
    }

    async fn stream(&self, host: &str, port: u16) -> Result<TlsStream<TcpStream>, ProbeError> {
        let address = format!("{host}, port {port}");
        let connecting = async {
            let stream = TcpStream::connect((host, port))
                .await
                .map_err(|error| ProbeError::Connect(address.clone(), error.to_string()))?;
            let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| ProbeError::Bundle(error.to_string()))?
                .with_root_certificates(self.roots.clone())
                .with_no_client_auth();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            TlsConnector::from(Arc::new(config))
                .connect(self.name.clone(), stream)
                .await
                .map_err(|error| {
                    let inner = error
                        .get_ref()
                        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
                    if matches!(inner, Some(rustls::Error::InvalidCertificate(_))) {
                        ProbeError::Untrusted(address.clone(), error.to_string())
                    } else {
                        ProbeError::Connect(address.clone(), error.to_string())
                    }
                })
        };
        timeout(LIMIT, connecting)
            .await
            .unwrap_or_else(|_| Err(ProbeError::TooSlow(address.clone())))
    }

    /// Sends a request body to a path, and returns the body of the response.
    pub(crate) async fn post(
        &self,
        host: &str,
        port: u16,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, ProbeError> {
        let address = format!("{host}, port {port}");
        let wrong = |error: String| ProbeError::WrongResponse(address.clone(), error);
        let stream = self.stream(host, port).await?;
        let sending = async {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| wrong(error.to_string()))?;
            let request = Request::post(path)
                .header(HOST, self.name.to_str().into_owned())
                .header(CONTENT_TYPE, "application/json")
                .body(Full::new(Bytes::from(body)))
                .map_err(|error| wrong(error.to_string()))?;
            let responding = async {
                let response = sender
                    .send_request(request)
                    .await
                    .map_err(|error| wrong(error.to_string()))?;
                if response.status() != StatusCode::OK {
                    return Err(wrong(format!(
                        "the response to {path} has status {}",
                        response.status()
                    )));
                }
                let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
                Ok(body
                    .map_err(|error| wrong(error.to_string()))?
                    .to_bytes()
                    .to_vec())
            };
            tokio::select! {
                response = responding => response,
                // The connection ends only after the response, or with an error.
                Err(error) = connection => Err(wrong(error.to_string())),
            }
        };
        timeout(LIMIT, sending)
            .await
            .unwrap_or_else(|_| Err(ProbeError::TooSlow(address.clone())))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use time::OffsetDateTime;

    use super::super::authority::{Authority, ServerNames};
    use super::*;

    const HOST_NAME: &str = "kcp-webhook.kcp-webhook-system.svc";

    #[test]
    fn a_certificate_is_verified_as_an_api_server_does() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let day = |days: i64| now + SignedDuration::from_hours(24 * days);
        let offset_time = |time: Timestamp| OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap();
        let create = |name| Authority::create(name, offset_time(now), time::Duration::days(365)).unwrap();
        let (signing, other) = (create("one CA"), create("another CA"));
        let issue = |name: &str| {
            let names = [name.to_owned()];
            let names = ServerNames {
                dns_names: &names,
                ips: &[],
            };
            signing
                .issue(names, offset_time(now), offset_time(day(90)))
                .unwrap()
        };
        let (good, wrong) = (issue(HOST_NAME), issue("kcp-webhook.another.svc"));
        let trust = |ca: &Authority| Trust::new(ca.certificate(), HOST_NAME).unwrap();
        let verified = |trust: &Trust, certificate: &str, key: &str, time| {
            trust
                .verify(certificate.as_bytes(), key.as_bytes(), time)
                .map(|lifetime| lifetime.until)
        };
        let trusting = trust(&signing);
        for (what, trust, certificate, key, time, expected) in [
            (
                "valid",
                &trusting,
                &good.certificate,
                &good.key,
                now,
                Some(day(90)),
            ),
            ("expired", &trusting, &good.certificate, &good.key, day(91), None),
            (
                "another name",
                &trusting,
                &wrong.certificate,
                &wrong.key,
                now,
                None,
            ),
            ("another key", &trusting, &good.certificate, &wrong.key, now, None),
            (
                "another CA",
                &trust(&other),
                &good.certificate,
                &good.key,
                now,
                None,
            ),
            ("no certificate", &trusting, &String::new(), &good.key, now, None),
        ] {
            assert_eq!(verified(trust, certificate, key, time), expected, "{what}");
        }
        let none = Trust::new("", HOST_NAME).unwrap();
        assert_eq!(verified(&none, &good.certificate, &good.key, now), None);
    }
}
