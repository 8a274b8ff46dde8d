//! Reads and changes the Secrets with the CAs and the keys of service accounts, for their rotation.
//!
//! The private key of the next phase is in the Secret itself, under [`NEXT_KEY`], which Cluster API ignores. So each phase is one
//! write of one object, and no other object can be lost or left over.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kcp_api::{Machine, Object as _, Secret, kind::SECRET, names::annotation};
use kcp_control_plane::{
    certificates::Purpose,
    snapshot::ca_rotation::{RotationPhase, RotationRecord},
    verbs::ca_rotation::{KeyPairContent, RotatedSecret},
};
use kcp_etcd::{BundleEntry, CredentialError, EntryKind, generate_like, parse_bundle, public_key_of, sha256};
use serde_json::{Map, Value, json};

use crate::{Action, Connection, Error, PatchRequest, ReadLimit, Written};

const CERTIFICATES: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The key in a Secret's data with the private key that signs from the next phase on.
const NEXT_KEY: &str = "kubectl-kcp.next.key";

/// A Secret, and what it contains.
pub struct KeyPairSecret {
    pub state: RotatedSecret,
    secret: Secret,
}

/// Why a phase cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error("cannot create the content of Secret {secret}: {source}")]
    Content { secret: String, source: CredentialError },
    #[error(
        "cannot create the content of Secret {secret}: its current content is not from the previous phase"
    )]
    OtherPhase { secret: String },
    #[error(transparent)]
    Write(#[from] Error),
}

/// Reads the Secret of a Cluster that has the CA or the key of `purpose`. If the content of the Secret is invalid, its state says
/// so.
pub async fn read_key_pair(
    connection: &Connection,
    (namespace, cluster): (&str, &str),
    purpose: Purpose,
    limit: ReadLimit,
) -> Result<KeyPairSecret, Error> {
    let name = format!("{cluster}-{}", purpose.secret_suffix().unwrap_or_default());
    let resource = SECRET.api_resource("v1");
    let action = Action::new("get", &resource)
        .in_namespace(namespace)
        .with_name(&name);
    let read = connection.get::<Secret>(&resource, namespace, &name);
    let secret = connection.run_with_limit(limit, &action, read).await?;
    Ok(KeyPairSecret::new(purpose, secret))
}

impl KeyPairSecret {
    fn new(purpose: Purpose, secret: Secret) -> Self {
        let state = RotatedSecret {
            purpose,
            name: secret.metadata.name.clone().unwrap_or_default(),
            content: content(kind(purpose), &secret),
            record: RotationRecord::on(&secret.metadata),
        };
        Self { state, secret }
    }

    /// Writes the content of a phase, if the Secret has not changed since it was read. `machines` are those of the control plane.
    /// Fails, and stores nothing, if the Secret does not have the content of the previous phase, a key cannot be generated, or
    /// the server rejects the write.
    pub async fn write(
        &self,
        connection: &Connection,
        phase: RotationPhase,
        machines: &[Machine],
        field_manager: &str,
        dry_run: bool,
    ) -> Result<Written, RotationError> {
        let patch = self.patch(phase, machines, connection.now())?;
        let resource = SECRET.api_resource("v1");
        let request = PatchRequest {
            resource: &resource,
            namespace: Some(self.secret.metadata.namespace.as_deref().unwrap_or_default()),
            name: &self.state.name,
            subresource: None,
            patch: &patch,
            field_manager,
            dry_run,
        };
        match connection.patch(&request).await? {
            Written::Unknown(error) => Err(Error::outcome_unknown(connection, error).into()),
            written => Ok(written),
        }
    }

    /// The merge patch that gives the Secret the content of a phase. Other keys of the Secret stay.
    fn patch(
        &self,
        phase: RotationPhase,
        machines: &[Machine],
        now: Timestamp,
    ) -> Result<Value, RotationError> {
        let other_phase = || RotationError::OtherPhase {
            secret: self.state.name.clone(),
        };
        let invalid = |source| RotationError::Content {
            secret: self.state.name.clone(),
            source,
        };
        let value = |key: &str| self.secret.value(key).unwrap_or_default();
        let purpose = self.state.purpose;
        let entries = parse_bundle(kind(purpose), value(CERTIFICATES)).map_err(invalid)?;
        let mut data = Map::new();
        let encoded = |bytes: &[u8]| Value::from(STANDARD.encode(bytes));
        let certificates = match (phase, entries.as_slice()) {
            (RotationPhase::TrustBoth, [old]) => {
                let new = generate_like(value(KEY), kind(purpose), authority_name(purpose), now.into());
                let new = new.map_err(invalid)?;
                data.insert(NEXT_KEY.to_owned(), encoded(new.key.as_bytes()));
                format!("{}{}", old.pem, new.entry)
            }
            (RotationPhase::SignWithNew, [old, new]) => {
                data.insert(KEY.to_owned(), encoded(value(NEXT_KEY)));
                data.insert(NEXT_KEY.to_owned(), Value::Null);
                format!("{}{}", new.pem, old.pem)
            }
            (RotationPhase::TrustOnlyNew, [new, _]) => {
                data.insert(NEXT_KEY.to_owned(), Value::Null);
                new.pem.clone()
            }
            _ => return Err(other_phase()),
        };
        let record = RotationRecord {
            phase,
            since: Timestamp::from_second(now.as_second()).unwrap_or(now),
            content: sha256(certificates.as_bytes()),
            older: machines.iter().map(|machine| machine.name().to_owned()).collect(),
        };
        let record = serde_json::to_string(&record).unwrap_or_default();
        data.insert(CERTIFICATES.to_owned(), encoded(certificates.as_bytes()));
        let metadata = &self.secret.metadata;
        Ok(json!({
            "metadata": {
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
                "annotations": {annotation::CA_ROTATION: record},
            },
            "data": data,
        }))
    }
}

fn kind(purpose: Purpose) -> EntryKind {
    if purpose == Purpose::ServiceAccountKeys {
        EntryKind::PublicKey
    } else {
        EntryKind::Certificate
    }
}

/// Returns the beginning of the name of a new CA. The rest makes the name different from that of the old CA, because some TLS
/// libraries choose a CA by its name only.
const fn authority_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::EtcdCa => "etcd-ca",
        _ => "front-proxy-ca",
    }
}

fn content(kind: EntryKind, secret: &Secret) -> Result<KeyPairContent, String> {
    let value = |key: &str| match secret.value(key) {
        Some([]) => Err(format!("key {key} is empty")),
        Some(value) => Ok(value),
        None => Err(format!("the Secret has no key {key}")),
    };
    let invalid = |key: &str| {
        let key = key.to_owned();
        move |error: CredentialError| format!("key {key} is invalid: {error}")
    };
    let certificates = value(CERTIFICATES)?;
    let entries: Vec<BundleEntry> = parse_bundle(kind, certificates).map_err(invalid(CERTIFICATES))?;
    let next = match secret.value(NEXT_KEY) {
        Some(next) => Some(public_key_of(next).map_err(invalid(NEXT_KEY))?),
        None => None,
    };
    Ok(KeyPairContent {
        entries: entries.into_iter().map(|entry| entry.public_key).collect(),
        signer: public_key_of(value(KEY)?).map_err(invalid(KEY))?,
        next,
        hash: sha256(certificates),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Method;
    use jiff::Timestamp;
    use k8s_openapi::ByteString;
    use kcp_api::{Secret, decode};
    use kcp_control_plane::{certificates::Purpose, merge_patch, snapshot::ca_rotation::RotationPhase};
    use kcp_etcd::{EntryKind, generate_like};
    use serde_json::{Value, json};

    use super::{KeyPairSecret, NEXT_KEY, RotationError};
    use crate::{Connection, Written, testing::failure};

    const CERTIFICATE: &str = include_str!("../../etcd/tests/keys/p256-sec1.crt");
    const KEY: &str = include_str!("../../etcd/tests/keys/p256-sec1.key");

    fn now() -> Timestamp {
        "2026-08-21T12:00:00.7Z".parse().expect("a time")
    }

    fn encoded(text: &str) -> Value {
        serde_json::to_value(ByteString(text.as_bytes().to_vec())).expect("base64")
    }

    fn object(purpose: Purpose) -> Value {
        let (entry, key) = if purpose == Purpose::ServiceAccountKeys {
            let pair = generate_like(KEY.as_bytes(), EntryKind::PublicKey, "", now().into()).expect("a pair");
            (pair.entry, pair.key.to_string())
        } else {
            (CERTIFICATE.to_owned(), KEY.to_owned())
        };
        json!({
            "metadata": {"name": "c1-x", "namespace": "d", "uid": "u", "resourceVersion": "7", "annotations": {"mine": "a"}},
            "data": {"tls.crt": encoded(&entry), "tls.key": encoded(&key), "mine": "YQ=="},
        })
    }

    fn secret(purpose: Purpose, object: &Value) -> KeyPairSecret {
        KeyPairSecret::new(purpose, decode::<Secret>(&object.to_string()).expect("decodes"))
    }

    fn text(object: &Value, key: &str) -> String {
        let secret: Secret = decode(&object.to_string()).expect("decodes");
        String::from_utf8(secret.value(key).unwrap_or_default().to_vec()).expect("text")
    }

    #[test]
    fn the_first_entry_of_each_phase_belongs_to_its_key() {
        for purpose in [
            Purpose::EtcdCa,
            Purpose::FrontProxyCa,
            Purpose::ServiceAccountKeys,
        ] {
            let mut object = object(purpose);
            let old = secret(purpose, &object).state.content.expect("content").signer;
            let (old_entry, old_key) = (text(&object, "tls.crt"), text(&object, "tls.key"));
            let mut new = String::new();
            for phase in [
                RotationPhase::TrustBoth,
                RotationPhase::SignWithNew,
                RotationPhase::TrustOnlyNew,
            ] {
                let patch = secret(purpose, &object)
                    .patch(phase, &[], now())
                    .expect("a patch");
                assert_eq!(patch.pointer("/metadata/uid"), Some(&json!("u")));
                assert_eq!(patch.pointer("/metadata/resourceVersion"), Some(&json!("7")));
                merge_patch::apply(&mut object, &patch);
                // What others have written stays.
                assert_eq!(object.pointer("/data/mine"), Some(&json!("YQ==")));
                assert_eq!(object.pointer("/metadata/annotations/mine"), Some(&json!("a")));
                let state = secret(purpose, &object).state;
                let content = state.content.expect("content");
                let record = state.record.expect("a record");
                assert_eq!(
                    (record.phase, record.since.to_string()),
                    (phase, "2026-08-21T12:00:00Z".to_owned())
                );
                assert_eq!(record.content, content.hash);
                assert_eq!(content.entries.first(), Some(&content.signer), "{phase:?}");
                if phase == RotationPhase::TrustBoth {
                    new = content.next.clone().expect("a key");
                    assert!(text(&object, "tls.crt").starts_with(&old_entry));
                    assert_eq!(text(&object, "tls.key"), old_key);
                }
                let expected = match phase {
                    RotationPhase::TrustBoth => (vec![old.clone(), new.clone()], Some(new.clone())),
                    RotationPhase::SignWithNew => (vec![new.clone(), old.clone()], None),
                    RotationPhase::TrustOnlyNew => (vec![new.clone()], None),
                };
                assert_eq!((content.entries, content.next), expected, "{phase:?}");
            }
            assert_ne!(old, new);
            assert_eq!(text(&object, NEXT_KEY), "");
            let again = secret(purpose, &object).patch(RotationPhase::SignWithNew, &[], now());
            assert!(matches!(again, Err(RotationError::OtherPhase { .. })));
        }
    }

    #[test]
    fn says_which_key_cannot_be_used() {
        for (key, value, expected) in [
            ("tls.crt", Value::Null, "the Secret has no key tls.crt"),
            ("tls.key", json!(""), "key tls.key is empty"),
            (
                "tls.key",
                encoded("sesame"),
                "key tls.key is invalid: contains no PEM private key",
            ),
            (
                "tls.crt",
                encoded("sesame"),
                "key tls.crt is invalid: contains no PEM certificate",
            ),
            (
                NEXT_KEY,
                encoded("sesame"),
                "key kubectl-kcp.next.key is invalid: contains no PEM private key",
            ),
        ] {
            let mut object = object(Purpose::EtcdCa);
            merge_patch::apply(&mut object, &json!({"data": {key: value}}));
            let content = secret(Purpose::EtcdCa, &object).state.content;
            assert_eq!(content, Err(expected.to_owned()));
        }
    }

    #[tokio::test]
    async fn a_secret_that_has_changed_is_not_written() {
        for (code, expected) in [(200, true), (409, false)] {
            let paths = Arc::new(Mutex::new(Vec::new()));
            let seen = paths.clone();
            let connection = Connection::canned(move |method, path| {
                assert_eq!(*method, Method::PATCH);
                seen.lock().expect("a lock").push(path.to_owned());
                if code == 200 {
                    (200, json!({}))
                } else {
                    failure(code, "Conflict", "no")
                }
            });
            let secret = secret(Purpose::EtcdCa, &object(Purpose::EtcdCa));
            let written = secret.write(&connection, RotationPhase::TrustBoth, &[], "kubectl-kcp", false);
            let written = written.await.expect("an answer");
            assert_eq!(matches!(written, Written::Stored), expected);
            assert_eq!(
                *paths.lock().expect("a lock"),
                ["/api/v1/namespaces/d/secrets/c1-x"]
            );
        }
    }
}
