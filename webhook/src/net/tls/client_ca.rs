//! The CA certificates with which the server verifies clients, reloaded from a file.
//!
//! A client without a certificate may connect; the router decides how to respond. If a client has a certificate from
//! another CA, the handshake fails.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::ring,
    pki_types::{
        CertificateDer, UnixTime,
        pem::{self, PemObject},
    },
    server::{
        VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use thiserror::Error;
use tracing::{info, warn};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::metrics::Metrics;

/// Why the file with the CA certificates for clients cannot be used.
#[derive(Debug, Error)]
pub enum ClientCaError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} does not contain PEM certificates: {error}", path.display())]
    NotPem { path: PathBuf, error: pem::Error },
    /// The file contains a certificate that is not a CA certificate.
    #[error("cannot use a certificate in {} as a CA certificate: {error}", path.display())]
    BadCertificate { path: PathBuf, error: rustls::Error },
    /// The file contains no certificate that can verify clients.
    #[error("cannot use the certificates in {}: {error}", path.display())]
    Unusable {
        path: PathBuf,
        error: VerifierBuilderError,
    },
}

/// Verifies client certificates with the current CA certificates.
pub(crate) struct ClientCa {
    file: PathBuf,
    /// The names that a certificate may have; empty if it may have any.
    names: Vec<String>,
    current: ArcSwap<Verifier>,
    /// The content of the file at the last reload, valid or not.
    content: Mutex<Vec<u8>>,
    metrics: Arc<Metrics>,
}

/// A verifier of client certificates in a sized type, because [`ArcSwap`] cannot contain trait objects.
struct Verifier(Arc<dyn ClientCertVerifier>);

impl ClientCa {
    pub(crate) fn load(
        file: &Path,
        names: Vec<String>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ClientCaError> {
        let content = read(file)?;
        let current = verifier(file, &content)?;
        Ok(Self {
            file: file.to_owned(),
            names,
            current: ArcSwap::from_pointee(current),
            content: Mutex::new(content),
            metrics,
        })
    }

    /// Replaces the CA certificates if the file has changed and is valid. Open connections are not affected.
    pub(crate) fn reload(&self) {
        let reloaded = read(&self.file).and_then(|content| {
            let mut last = self.content.lock().unwrap_or_else(PoisonError::into_inner);
            if *last == content {
                return Ok(None);
            }
            // Report an invalid file once, and read it again when it changes.
            *last = content;
            verifier(&self.file, &last).map(Some)
        });
        match reloaded {
            Ok(None) => {}
            Ok(Some(current)) => {
                self.current.store(Arc::new(current));
                self.metrics.certificate_reads.inc();
                info!(file = %self.file.display(), "reloaded the CA certificates of clients");
            }
            Err(error) => {
                self.metrics.certificate_errors.inc();
                warn!(%error, "cannot reload the CA certificates of clients; still using the previous ones");
            }
        }
    }

    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.current.load().0.clone()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ClientCaError> {
    fs::read(path).map_err(|error| ClientCaError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

fn verifier(path: &Path, content: &[u8]) -> Result<Verifier, ClientCaError> {
    let not_pem = |error| ClientCaError::NotPem {
        path: path.to_owned(),
        error,
    };
    let certificates = CertificateDer::pem_slice_iter(content).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(not_pem)?;
    if certificates.is_empty() {
        return Err(not_pem(pem::Error::NoItemsFound));
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| ClientCaError::BadCertificate {
                path: path.to_owned(),
                error,
            })?;
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map(Verifier)
        .map_err(|error| ClientCaError::Unusable {
            path: path.to_owned(),
            error,
        })
}

/// Whether `names` contains the common name or one of the DNS names of a certificate.
fn has_name(certificate: &CertificateDer<'_>, names: &[String]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let alternatives = alternatives.iter().flat_map(|names| &names.value.general_names);
    let dns_names = alternatives.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    let subject = certificate.subject();
    let common_names = subject.iter_common_name().filter_map(|name| name.as_str().ok());
    common_names
        .chain(dns_names)
        .any(|name| names.iter().any(|listed| listed == name))
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for ClientCa {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Names no accepted CAs to the client. Go's client sends its certificate without such names, and the borrowed names would
    /// have to outlive a reload.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .verifier()
            .verify_client_cert(end_entity, intermediates, now)?;
        if self.names.is_empty() || has_name(end_entity, &self.names) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}
