//! Whom to trust as a member, and as whom to come to it: from the Secrets that Cluster API and kubeadm keep.

use std::time::SystemTime;

use kcp_api::Secret;
use kcp_etcd::{ClientCertificate, CredentialError, Tls, Trust};

use crate::reads::secret::Secrets;
use kcp_control_plane::snapshot::Failure;

/// The Secret with etcd's authority. Its key is there unless etcd is external or an operator keeps it elsewhere.
const AUTHORITY: &str = "etcd";

/// The Secret with the client certificate that kubeadm gives to API servers.
const CLIENT: &str = "apiserver-etcd-client";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

#[derive(Debug)]
pub struct Access {
    pub tls: Tls,
    /// Whether the client certificate was issued with the authority's key.
    pub used_ca_key: bool,
}

impl Access {
    /// Reads no more Secrets than it takes: the client certificate's only where none can be issued. For an external etcd
    /// none is issued: its authority is not the cluster's.
    pub async fn read(secrets: &Secrets<'_>, stacked: bool) -> Result<Self, Failure> {
        let authority = secrets.read(AUTHORITY).await?;
        // An operator who keeps the key elsewhere may have emptied it: a Secret of type kubernetes.io/tls must have both.
        let client = if stacked && value(AUTHORITY, &authority, KEY).is_ok() {
            None
        } else {
            Some(secrets.read(CLIENT).await?)
        };
        Self::of(&authority, client.as_ref(), SystemTime::now())
            .map_err(|unusable| secrets.unusable(unusable.purpose, unusable.message))
    }

    /// `client` is none where a certificate is to be issued.
    fn of(authority: &Secret, client: Option<&Secret>, now: SystemTime) -> Result<Self, Unusable> {
        let certificate = value(AUTHORITY, authority, CERTIFICATE)?;
        let trust = Trust::new(certificate).map_err(|error| unusable(AUTHORITY, CERTIFICATE, &error))?;
        let identity = match client {
            None => ClientCertificate::minted(certificate, value(AUTHORITY, authority, KEY)?, now)
                .map_err(|error| unusable(AUTHORITY, KEY, &error))?,
            Some(client) => {
                ClientCertificate::given(value(CLIENT, client, CERTIFICATE)?, value(CLIENT, client, KEY)?)
                    .map_err(|error| unusable(CLIENT, KEY, &error))?
            }
        };
        Ok(Self {
            tls: Tls::new(trust, identity),
            used_ca_key: client.is_none(),
        })
    }
}

/// A Secret that cannot be used.
#[derive(Debug, PartialEq, Eq)]
struct Unusable {
    purpose: &'static str,
    message: String,
}

fn value<'s>(purpose: &'static str, secret: &'s Secret, key: &str) -> Result<&'s [u8], Unusable> {
    let missing = match secret.value(key) {
        Some([]) => format!("key {key} is empty"),
        Some(value) => return Ok(value),
        None => format!("it has no key {key}"),
    };
    Err(Unusable {
        purpose,
        message: missing,
    })
}

fn unusable(purpose: &'static str, key: &str, error: &CredentialError) -> Unusable {
    Unusable {
        purpose,
        message: format!("key {key} cannot be used: {error}"),
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
        let access = Access::of(&pair(), None, SystemTime::now()).expect("access");
        assert!(access.used_ca_key);
        let without_key = [("tls.crt", CERTIFICATE)].into();
        let access = Access::of(&without_key, Some(&pair()), SystemTime::now()).expect("access");
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
            (&[].into(), None, "etcd", "it has no key tls.crt"),
            (&empty, None, "etcd", "key tls.key is empty"),
            (&without_key, None, "etcd", "it has no key tls.key"),
            (
                &garbage,
                None,
                "etcd",
                "key tls.crt cannot be used: there is no PEM certificate in it",
            ),
            (
                &of_another,
                None,
                "etcd",
                "key tls.key cannot be used: the private key does not belong to the certificate",
            ),
            (
                &without_key,
                Some(&without_key),
                "apiserver-etcd-client",
                "it has no key tls.key",
            ),
            (
                &without_key,
                Some(&of_another),
                "apiserver-etcd-client",
                "key tls.key cannot be used: the private key does not belong to the certificate",
            ),
        ];
        for (authority, client, purpose, message) in cases {
            let unusable = Access::of(authority, client, SystemTime::now()).expect_err(message);
            assert_eq!((unusable.purpose, unusable.message.as_str()), (purpose, message));
        }
    }
}
