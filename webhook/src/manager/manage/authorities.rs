//! The Secret of the manager: its CAs with their keys, and how far the replacement of a CA has come.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use thiserror::Error;
use time::OffsetDateTime;

use super::decision;
use crate::manager::authority::{Authority, CertificateError, KeyPairPem, Lifetime, lifetime};

/// The validity of a CA. The manager replaces a CA after two thirds of its validity, so that every certificate that the CA has
/// signed expires before the CA.
pub(crate) const CA_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The validity of a serving certificate: cert-manager's default of 90 days.
pub(crate) const CERTIFICATE_VALIDITY: Duration = Duration::from_secs(90 * 24 * 3600);

/// If the Secret has this annotation, with any value, the manager replaces the CA now and removes the annotation.
const ROTATE: &str = "kubectl-kcp.dev/rotate";
const NEXT_TRUSTED_SINCE: &str = "kubectl-kcp.dev/next-ca-trusted-since";
const SIGNING_SINCE: &str = "kubectl-kcp.dev/ca-signs-since";

const SIGNING: (&str, &str) = ("ca.crt", "ca.key");
const NEXT: (&str, &str) = ("next-ca.crt", "next-ca.key");
const RETIRED: &str = "retired-ca.crt";

/// Why the content of a Secret cannot be used. Never contains the content.
#[derive(Debug, Error)]
pub(crate) enum SecretError {
    #[error("key {key} of the Secret is not a certificate in PEM format; correct it, or delete the Secret")]
    NoCertificate { key: &'static str },
    #[error("the Secret has {present} but not {missing}; restore {missing}, or delete the Secret")]
    Incomplete {
        present: &'static str,
        missing: &'static str,
    },
    #[error("annotation {0} of the Secret is not a time; remove the annotation")]
    NoTime(&'static str),
}

/// A CA certificate in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaCertificate {
    pub(crate) pem: String,
    pub(crate) lifetime: Lifetime,
}

/// A CA with its private key. No `Debug`, because it contains the key.
#[derive(Clone)]
pub(crate) struct KeyedCa {
    pub(crate) certificate: CaCertificate,
    key: String,
}

/// The content of the Secret.
#[derive(Clone, Default)]
pub(crate) struct Authorities {
    pub(crate) signing: Option<KeyedCa>,
    pub(crate) next: Option<KeyedCa>,
    pub(crate) next_trusted_since: Option<Timestamp>,
    pub(crate) retired: Vec<CaCertificate>,
    pub(crate) signing_since: Option<Timestamp>,
    pub(crate) rotation_requested: bool,
}

impl KeyedCa {
    /// Creates a CA that is valid from now on.
    pub(crate) fn create(now: Timestamp, validity: Duration) -> Result<Self, CertificateError> {
        let from = offset_time(now);
        let validity = time::Duration::try_from(validity).unwrap_or(time::Duration::MAX);
        // Go and rustls find the issuer by its name first, so each CA has a name of its own.
        let name = format!("kcp-webhook CA {}", now.strftime("%Y-%m-%dT%H:%M:%S%.fZ"));
        let KeyPairPem { certificate, key } = Authority::create(&name, from, validity)?.into_pem();
        let lifetime = Lifetime {
            from: now,
            until: now + jiff::SignedDuration::from_secs(validity.whole_seconds()),
        };
        Ok(Self {
            certificate: CaCertificate {
                pem: certificate,
                lifetime,
            },
            key,
        })
    }

    pub(crate) fn authority(&self) -> Result<Authority, CertificateError> {
        Authority::load(&self.certificate.pem, &self.key)
    }
}

impl Authorities {
    pub(crate) fn read(secret: &Secret) -> Result<Self, SecretError> {
        let annotations = secret.metadata.annotations.clone().unwrap_or_default();
        let time = |name: &'static str| {
            let text = annotations.get(name);
            text.map(|text| text.parse().map_err(|_| SecretError::NoTime(name)))
                .transpose()
        };
        let retired = text(secret, RETIRED).unwrap_or_default();
        Ok(Self {
            signing: keyed(secret, SIGNING)?,
            next: keyed(secret, NEXT)?,
            next_trusted_since: time(NEXT_TRUSTED_SINCE)?,
            retired: certificates(&retired).ok_or(SecretError::NoCertificate { key: RETIRED })?,
            signing_since: time(SIGNING_SINCE)?,
            rotation_requested: annotations.contains_key(ROTATE),
        })
    }

    /// Writes this content into a Secret, and leaves its other keys and annotations as they are.
    pub(crate) fn write(&self, secret: &mut Secret) {
        let data = secret.data.get_or_insert_default();
        let mut set = |key: &str, value: Option<&str>| match value {
            Some(value) => _ = data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec())),
            None => _ = data.remove(key),
        };
        for ((certificate, key), ca) in [(SIGNING, &self.signing), (NEXT, &self.next)] {
            set(certificate, ca.as_ref().map(|ca| ca.certificate.pem.as_str()));
            set(key, ca.as_ref().map(|ca| ca.key.as_str()));
        }
        let retired: String = self.retired.iter().map(|ca| ca.pem.as_str()).collect();
        set(
            RETIRED,
            Some(retired.as_str()).filter(|retired| !retired.is_empty()),
        );
        let annotations: &mut BTreeMap<_, _> = secret.metadata.annotations.get_or_insert_default();
        for (name, time) in [
            (NEXT_TRUSTED_SINCE, self.next_trusted_since),
            (SIGNING_SINCE, self.signing_since),
        ] {
            match time {
                Some(time) => _ = annotations.insert(name.to_owned(), time.to_string()),
                None => _ = annotations.remove(name),
            }
        }
        if !self.rotation_requested {
            annotations.remove(ROTATE);
        }
    }

    /// All CA certificates in one PEM bundle. The order depends on the certificates only, so that the bundle stays the same
    /// when the next CA begins to sign.
    pub(crate) fn bundle(&self) -> String {
        let keyed = [&self.signing, &self.next].into_iter().flatten();
        let mut all: Vec<&CaCertificate> = keyed.map(|ca| &ca.certificate).chain(&self.retired).collect();
        all.sort_by(|a, b| (a.lifetime.from, &a.pem).cmp(&(b.lifetime.from, &b.pem)));
        all.dedup();
        all.iter().map(|ca| ca.pem.as_str()).collect()
    }

    /// What a decision depends on.
    pub(crate) fn observed(&self) -> decision::Authorities {
        let lifetime = |ca: &Option<KeyedCa>| ca.as_ref().map(|ca| ca.certificate.lifetime);
        decision::Authorities {
            signing: lifetime(&self.signing),
            next: lifetime(&self.next),
            next_trusted_since: self.next_trusted_since,
            retired: self.retired.iter().map(|ca| ca.lifetime).collect(),
            signing_since: self.signing_since,
            rotation_requested: self.rotation_requested,
        }
    }

    pub(crate) fn with_next(mut self, next: KeyedCa) -> Self {
        self.next = Some(next);
        self.next_trusted_since = None;
        self.rotation_requested = false;
        self
    }

    /// Lets the next CA sign, and retires the CA that signed before.
    pub(crate) fn promote(mut self, now: Timestamp) -> Self {
        if let Some(next) = self.next.take() {
            self.retired
                .extend(self.signing.replace(next).map(|ca| ca.certificate));
            self.retired.retain(|ca| ca.lifetime.until > now);
        }
        self.next_trusted_since = None;
        self.signing_since = Some(now);
        self
    }
}

fn keyed(
    secret: &Secret,
    (certificate_key, key_key): (&'static str, &'static str),
) -> Result<Option<KeyedCa>, SecretError> {
    let incomplete = |present, missing| Err(SecretError::Incomplete { present, missing });
    match (text(secret, certificate_key), text(secret, key_key)) {
        (None, None) => Ok(None),
        (Some(_), None) => incomplete(certificate_key, key_key),
        (None, Some(_)) => incomplete(key_key, certificate_key),
        (Some(pem), Some(key)) => {
            let certificate = certificates(&pem).and_then(|all| all.into_iter().next());
            let certificate = certificate.ok_or(SecretError::NoCertificate { key: certificate_key })?;
            Ok(Some(KeyedCa { certificate, key }))
        }
    }
}

/// The value of a key. `None` if it is absent or empty.
fn text(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    let text = String::from_utf8_lossy(&value.0).into_owned();
    (!text.trim().is_empty()).then_some(text)
}

/// The certificates of a PEM bundle. `None` if one of them cannot be parsed.
pub(crate) fn certificates(bundle: &str) -> Option<Vec<CaCertificate>> {
    CertificateDer::pem_slice_iter(bundle.as_bytes())
        .map(|der| {
            let der = der.ok()?;
            let lifetime = lifetime(&der)?;
            let pem = encode(&der);
            Some(CaCertificate { pem, lifetime })
        })
        .collect()
}

/// A certificate in PEM format, as RFC 7468 defines it: lines of 64 characters.
fn encode(der: &[u8]) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem + "-----END CERTIFICATE-----\n"
}

pub(crate) fn offset_time(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn now() -> Timestamp {
        "2026-12-01T00:00:00Z".parse().unwrap()
    }

    fn ca(hours: i64) -> KeyedCa {
        KeyedCa::create(now() + SignedDuration::from_hours(hours), CA_VALIDITY).unwrap()
    }

    fn read_back(authorities: &Authorities, secret: &mut Secret) -> Authorities {
        authorities.write(secret);
        Authorities::read(secret).unwrap()
    }

    #[test]
    fn the_secret_has_the_whole_state() {
        let first = Authorities {
            signing: Some(ca(0)),
            rotation_requested: true,
            ..Authorities::default()
        };
        let mut secret = Secret::default();
        secret.metadata.annotations = Some(
            [
                (ROTATE.to_owned(), String::new()),
                ("team".to_owned(), "edge".to_owned()),
            ]
            .into(),
        );
        secret.data = Some([("note".to_owned(), ByteString(b"kept".to_vec()))].into());
        let second = read_back(&first, &mut secret);
        assert!(second.observed().rotation_requested);

        let trusted = Authorities {
            next_trusted_since: Some(now()),
            ..second.with_next(ca(1))
        };
        let bundle = trusted.bundle();
        assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
        let third = read_back(&trusted, &mut secret);
        assert_eq!(third.observed().next_trusted_since, Some(now()));
        assert!(!secret.metadata.annotations.as_ref().unwrap().contains_key(ROTATE));

        let promoted = read_back(&third.promote(now()), &mut secret);
        assert_eq!(promoted.bundle(), bundle, "the caBundles stay the same");
        let observed = promoted.observed();
        assert_eq!((observed.next, observed.next_trusted_since), (None, None));
        assert_eq!((observed.retired.len(), observed.signing_since), (1, Some(now())));

        let current = Authorities {
            retired: Vec::new(),
            ..promoted
        };
        assert_eq!(
            read_back(&current, &mut secret).bundle().matches("BEGIN").count(),
            1
        );
        let data = secret.data.unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), ["ca.crt", "ca.key", "note"]);
        assert!(secret.metadata.annotations.unwrap().contains_key("team"));
    }

    #[test]
    fn a_broken_secret_is_an_error_without_its_content() {
        let good = {
            let mut secret = Secret::default();
            Authorities {
                signing: Some(ca(0)),
                ..Authorities::default()
            }
            .write(&mut secret);
            secret.data.unwrap()
        };
        for (key, value, expected) in [
            (
                "ca.crt",
                Some("secret text"),
                "key ca.crt of the Secret is not a certificate in PEM format; correct it, or delete the Secret",
            ),
            (
                "ca.key",
                None,
                "the Secret has ca.crt but not ca.key; restore ca.key, or delete the Secret",
            ),
            (
                "ca.crt",
                None,
                "the Secret has ca.key but not ca.crt; restore ca.crt, or delete the Secret",
            ),
        ] {
            let mut data = good.clone();
            match value {
                Some(value) => _ = data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec())),
                None => _ = data.remove(key),
            }
            let secret = Secret {
                data: Some(data),
                ..Secret::default()
            };
            let error = Authorities::read(&secret).err().unwrap().to_string();
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn certificates_are_written_as_they_were_read() {
        let pem = ca(0).certificate.pem;
        let normal = pem.replace("\r\n", "\n");
        assert_eq!(certificates(&pem).unwrap()[0].pem, normal);
    }
}
