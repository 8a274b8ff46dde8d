//! Parses PEM certificates and keys from Secrets.

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use zeroize::Zeroizing;

/// Why a certificate or key cannot be used. The messages never contain parts of the certificate or key.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialError {
    /// The PEM text has no `CERTIFICATE` block.
    #[error("contains no PEM certificate")]
    NoCertificate,
    /// A `CERTIFICATE` block of the PEM text cannot be parsed.
    #[error("the certificate cannot be parsed")]
    BadCertificate,
    /// The PEM text has no `PUBLIC KEY` block.
    #[error("contains no PEM public key")]
    NoPublicKey,
    /// A block of the PEM text is not a public key in PKIX format.
    #[error("contains something other than public keys in PKIX format")]
    BadPublicKey,
    /// The PEM text has no block with a private key.
    #[error("contains no PEM private key")]
    NoKey,
    /// The private key is damaged, or is not of a supported kind: RSA from 2,048 to 8,192 bits, P-256, P-384
    /// or Ed25519, as PKCS#8, PKCS#1 or SEC1.
    #[error(
        "the private key is damaged or of an unsupported kind (RSA, P-256, P-384 and Ed25519 are supported)"
    )]
    UnsupportedKey,
    /// The private key does not belong to the certificate.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
    /// The system clock shows a time that a certificate cannot represent.
    #[error("cannot issue a certificate: the system clock shows an invalid time; correct the clock")]
    Clock,
    /// The message of the library that issues or verifies certificates.
    #[error("{0}")]
    Library(String),
}

/// Parses all certificates of a PEM bundle. The result is never empty.
pub(crate) fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| CredentialError::BadCertificate)?;
    if certificates.is_empty() {
        return Err(CredentialError::NoCertificate);
    }
    Ok(certificates)
}

/// Parses the first private key in a PEM text.
pub(crate) fn parse_private_key(pem: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, CredentialError> {
    PrivateKeyDer::from_pem_slice(pem)
        .map(Zeroizing::new)
        .map_err(|error| match error {
            pem::Error::NoItemsFound => CredentialError::NoKey,
            _ => CredentialError::UnsupportedKey,
        })
}
