//! Verifies that etcd's CA issued a member's certificate.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::credentials::{CredentialError, parse_certificates};
use crate::identity::ClientCertificate;

/// The CAs that may have issued a member's certificate.
#[derive(Debug, Clone)]
pub struct Trust(Arc<WebPkiServerVerifier>);

impl Trust {
    /// Trusts only the CAs in this PEM bundle. Fails if the bundle is empty, or a certificate cannot be parsed.
    pub fn new(authorities: &[u8]) -> Result<Self, CredentialError> {
        let mut roots = RootCertStore::empty();
        for authority in parse_certificates(authorities)? {
            roots
                .add(authority)
                .map_err(|_| CredentialError::BadCertificate)?;
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map(Self)
            .map_err(|error| CredentialError::Library(error.to_string()))
    }
}

/// The TLS settings of a connection.
#[derive(Debug, Clone)]
pub struct Tls {
    trust: Trust,
    client: ClientCertificate,
}

impl Tls {
    /// Trusts the CAs of `trust`, and presents the certificate of `client`.
    pub fn new(trust: Trust, client: ClientCertificate) -> Self {
        Self { trust, client }
    }

    /// Returns the TLS configuration of one connection, and a cell in which the handshake stores what it finds out
    /// about the member's certificate.
    pub(crate) fn configure(
        &self,
        names: &[String],
    ) -> Result<(ClientConfig, Arc<ObservedCertificate>), rustls::Error> {
        let seen = Arc::new(ObservedCertificate::default());
        let verifier = Verifier {
            chain: self.trust.0.clone(),
            // No certificate can match an invalid name.
            names: names
                .iter()
                .filter_map(|name| ServerName::try_from(name.clone()).ok())
                .collect(),
            seen: seen.clone(),
        };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(self.client.0.clone())));
        config.alpn_protocols = vec![b"h2".to_vec()];
        // etcd has one certificate, and the endpoint may have several names, so SNI is off.
        config.enable_sni = false;
        Ok((config, seen))
    }
}

/// The cell in which the handshake stores what it finds out about the member's certificate.
#[derive(Debug, Default)]
pub(crate) struct ObservedCertificate(OnceLock<ServingCertificate>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct ServingCertificate {
    pub(crate) matches_endpoint_name: bool,
    /// When the certificate expires, in seconds since 1970. `None` if it cannot be parsed.
    pub(crate) not_after: Option<i64>,
}

impl ObservedCertificate {
    pub(crate) fn certificate(&self) -> Option<ServingCertificate> {
        self.0.get().copied()
    }
}

/// Verifies the chain of the member's certificate, and records whether the certificate is for one of the endpoint's names.
///
/// A certificate with a wrong name is reported but not rejected: the API server chooses the pod of a port-forward, and
/// Cluster API also verifies only the chain.
#[derive(Debug)]
struct Verifier {
    chain: Arc<WebPkiServerVerifier>,
    names: Vec<ServerName<'static>>,
    seen: Arc<ObservedCertificate>,
}

/// The name that rustls gets if an endpoint has none. rustls verifies the chain before the name, so a mismatch of the
/// name proves that the chain is valid.
const PLACEHOLDER_NAME: &str = "localhost";

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verify = |name: &ServerName<'_>| {
            self.chain
                .verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
        };
        let no_name = [ServerName::try_from(PLACEHOLDER_NAME)
            .map_err(|_| CertificateError::ApplicationVerificationFailure)?];
        let names = if self.names.is_empty() {
            &no_name[..]
        } else {
            &self.names[..]
        };
        let mut names_member = false;
        for name in names {
            match verify(name) {
                Ok(_) => {
                    names_member = !self.names.is_empty();
                    break;
                }
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                )) => {}
                Err(error) => return Err(error),
            }
        }
        let not_after = X509Certificate::from_der(end_entity)
            .ok()
            .map(|(_, certificate)| certificate.validity().not_after.timestamp());
        // The cell is empty, because each connection has exactly one handshake.
        let _ = self.seen.0.set(ServingCertificate {
            matches_endpoint_name: names_member,
            not_after,
        });
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
