//! A certificate and its private key, reloaded from two files.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use rustls::{
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use thiserror::Error;
use tracing::{info, warn};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::metrics::Metrics;

/// Why the TLS key pair cannot be used.
#[derive(Debug, Error)]
pub enum KeyPairError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// A file has no valid PEM section of the expected kind, a certificate or a private key.
    #[error("{} does not contain a PEM {section}: {error}", path.display())]
    NotPem {
        path: PathBuf,
        section: &'static str,
        error: pem::Error,
    },
    #[error("cannot parse the certificate in {}: {error}", path.display())]
    BadCertificate { path: PathBuf, error: String },
    /// The key has an unsupported type, or does not belong to the certificate.
    #[error("cannot use the private key in {} with the certificate in {}: {error}", key.display(), certificate.display())]
    Mismatch {
        certificate: PathBuf,
        key: PathBuf,
        error: rustls::Error,
    },
}

/// The TLS key pair of the server, reloaded when its two files change.
pub(crate) struct KeyPair {
    certificate_file: PathBuf,
    key_file: PathBuf,
    current: ArcSwap<CertifiedKey>,
    /// The content of the files at the last reload, valid or not.
    content: Mutex<Content>,
    metrics: Arc<Metrics>,
}

/// The content of the certificate file and the key file. No `Debug`, because it contains the private key.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl KeyPair {
    pub(crate) fn load(
        certificate_file: &Path,
        key_file: &Path,
        metrics: Arc<Metrics>,
    ) -> Result<Self, KeyPairError> {
        let content = Content::read(certificate_file, key_file)?;
        let (current, expiry) = content.parse(certificate_file, key_file)?;
        metrics.certificate_reads.inc();
        metrics.certificate_expiry.set(expiry);
        Ok(Self {
            certificate_file: certificate_file.to_owned(),
            key_file: key_file.to_owned(),
            current: ArcSwap::from_pointee(current),
            content: Mutex::new(content),
            metrics,
        })
    }

    /// Replaces the key pair if the files have changed and are valid.
    pub(crate) fn reload(&self) {
        let reloaded = Content::read(&self.certificate_file, &self.key_file).and_then(|content| {
            let mut last = self.content.lock().unwrap_or_else(PoisonError::into_inner);
            if *last == content {
                return Ok(None);
            }
            // An invalid pair is reported once and tried again when a file changes, because it is possible that only one of
            // the two files has been replaced so far.
            *last = content;
            last.parse(&self.certificate_file, &self.key_file).map(Some)
        });
        match reloaded {
            Ok(None) => {}
            Ok(Some((current, expiry))) => {
                self.current.store(Arc::new(current));
                self.metrics.certificate_reads.inc();
                self.metrics.certificate_expiry.set(expiry);
                info!(expires = %timestamp(expiry), "reloaded the TLS key pair");
            }
            Err(error) => {
                self.metrics.certificate_errors.inc();
                warn!(%error, "cannot reload the TLS key pair; still using the previous one");
            }
        }
    }
}

impl Content {
    fn read(certificate_file: &Path, key_file: &Path) -> Result<Self, KeyPairError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| KeyPairError::Unreadable {
                path: path.to_owned(),
                error,
            })
        };
        Ok(Self {
            certificate: read(certificate_file)?,
            key: read(key_file)?,
        })
    }

    /// Returns the key pair, and the expiry of its certificate in seconds since 1970.
    fn parse(&self, certificate_file: &Path, key_file: &Path) -> Result<(CertifiedKey, i64), KeyPairError> {
        let not_pem = |path: &Path, section, error| KeyPairError::NotPem {
            path: path.to_owned(),
            section,
            error,
        };
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| not_pem(certificate_file, "certificate", error))?;
        let Some(leaf) = chain.first() else {
            return Err(not_pem(certificate_file, "certificate", pem::Error::NoItemsFound));
        };
        let expiry = match X509Certificate::from_der(leaf) {
            Ok((_, certificate)) => certificate.validity().not_after.timestamp(),
            Err(error) => {
                return Err(KeyPairError::BadCertificate {
                    path: certificate_file.to_owned(),
                    error: error.to_string(),
                });
            }
        };
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| not_pem(key_file, "private key", error))?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| {
            KeyPairError::Mismatch {
                certificate: certificate_file.to_owned(),
                key: key_file.to_owned(),
                error,
            }
        })?;
        Ok((certified, expiry))
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair")
            .field("certificate_file", &self.certificate_file)
            .field("key_file", &self.key_file)
            .finish_non_exhaustive()
    }
}

impl ResolvesServerCert for KeyPair {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests;
