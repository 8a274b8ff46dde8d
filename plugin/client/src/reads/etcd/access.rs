//! Reads the CA and the client certificate for etcd from Cluster API's Secrets.

use std::time::SystemTime;

use kcp_api::Secret;
use kcp_etcd::{ClientCertificate, CredentialError, Tls, Trust};

use crate::reads::secret::Secrets;
use kcp_control_plane::snapshot::Failure;

/// The suffix of the Secret with etcd's CA. The Secret has no key if etcd is external, or if the user stores
/// the key outside the cluster.
const CA_SECRET: &str = "etcd";

/// The suffix of the Secret with the client certificate that the API servers use to connect to etcd.
const CLIENT_SECRET: &str = "apiserver-etcd-client";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

#[derive(Debug)]
pub struct Access {
    pub tls: Tls,
    /// Whether the plugin issued a client certificate with the CA key, instead of reading one.
    pub used_ca_key: bool,
}

impl Access {
    /// Reads as few Secrets as possible. It reads the Secret with the client certificate only if it cannot issue a
    /// certificate. For an external etcd, it issues none, because the cluster does not own the CA.
    pub async fn read(secrets: &Secrets<'_>, stacked: bool) -> Result<Self, Failure> {
        let ca = secrets.read(CA_SECRET).await?;
        // The key may be empty: a Secret of type kubernetes.io/tls must have one, even if the operator stores the CA key
        // outside the cluster.
        let client = if stacked && value(CA_SECRET, &ca, KEY).is_ok() {
            None
        } else {
            Some(secrets.read(CLIENT_SECRET).await?)
        };
        Self::new(&ca, client.as_ref(), SystemTime::now()).map_err(|invalid_secret| {
            secrets.unusable_failure(invalid_secret.purpose, invalid_secret.message)
        })
    }

    /// Combines the CA with the client certificate in `client`. If `client` is none, issues a certificate.
    fn new(ca: &Secret, client: Option<&Secret>, now: SystemTime) -> Result<Self, InvalidSecret> {
        let certificate = value(CA_SECRET, ca, CERTIFICATE)?;
        let trust =
            Trust::new(certificate).map_err(|error| invalid_secret(CA_SECRET, CERTIFICATE, &error))?;
        let identity = match client {
            None => ClientCertificate::issue(certificate, value(CA_SECRET, ca, KEY)?, now)
                .map_err(|error| invalid_secret(CA_SECRET, KEY, &error))?,
            Some(client) => ClientCertificate::from_pem(
                value(CLIENT_SECRET, client, CERTIFICATE)?,
                value(CLIENT_SECRET, client, KEY)?,
            )
            .map_err(|error| invalid_secret(CLIENT_SECRET, KEY, &error))?,
        };
        Ok(Self {
            tls: Tls::new(trust, identity),
            used_ca_key: client.is_none(),
        })
    }
}

/// A Secret whose content cannot be used, and why.
#[derive(Debug, PartialEq, Eq)]
struct InvalidSecret {
    purpose: &'static str,
    message: String,
}

fn value<'s>(purpose: &'static str, secret: &'s Secret, key: &str) -> Result<&'s [u8], InvalidSecret> {
    let missing = match secret.value(key) {
        Some([]) => format!("key {key} is empty"),
        Some(value) => return Ok(value),
        None => format!("the Secret has no key {key}"),
    };
    Err(InvalidSecret {
        purpose,
        message: missing,
    })
}

fn invalid_secret(purpose: &'static str, key: &str, error: &CredentialError) -> InvalidSecret {
    InvalidSecret {
        purpose,
        message: format!("key {key} is invalid: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use k8s_openapi::ByteString;
    use kcp_api::Secret;
    use serde_json::json;

    use super::{Access, Secrets};
    use crate::Connection;

    const CERTIFICATE: &[u8] = include_bytes!("../../../../etcd/tests/keys/rsa-pkcs1.crt");
    const KEY: &[u8] = include_bytes!("../../../../etcd/tests/keys/rsa-pkcs1.key");
    const ANOTHER_KEY: &[u8] = include_bytes!("../../../../etcd/tests/keys/p256-sec1.key");

    fn pair() -> Secret {
        [("tls.crt", CERTIFICATE), ("tls.key", KEY)].into()
    }

    #[test]
    fn a_certificate_is_issued_where_the_key_is_there() {
        let access = Access::new(&pair(), None, SystemTime::now()).expect("access");
        assert!(access.used_ca_key);
        let without_key = [("tls.crt", CERTIFICATE)].into();
        let access = Access::new(&without_key, Some(&pair()), SystemTime::now()).expect("access");
        assert!(!access.used_ca_key);
    }

    #[tokio::test]
    async fn an_empty_key_is_none() {
        let connection = Connection::canned(|_, path| {
            let data = |key: &[u8]| json!({"tls.crt": ByteString(CERTIFICATE.to_vec()), "tls.key": ByteString(key.to_vec())});
            let data = if path.ends_with("/c1-etcd") {
                data(b"")
            } else {
                data(KEY)
            };
            (200, json!({"metadata": {"name": "any"}, "data": data}))
        });
        let secrets = Secrets {
            management: &connection,
            namespace: "d",
            cluster: "c1",
            end: Instant::now() + Duration::from_secs(10),
        };
        let access = Access::read(&secrets, true).await.expect("access");
        assert!(!access.used_ca_key);
    }

    #[test]
    fn says_which_key_of_which_secret_cannot_be_used() {
        let without_key: Secret = [("tls.crt", CERTIFICATE)].into();
        let of_another: Secret = [("tls.crt", CERTIFICATE), ("tls.key", ANOTHER_KEY)].into();
        let garbage: Secret = [("tls.crt", &b"sesame"[..]), ("tls.key", KEY)].into();
        let empty: Secret = [("tls.crt", CERTIFICATE), ("tls.key", &b""[..])].into();
        let cases: [(&Secret, Option<&Secret>, &str, &str); 7] = [
            (&[].into(), None, "etcd", "the Secret has no key tls.crt"),
            (&empty, None, "etcd", "key tls.key is empty"),
            (&without_key, None, "etcd", "the Secret has no key tls.key"),
            (
                &garbage,
                None,
                "etcd",
                "key tls.crt is invalid: contains no PEM certificate",
            ),
            (
                &of_another,
                None,
                "etcd",
                "key tls.key is invalid: the private key does not match the certificate",
            ),
            (
                &without_key,
                Some(&without_key),
                "apiserver-etcd-client",
                "the Secret has no key tls.key",
            ),
            (
                &without_key,
                Some(&of_another),
                "apiserver-etcd-client",
                "key tls.key is invalid: the private key does not match the certificate",
            ),
        ];
        for (ca, client, purpose, message) in cases {
            let invalid_secret = Access::new(ca, client, SystemTime::now()).expect_err(message);
            assert_eq!(
                (invalid_secret.purpose, invalid_secret.message.as_str()),
                (purpose, message)
            );
        }
    }
}
