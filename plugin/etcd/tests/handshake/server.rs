//! The server side of TLS.

use std::ops::Range;
use std::sync::Arc;

use kcp_etcd::{BoxedStream, Dial, Dialing, Endpoint};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio_rustls::TlsAcceptor;

pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = parameters.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(parameters, key),
        }
    }

    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    pub(crate) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }
}

/// Accepts TLS, reads until it receives data, and closes the connection.
pub(crate) struct Member {
    config: Arc<ServerConfig>,
    not_after: i64,
}

impl Member {
    /// Creates a member with a certificate of `authority` for `names`. The validity begins and ends this
    /// number of days from now. The member requires a client certificate of `clients`.
    pub(crate) fn new(authority: &Authority, clients: &Authority, names: &[&str], days: Range<i64>) -> Self {
        Self::with(authority, clients.certificate.as_bytes(), names, days)
    }

    /// Creates a member that requires a client certificate of the authority `clients`.
    pub(crate) fn accepting(authority: &Authority, clients: &[u8]) -> Self {
        Self::with(authority, clients, &["node-1"], 0..1)
    }

    fn with(authority: &Authority, clients: &[u8], names: &[&str], days: Range<i64>) -> Self {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(names).unwrap();
        let midnight = OffsetDateTime::now_utc().replace_time(time::Time::MIDNIGHT);
        parameters.not_before = midnight + Duration::days(days.start);
        parameters.not_after = midnight + Duration::days(days.end);
        let not_after = parameters.not_after.unix_timestamp();
        let certificate = parameters.signed_by(&key, &authority.issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(clients).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self {
            config: Arc::new(config),
            not_after,
        }
    }

    pub(crate) fn not_after(&self) -> i64 {
        self.not_after
    }

    pub(crate) fn endpoint(&self, names: &[&str]) -> Endpoint {
        Endpoint::new(Acceptor(self.config.clone()), names.iter().copied())
    }
}

struct Acceptor(Arc<ServerConfig>);

impl Dial for Acceptor {
    fn dial(&self) -> Dialing<'_> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve(self.0.clone(), theirs));
        Box::pin(async { Ok(Box::new(ours) as BoxedStream) })
    }
}

async fn serve(config: Arc<ServerConfig>, stream: DuplexStream) -> std::io::Result<()> {
    let mut stream = TlsAcceptor::from(config).accept(stream).await?;
    stream.read_u8().await.map(drop)
}

/// Accepts connections and never responds.
pub(crate) struct Silence;

impl Dial for Silence {
    fn dial(&self) -> Dialing<'_> {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move { tokio::io::copy(&mut theirs, &mut tokio::io::sink()).await });
        Box::pin(async { Ok(Box::new(ours) as BoxedStream) })
    }
}
