//! A certificate and its key, from two files.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
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
use tokio::time::{self, MissedTickBehavior};
use tracing::{info, warn};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::metrics::Metrics;

/// A key pair that cannot be served with.
#[derive(Debug, Error)]
pub enum KeyPairError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file holds no PEM section of the kind asked for, or a broken one.
    #[error("{} holds no {wanted} in PEM: {error}", path.display())]
    NotPem {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
        /// Why.
        error: pem::Error,
    },
    /// The certificate cannot be parsed.
    #[error("{} holds a certificate that cannot be parsed: {error}", path.display())]
    BadCertificate {
        /// Which.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// The key is of no kind that we can sign with, or not the certificate's.
    #[error("the key in {} does not go with the certificate in {}: {error}", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        error: rustls::Error,
    },
}

/// The key pair of two files.
pub(crate) struct KeyPair {
    certificate_file: PathBuf,
    key_file: PathBuf,
    current: ArcSwap<CertifiedKey>,
    /// What the files held when last looked at, good or not.
    content: Mutex<Content>,
    metrics: Arc<Metrics>,
}

/// Never printed: it holds the key.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl KeyPair {
    /// Reads the two files.
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

    /// Looks at the files every `interval`, for ever.
    ///
    /// Their content is compared: Secret mounts replace a symlink two levels up, which no watch on the files sees.
    /// The files are small and in memory; reading them blocks for less than handing the work to another thread.
    pub(crate) async fn keep_up(&self, interval: Duration) {
        // An interval of zero panics.
        let mut ticks = time::interval(interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.reload();
        }
    }

    /// Replaces the key pair if the files have changed and hold a good one; keeps the one there is otherwise.
    fn reload(&self) {
        let outcome = Content::read(&self.certificate_file, &self.key_file).and_then(|content| {
            let mut last = self.content.lock().unwrap_or_else(PoisonError::into_inner);
            if *last == content {
                return Ok(None);
            }
            // Half of a change may be there already and the other half not yet: a bad pair is an error once, and is
            // looked at again when it changes.
            *last = content;
            last.parse(&self.certificate_file, &self.key_file).map(Some)
        });
        match outcome {
            Ok(None) => {}
            Ok(Some((current, expiry))) => {
                self.current.store(Arc::new(current));
                self.metrics.certificate_reads.inc();
                self.metrics.certificate_expiry.set(expiry);
                info!(expires = %timestamp(expiry), "the key pair has been replaced");
            }
            Err(error) => {
                self.metrics.certificate_errors.inc();
                warn!(%error, "the key pair stays as it was");
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

    /// The key pair, and when its certificate expires, in seconds since 1970.
    fn parse(&self, certificate_file: &Path, key_file: &Path) -> Result<(CertifiedKey, i64), KeyPairError> {
        let not_pem = |path: &Path, wanted, error| KeyPairError::NotPem {
            path: path.to_owned(),
            wanted,
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
