//! Parses PEM certificates and keys from Secrets.

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use zeroize::Zeroizing;

/// Why a certificate or key cannot be used. Messages never quote the content.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialError {
    /// No `CERTIFICATE` block found.
    #[error("contains no PEM certificate")]
    NoCertificate,
    /// A `CERTIFICATE` block cannot be parsed.
    #[error("the certificate cannot be parsed")]
    BadCertificate,
    /// No private key block found.
    #[error("contains no PEM private key")]
    NoKey,
    /// Supported: RSA from 2,048 to 8,192 bits, P-256, P-384 and Ed25519, as PKCS#8, PKCS#1 or SEC1.
    #[error(
        "the private key is damaged or of an unsupported kind (RSA, P-256, P-384 and Ed25519 are supported)"
    )]
    UnsupportedKey,
    /// The key does not match the certificate.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
    /// The system clock shows a time that a certificate cannot represent.
    #[error("cannot issue a certificate: the system clock shows an invalid time; correct the clock")]
    Clock,
    /// An error of the library that issues or verifies certificates.
    #[error("{0}")]
    Refused(String),
}

/// Parses all certificates of a bundle. Never empty.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| CredentialError::BadCertificate)?;
    if certificates.is_empty() {
        return Err(CredentialError::NoCertificate);
    }
    Ok(certificates)
}

/// Parses the first private key.
pub(crate) fn private_key(pem: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, CredentialError> {
    PrivateKeyDer::from_pem_slice(pem)
        .map(Zeroizing::new)
        .map_err(|error| match error {
            pem::Error::NoItemsFound => CredentialError::NoKey,
            _ => CredentialError::UnsupportedKey,
        })
}
