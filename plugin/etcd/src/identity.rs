//! Client certificates for etcd: one from a Secret, or one that this crate issues from etcd's CA.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{InconsistentKeys, SignatureScheme};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use zeroize::Zeroizing;

use crate::credentials::{CredentialError, parse_certificates, parse_private_key};

/// How long an issued certificate is valid: long enough for one command.
pub const ISSUED_VALIDITY: Duration = Duration::from_secs(10 * 60);

/// How far a member's clock may be behind the local clock.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// The common name of the certificates that this crate issues. It appears only in etcd's logs, because kubeadm's etcd
/// checks only the issuer. The certificates have no group: etcd ignores groups, and an API server that trusts the CA
/// would give a certificate with `system:masters` all permissions.
const COMMON_NAME: &str = "kubectl-kcp";

/// A client certificate with its chain and private key, which exist only in memory.
#[derive(Clone)]
pub struct ClientCertificate(pub(crate) Arc<CertifiedKey>);

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientCertificate")
    }
}

impl ClientCertificate {
    /// Parses a certificate and its key (PKCS#1, SEC1 or PKCS#8) from PEM. Fails if the two do not match.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, CredentialError> {
        Self::pair(parse_certificates(certificate)?, &*parse_private_key(key)?)
    }

    /// Issues a certificate with a new key from etcd's CA, valid from five minutes before `now` until
    /// [`ISSUED_VALIDITY`] after `now`.
    ///
    /// `certificate` may be a bundle, as during a CA rotation; the certificate that matches `key` is the issuer.
    pub fn issue(certificate: &[u8], key: &[u8], now: SystemTime) -> Result<Self, CredentialError> {
        let authorities = parse_certificates(certificate)?;
        let (authority, signer) = CaKey::new(&authorities, &*parse_private_key(key)?)?;
        let issuer = Issuer::from_ca_cert_der(authority, signer).map_err(library_error)?;

        let mut parameters = CertificateParams::default();
        let (from, until) = validity(now, ISSUED_VALIDITY).ok_or(CredentialError::Clock)?;
        parameters.not_before = from;
        parameters.not_after = until;
        parameters.distinguished_name = DistinguishedName::new();
        parameters
            .distinguished_name
            .push(DnType::CommonName, COMMON_NAME);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let own = KeyPair::generate().map_err(library_error)?;
        let certificate = parameters.signed_by(&own, &issuer).map_err(library_error)?;
        let key = Zeroizing::new(PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.serialize_der())));
        Self::pair(vec![certificate.der().clone()], &key)
    }

    fn pair(chain: Vec<CertificateDer<'static>>, key: &PrivateKeyDer<'_>) -> Result<Self, CredentialError> {
        let key = any_supported_type(key).map_err(|_| CredentialError::UnsupportedKey)?;
        let pair = CertifiedKey::new(chain, key);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Self(Arc::new(pair)))
            }
            Err(rustls::Error::InconsistentKeys(_)) => Err(CredentialError::KeyMismatch),
            Err(_) => Err(CredentialError::BadCertificate),
        }
    }
}

/// The dates of a certificate that is valid from five minutes before `now`, until `after` has passed since `now`.
pub(crate) fn validity(now: SystemTime, after: Duration) -> Option<(OffsetDateTime, OffsetDateTime)> {
    let offset_time = |time: SystemTime| {
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        OffsetDateTime::from_unix_timestamp(i64::try_from(since_1970.as_secs()).ok()?).ok()
    };
    Some((
        offset_time(now.checked_sub(CLOCK_SKEW)?)?,
        offset_time(now.checked_add(after)?)?,
    ))
}

pub(crate) fn library_error(error: rcgen::Error) -> CredentialError {
    match error {
        rcgen::Error::CouldNotParseCertificate => CredentialError::BadCertificate,
        other => CredentialError::Library(other.to_string()),
    }
}

/// The key of a CA. rustls parses and uses it, because rcgen with ring supports only PKCS#8.
struct CaKey {
    signer: Box<dyn Signer>,
    algorithm: &'static rcgen::SignatureAlgorithm,
    public: Vec<u8>,
}

/// The algorithms of the CA keys that kubeadm and Cluster API generate.
const CA_KEY_ALGORITHMS: [(SignatureScheme, &rcgen::SignatureAlgorithm); 4] = [
    (SignatureScheme::RSA_PKCS1_SHA256, &rcgen::PKCS_RSA_SHA256),
    (
        SignatureScheme::ECDSA_NISTP256_SHA256,
        &rcgen::PKCS_ECDSA_P256_SHA256,
    ),
    (
        SignatureScheme::ECDSA_NISTP384_SHA384,
        &rcgen::PKCS_ECDSA_P384_SHA384,
    ),
    (SignatureScheme::ED25519, &rcgen::PKCS_ED25519),
];

/// The algorithm with which a CA's key signs.
pub(crate) fn signing_algorithm(
    key: &dyn SigningKey,
) -> Result<(Box<dyn Signer>, &'static rcgen::SignatureAlgorithm), CredentialError> {
    CA_KEY_ALGORITHMS
        .iter()
        .find_map(|(scheme, algorithm)| Some((key.choose_scheme(&[*scheme])?, *algorithm)))
        .ok_or(CredentialError::UnsupportedKey)
}

impl CaKey {
    /// Returns the key, and the certificate in `authorities` that belongs to it.
    fn new<'a>(
        authorities: &'a [CertificateDer<'static>],
        key: &PrivateKeyDer<'_>,
    ) -> Result<(&'a CertificateDer<'static>, Self), CredentialError> {
        let key = any_supported_type(key).map_err(|_| CredentialError::UnsupportedKey)?;
        let expected = key.public_key().ok_or(CredentialError::UnsupportedKey)?;
        let (signer, algorithm) = signing_algorithm(&*key)?;
        for authority in authorities {
            let (_, parsed) =
                X509Certificate::from_der(authority).map_err(|_| CredentialError::BadCertificate)?;
            if parsed.public_key().raw == expected.as_ref() {
                let public = parsed.public_key().subject_public_key.data.to_vec();
                let key = Self {
                    signer,
                    algorithm,
                    public,
                };
                return Ok((authority, key));
            }
        }
        Err(CredentialError::KeyMismatch)
    }
}

impl PublicKeyData for CaKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        self.algorithm
    }
}

impl rcgen::SigningKey for CaKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.signer
            .sign(message)
            .map_err(|_| rcgen::Error::RemoteKeyError)
    }
}
