//! Certificates and keys in PEM, as Secrets hold them.

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use zeroize::Zeroizing;

/// Why certificates or keys cannot be used. None of the messages quotes them.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialError {
    /// No `CERTIFICATE` block.
    #[error("there is no PEM certificate in it")]
    NoCertificate,
    /// A `CERTIFICATE` block that holds something else.
    #[error("the certificate cannot be read")]
    BadCertificate,
    /// No private key block.
    #[error("there is no PEM private key in it")]
    NoKey,
    /// RSA from 2,048 to 8,192 bits, P-256, P-384 and Ed25519 are supported, as PKCS#8, PKCS#1 or SEC1.
    #[error(
        "the private key is damaged or of an unsupported kind (RSA, P-256, P-384 and Ed25519 are supported)"
    )]
    UnsupportedKey,
    /// Key and certificate are not a pair.
    #[error("the private key does not belong to the certificate")]
    KeyOfAnother,
    /// The system's clock shows a time that certificates cannot express.
    #[error("the system's clock is wrong: no certificate can be issued for now")]
    Clock,
    /// The library that issues certificates or verifies them refused.
    #[error("{0}")]
    Refused(String),
}

/// All certificates of a bundle: at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| CredentialError::BadCertificate)?;
    if certificates.is_empty() {
        return Err(CredentialError::NoCertificate);
    }
    Ok(certificates)
}

/// The first private key.
pub(crate) fn private_key(pem: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, CredentialError> {
    PrivateKeyDer::from_pem_slice(pem)
        .map(Zeroizing::new)
        .map_err(|error| match error {
            pem::Error::NoItemsFound => CredentialError::NoKey,
            _ => CredentialError::UnsupportedKey,
        })
}
