//! Creates certificate authorities and serving certificates, and reads certificates.

use std::net::IpAddr;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use thiserror::Error;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates become valid this long before the current time, because the clocks of other hosts may be behind.
pub(crate) const SKEW: Duration = Duration::hours(1);

/// Why a certificate could not be created.
#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("{name:?} is not a valid DNS name for a certificate: {error}")]
    Name { name: String, error: rcgen::Error },
    #[error("cannot create a certificate: {0}")]
    Create(#[from] rcgen::Error),
}

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Lifetime {
    /// When a certificate of this program was issued.
    pub(crate) fn issued(self) -> Timestamp {
        let skew = jiff::SignedDuration::from_secs(SKEW.whole_seconds());
        self.from.checked_add(skew).unwrap_or(self.from)
    }
}

/// The validity of a certificate in DER.
pub(crate) fn lifetime(der: &[u8]) -> Option<Lifetime> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    let time = |seconds| Timestamp::from_second(seconds).ok();
    Some(Lifetime {
        from: time(validity.not_before.timestamp())?,
        until: time(validity.not_after.timestamp())?,
    })
}

/// The serial number of a certificate in DER, in hexadecimal digits.
pub(crate) fn serial_number(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.raw_serial_as_string())
}

/// A certificate authority with its private key. No `Debug`, because it contains the key.
pub(crate) struct Authority {
    certificate: String,
    key: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key in PEM format. No `Debug`, because it contains the key.
pub(crate) struct KeyPairPem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The names for which a server is trusted.
#[derive(Clone, Copy)]
pub(crate) struct ServerNames<'n> {
    pub(crate) dns_names: &'n [String],
    pub(crate) ips: &'n [IpAddr],
}

impl Authority {
    /// Creates an authority with a new key.
    pub(crate) fn create(
        common_name: &str,
        now: OffsetDateTime,
        validity: Duration,
    ) -> Result<Self, CertificateError> {
        let mut params = dated(common_name, now, now + validity);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            certificate,
            key: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Reads an authority from PEM.
    pub(crate) fn load(certificate: &str, key: &str) -> Result<Self, CertificateError> {
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            issuer: Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?,
        })
    }

    /// The certificate and the key of the authority itself.
    pub(crate) fn into_pem(self) -> KeyPairPem {
        KeyPairPem {
            certificate: self.certificate,
            key: self.key,
        }
    }

    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a serving certificate with a new key.
    pub(crate) fn issue(
        &self,
        names: ServerNames<'_>,
        now: OffsetDateTime,
        until: OffsetDateTime,
    ) -> Result<KeyPairPem, CertificateError> {
        let mut params = dated("kcp-webhook", now, until);
        for name in names.dns_names {
            let text = name.as_str().try_into().map_err(|error| CertificateError::Name {
                name: name.clone(),
                error,
            })?;
            params.subject_alt_names.push(SanType::DnsName(text));
        }
        params
            .subject_alt_names
            .extend(names.ips.iter().copied().map(SanType::IpAddress));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(KeyPairPem {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn dated(common_name: &str, now: OffsetDateTime, until: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = now - SKEW;
    params.not_after = until;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
