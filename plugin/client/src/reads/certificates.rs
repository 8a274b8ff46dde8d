//! Reads the certificates of a control plane. Decodes only the certificates in Secrets, never the private keys.

use futures_util::future::join_all;
use jiff::Timestamp;
use kcp_api::{
    CertificateSecret, Object as _, PartialObjectMetadata,
    kind::{KUBEADM_CONTROL_PLANE, MACHINE, SECRET},
};
use kcp_control_plane::{
    certificates::{Certificate, Certificates, Purpose, Validity, secret_purposes},
    checks::certificates::renewal_obstacle,
    snapshot::{Snapshot, ca_rotation::RotationRecord},
};
use kcp_etcd::sha256;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::{Deserialize, de::IgnoredAny};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{
    Action, Error, ReadLimit,
    reader::Reader,
    reads::failure::{object_name, one_line},
    workload::certificate_end,
};

/// Reads the certificates in the Secrets of a control plane, and adds those that its known Machines report.
pub async fn read_certificates(reader: &Reader<'_>, observed: &Snapshot, limit: ReadLimit) -> Certificates {
    let control_plane = &observed.control_plane;
    let namespace = control_plane.namespace();
    let itself = object_name(KUBEADM_CONTROL_PLANE.kind, Some(control_plane.name()));
    if let Some(failure) = observed
        .failed_reads
        .iter()
        .find(|unread| unread.object == itself)
    {
        // The spec says which certificates there are.
        return Certificates {
            namespace: namespace.to_owned(),
            name: control_plane.name().to_owned(),
            certificates: vec![Certificate::of_unread_machines(control_plane, failure)],
            obstacle: renewal_obstacle(observed),
        };
    }
    let mut certificates = match control_plane.cluster() {
        Some(cluster) => {
            let purposes = secret_purposes(control_plane).into_iter();
            let names = purposes.filter_map(|purpose| Some((purpose, purpose.secret_suffix()?)));
            let reads = names.map(async |(purpose, suffix)| {
                let secret = format!("{cluster}-{suffix}");
                read(reader, namespace, purpose, &secret, limit).await
            });
            join_all(reads).await
        }
        None => Vec::new(),
    };
    for certificate in &mut certificates {
        let rotation = certificate.rotation.as_ref();
        if let Some(progress) = rotation.and_then(|record| record.progress(&observed.machines)) {
            certificate.renewal = format!("{}; rotation: {progress}", certificate.renewal);
        }
    }
    let machines = observed.machines.iter();
    certificates.extend(machines.map(|machine| Certificate::of_machine(control_plane, machine)));
    let unread = observed
        .failed_reads
        .iter()
        .filter(|unread| unread.object == MACHINE.kind);
    certificates.extend(unread.map(|failure| Certificate::of_unread_machines(control_plane, failure)));
    Certificates {
        namespace: namespace.to_owned(),
        name: control_plane.name().to_owned(),
        certificates,
        obstacle: renewal_obstacle(observed),
    }
}

/// Reads the CA of the API server of a Cluster, in PEM format. Empty if the Secret has no certificate.
pub async fn read_authority(
    reader: &Reader<'_>,
    namespace: &str,
    cluster: &str,
    limit: ReadLimit,
) -> Result<Vec<u8>, Error> {
    let suffix = Purpose::ClusterCa.secret_suffix().unwrap_or_default();
    let name = format!("{cluster}-{suffix}");
    let resource = SECRET.api_resource("v1");
    let action = Action::new("get", &resource)
        .in_namespace(namespace)
        .with_name(&name);
    let connection = reader.connection;
    let read = connection.get::<CertificateSecret>(&resource, namespace, &name);
    let secret = connection.run_with_limit(limit, &action, read).await?;
    Ok(secret.certificate().unwrap_or_default().to_vec())
}

/// The certificate in a Secret, and whether the Secret has an owner.
pub(super) struct SecretCertificate {
    pub(super) certificate: Certificate,
    pub(super) has_owner: bool,
}

/// Reads the certificate in a Secret.
pub(super) async fn read_secret(
    reader: &Reader<'_>,
    namespace: &str,
    purpose: Purpose,
    secret: &str,
    limit: ReadLimit,
) -> Result<SecretCertificate, Error> {
    let resource = SECRET.api_resource("v1");
    let action = Action::new("get", &resource)
        .in_namespace(namespace)
        .with_name(secret);
    let connection = reader.connection;
    let (metadata, validity, ownership, rotation) = if purpose == Purpose::ServiceAccountKeys {
        // A key pair without a certificate does not expire, so only its metadata matters.
        let read = connection.get_metadata::<PartialObjectMetadata>(&resource, namespace, secret);
        let read = connection.run_with_limit(limit, &action, read).await?;
        let rotation = RotationRecord::on(&read.metadata);
        (read.metadata, Validity::NoExpiry, None, rotation)
    } else {
        let read = connection.get::<CertificateSecret>(&resource, namespace, secret);
        let read = connection.run_with_limit(limit, &action, read).await?;
        let (validity, ownership) = (validity(purpose, &read), read.ownership());
        // The record of an unfinished rotation always counts. That of a complete rotation counts only if no other client has
        // changed the certificates since.
        let content = sha256(read.certificate().unwrap_or_default());
        let rotation = RotationRecord::on(&read.metadata)
            .filter(|record| record.content == content || record.phase.next().is_some());
        (read.metadata, validity, Some(ownership), rotation)
    };
    Ok(SecretCertificate {
        certificate: Certificate {
            rotation,
            ..Certificate::of_secret(purpose, secret, validity, ownership)
        },
        has_owner: metadata.owner_references.is_some_and(|owners| !owners.is_empty()),
    })
}

/// Reads the certificate in a Secret, which may not exist.
async fn read(
    reader: &Reader<'_>,
    namespace: &str,
    purpose: Purpose,
    secret: &str,
    limit: ReadLimit,
) -> Certificate {
    let validity = match read_secret(reader, namespace, purpose, secret, limit).await {
        Ok(read) => return read.certificate,
        Err(Error::NotFound { .. }) => Validity::Missing {
            why: "the Secret does not exist".to_owned(),
        },
        Err(error) => Validity::Unread {
            why: one_line(&error.to_string()),
        },
    };
    Certificate::of_secret(purpose, secret, validity, None)
}

fn validity(purpose: Purpose, secret: &CertificateSecret) -> Validity {
    if purpose == Purpose::AdminKubeconfig {
        return match secret.kubeconfig() {
            None => missing("the Secret has no key \"value\""),
            Some(kubeconfig) => validity_of_kubeconfig(kubeconfig),
        };
    }
    match secret.certificate() {
        None => missing("the Secret has no key tls.crt"),
        Some(pem) => validity_of_bundle(pem),
    }
}

fn missing(why: &str) -> Validity {
    Validity::Missing { why: why.to_owned() }
}

fn unread(why: &str) -> Validity {
    Validity::Unread { why: why.to_owned() }
}

/// The validity of the first certificate to expire in a PEM bundle.
pub(super) fn validity_of_bundle(pem: &[u8]) -> Validity {
    match lifetimes(pem).map(|lifetimes| lifetimes.into_iter().min()) {
        Some(Some((expires, issued))) => Validity::Certificate {
            issued: Some(issued),
            expires,
        },
        Some(None) => missing("the data contains no certificate in PEM format"),
        None => unread("the certificate cannot be parsed"),
    }
}

/// When each certificate of a PEM bundle expires, and when it was issued. `None` if one of them cannot be parsed.
pub(super) fn lifetimes(pem: &[u8]) -> Option<Vec<(Timestamp, Timestamp)>> {
    CertificateDer::pem_slice_iter(pem)
        .map(|certificate| {
            let certificate = certificate.ok()?;
            let (_, certificate) = X509Certificate::from_der(&certificate).ok()?;
            let validity = certificate.validity();
            let time = |seconds| certificate_end(seconds);
            Some((
                time(validity.not_after.timestamp()),
                time(validity.not_before.timestamp()),
            ))
        })
        .collect()
}

/// A kubeconfig without the fields that may contain a private key, a token or a password.
#[derive(Deserialize)]
struct PublicKubeconfig {
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: Option<String>,
    client_certificate: Option<IgnoredAny>,
    token: Option<IgnoredAny>,
    #[serde(rename = "tokenFile")]
    token_file: Option<IgnoredAny>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
}

impl User {
    /// How the user authenticates without a client certificate in the Secret; none if the user has no credentials.
    const fn without_certificate(&self) -> Option<&'static str> {
        Some(if self.client_certificate.is_some() {
            "authenticates with a client certificate in a file outside the Secret"
        } else if self.exec.is_some() {
            "authenticates with a credential plugin (exec)"
        } else if self.token.is_some() || self.token_file.is_some() {
            "authenticates with a token"
        } else if self.auth_provider.is_some() {
            "authenticates with an auth provider"
        } else if self.username.is_some() {
            "authenticates with a user name and a password"
        } else {
            return None;
        })
    }
}

/// When the client certificate in a kubeconfig expires. `None` if the kubeconfig has no client certificate, or none that can be
/// parsed.
pub(super) fn client_certificate_expiry(kubeconfig: &[u8]) -> Option<Timestamp> {
    match validity_of_kubeconfig(kubeconfig) {
        Validity::Certificate { expires, .. } => Some(expires),
        _ => None,
    }
}

fn validity_of_kubeconfig(bytes: &[u8]) -> Validity {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let Ok(kubeconfig) = serde_saphyr::from_str::<PublicKubeconfig>(text) else {
        return unread("not a valid kubeconfig");
    };
    let users = || kubeconfig.users.iter().map(|user| &user.user);
    let Some(encoded) = users().find_map(|user| user.client_certificate_data.as_deref()) else {
        return match users().find_map(User::without_certificate) {
            Some(how) => Validity::NoCertificate {
                why: format!("the user in the kubeconfig {how}"),
            },
            None => missing("the kubeconfig has no client certificate"),
        };
    };
    match decode_base64(encoded) {
        Some(pem) => validity_of_bundle(&pem),
        None => unread("client-certificate-data is not base64"),
    }
}

fn decode_base64(encoded: &str) -> Option<Vec<u8>> {
    let bytes: k8s_openapi::ByteString =
        serde_json::from_value(serde_json::Value::from(encoded.trim())).ok()?;
    Some(bytes.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_api::names::annotation;
    use kcp_control_plane::{
        certificates::{Purpose, Validity},
        snapshot::Failure,
        testing::plan,
    };
    use serde_json::{Value, json};

    use super::{read_certificates, sha256};
    use crate::{Connection, ReadLimit, reader::Reader, testing::failure};

    /// A CA, valid from 2026-11-22 to 2036-11-19.
    const CA: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBfzCCASWgAwIBAgIUft5vnY9qFAXdlt7oBOE8zIzNVbQwCgYIKoZIzj0EAwIw\n\
FTETMBEGA1UEAwwKa3ViZXJuZXRlczAeFw0yNjExMjIxODA1NDdaFw0zNjExMTkx\n\
ODA1NDdaMBUxEzARBgNVBAMMCmt1YmVybmV0ZXMwWTATBgcqhkjOPQIBBggqhkjO\n\
PQMBBwNCAAQ3YC0+dX7PrZkflI4vDC3efTORIY+oBwg/ZFQwrtVCPcwemucDA/+n\n\
hCfaM81kFe/he6RwVecfwbDQjZ4nbhmgo1MwUTAdBgNVHQ4EFgQUYfN3Qgw9rPgi\n\
+sy0WHDs5bvBt30wHwYDVR0jBBgwFoAUYfN3Qgw9rPgi+sy0WHDs5bvBt30wDwYD\n\
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBaQKfUUTLqjl/kmyAE0ywu\n\
kvAAM7XIWVSiEy7ecvYo0gIhAP8ulBmO0H1twmfHxXIwEy0UFESAXuMl0nW9Ge9C\n\
11uI\n\
-----END CERTIFICATE-----";

    fn groups() -> Value {
        let groups = ["cluster.x-k8s.io", "controlplane.cluster.x-k8s.io"].map(|name| {
            let version = json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
            json!({"name": name, "versions": [version], "preferredVersion": version})
        });
        json!({"groups": groups})
    }

    fn base64(text: &str) -> Value {
        serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).expect("base64")
    }

    /// The state of each certificate as text.
    async fn states(answer: impl Fn(&str) -> (u16, Value) + Send + 'static) -> Vec<String> {
        let connection = Connection::canned(move |_, path| match path {
            "/apis" => (200, groups()),
            path => answer(path.rsplit('/').next().unwrap_or_default()),
        });
        let reader = Reader::discover(&connection).await.expect("served");
        let observed = plan::observed();
        let limit = ReadLimit::per_read(Duration::from_secs(5));
        let read = read_certificates(&reader, &observed, limit).await;
        let secrets = read
            .certificates
            .iter()
            .filter(|certificate| certificate.purpose != Purpose::Machine);
        secrets
            .map(|certificate| {
                let state = match &certificate.validity {
                    Validity::Certificate { issued, expires } => {
                        format!("{} to {expires}", issued.expect("the start"))
                    }
                    Validity::NoExpiry => "no expiry".to_owned(),
                    Validity::NoCertificate { why } => why.clone(),
                    Validity::Missing { why } => format!("missing: {why}"),
                    Validity::Unread { why } => format!("unread: {why}"),
                };
                format!("{} {state}", certificate.object)
            })
            .collect()
    }

    #[tokio::test]
    async fn machines_that_cannot_be_listed_are_unread() {
        let connection = Connection::canned(|_, path| match path {
            "/apis" => (200, groups()),
            _ => failure(404, "NotFound", ""),
        });
        let reader = Reader::discover(&connection).await.expect("served");
        let mut observed = plan::observed();
        observed.machines.clear();
        observed.failed_reads.push(Failure {
            object: "Machine".to_owned(),
            message: "cannot list machines: forbidden".to_owned(),
            hint: None,
            ..Failure::default()
        });
        let limit = ReadLimit::per_read(Duration::from_secs(5));
        let read = read_certificates(&reader, &observed, limit).await;
        let of_machines: Vec<_> = read
            .certificates
            .iter()
            .filter(|certificate| certificate.purpose == Purpose::Machine)
            .map(|certificate| (certificate.object.as_str(), &certificate.validity))
            .collect();
        let unread = Validity::Unread {
            why: "cannot list machines: forbidden".to_owned(),
        };
        assert_eq!(of_machines, [("Machine", &unread)]);
    }

    #[tokio::test]
    async fn certificates_are_read_and_keys_are_not() {
        let states = states(|name| {
            // The value of a key that is decoded would be an error.
            let secret = |data: Value| {
                (
                    200,
                    json!({"kind": "Secret", "metadata": {"name": name}, "data": data}),
                )
            };
            match name {
                "c1-kubeconfig" => {
                    let pem = base64(CA);
                    let kubeconfig = json!({"users": [{"name": "a", "user":
                        {"client-certificate-data": pem, "client-key-data": "%%%"}}]});
                    secret(json!({"value": base64(&kubeconfig.to_string())}))
                }
                "c1-proxy" => secret(json!({"tls.crt": base64("no PEM"), "tls.key": "%%%"})),
                "c1-sa" => secret(json!({"tls.crt": "%%%", "tls.key": "%%%"})),
                _ => secret(json!({"tls.crt": base64(CA), "tls.key": "%%%"})),
            }
        });
        let valid = "2026-11-22T18:05:47Z to 2036-11-19T18:05:47Z";
        assert_eq!(
            states.await,
            [
                format!("Secret/c1-ca {valid}"),
                format!("Secret/c1-etcd {valid}"),
                "Secret/c1-proxy missing: the data contains no certificate in PEM format".to_owned(),
                "Secret/c1-sa no expiry".to_owned(),
                format!("Secret/c1-kubeconfig {valid}"),
            ]
        );
    }

    #[tokio::test]
    async fn a_kubeconfig_without_client_certificate_says_how_it_authenticates() {
        for (user, expected) in [
            (
                json!({"token": "sesame"}),
                "the user in the kubeconfig authenticates with a token",
            ),
            (
                json!({"exec": {"command": "login"}}),
                "the user in the kubeconfig authenticates with a credential plugin (exec)",
            ),
            (
                json!({"client-certificate": "/tmp/a.crt"}),
                "the user in the kubeconfig authenticates with a client certificate in a file outside the \
                 Secret",
            ),
            (
                json!({"username": "jane", "password": "sesame"}),
                "the user in the kubeconfig authenticates with a user name and a password",
            ),
            (json!({}), "missing: the kubeconfig has no client certificate"),
        ] {
            let kubeconfig = json!({"users": [{"name": "a", "user": user}]}).to_string();
            let states = states(move |name| {
                let data = json!({"value": base64(&kubeconfig)});
                (
                    200,
                    json!({"kind": "Secret", "metadata": {"name": name}, "data": data}),
                )
            });
            let of_kubeconfig = format!("Secret/c1-kubeconfig {expected}");
            assert!(states.await.contains(&of_kubeconfig), "{expected}");
        }
    }

    #[tokio::test]
    async fn a_secret_that_may_not_be_read_does_not_hide_the_others() {
        let states = states(|name| match name {
            "c1-etcd" => {
                let (code, mut status) = failure(404, "NotFound", "no");
                status["details"] = json!({"name": "x"});
                (code, status)
            }
            "c1-ca" => (
                200,
                json!({"kind": "Secret", "metadata": {"name": name}, "data": {"tls.crt": base64(CA)}}),
            ),
            _ => failure(403, "Forbidden", "no"),
        });
        let forbidden = |name: &str| {
            format!("Secret/{name} unread: cannot get secrets \"{name}\" in namespace \"d\": forbidden")
        };
        assert_eq!(
            states.await,
            [
                "Secret/c1-ca 2026-11-22T18:05:47Z to 2036-11-19T18:05:47Z".to_owned(),
                "Secret/c1-etcd missing: the Secret does not exist".to_owned(),
                forbidden("c1-proxy"),
                forbidden("c1-sa"),
                forbidden("c1-kubeconfig"),
            ]
        );
    }

    #[tokio::test]
    async fn a_complete_rotation_is_shown_until_another_client_changes_the_secret() {
        let phase_2 = "; rotation: phase 2 of 3, sign with the new key; 0 of 3 Machines have the new content of the Secret";
        let phase_3 = "; rotation: phase 3 of 3, trust only the new key; 0 of 3 Machines have the new content of the Secret";
        let own = sha256(CA.as_bytes());
        for (phase, content, expected) in [
            ("signWithNew", own.as_str(), phase_2),
            ("signWithNew", "other", phase_2),
            ("trustOnlyNew", &own, phase_3),
            ("trustOnlyNew", "other", ""),
        ] {
            let record =
                json!({"phase": phase, "since": "2026-08-21T12:00:00Z", "content": content, "older": []});
            let annotations = json!({annotation::CA_ROTATION: record.to_string()});
            let connection = Connection::canned(move |_, path| match path {
                "/apis" => (200, groups()),
                path => {
                    let metadata = json!({"name": path, "annotations": annotations});
                    (
                        200,
                        json!({"metadata": metadata, "data": {"tls.crt": base64(CA)}}),
                    )
                }
            });
            let reader = Reader::discover(&connection).await.expect("served");
            let limit = ReadLimit::per_read(Duration::from_secs(5));
            let read = read_certificates(&reader, &plan::observed(), limit).await;
            let etcd = read
                .certificates
                .iter()
                .find(|found| found.purpose == Purpose::EtcdCa);
            let renewal = &etcd.expect("etcd").renewal;
            let shown = renewal.find("; rotation").map_or("", |start| &renewal[start..]);
            assert_eq!(shown, expected, "{renewal}");
        }
    }
}
