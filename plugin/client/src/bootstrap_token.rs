//! Bootstrap tokens: Secrets with which a host joins a cluster, as `kubeadm token create` writes them.
//!
//! The format is that of Kubernetes' bootstrap token documentation; the groups are kubeadm's.

use std::fmt;

use jiff::{Timestamp, Unit};
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kcp_api::kind::SECRET;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use serde_json::json;

use crate::{Connection, CreateRequest, CreateResult, DeleteRequest, Error, Token, Written};

/// The namespace of bootstrap tokens.
const NAMESPACE: &str = "kube-system";

const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

const NAME_PREFIX: &str = "bootstrap-token-";

/// The group of joining hosts. kubeadm grants it the permissions that a join needs.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// The number of characters before the dot of a token.
const ID_LENGTH: usize = 6;
/// The number of characters after the dot of a token.
const SECRET_LENGTH: usize = 16;

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// How many ids to try, if another token has the id already.
const ATTEMPTS: usize = 3;

/// A bootstrap token. Its `Debug` output contains the id only.
pub struct BootstrapToken {
    id: String,
    token: Token,
}

impl BootstrapToken {
    /// Generates a random token. `None` if the operating system provides no randomness.
    fn generate() -> Option<Self> {
        let random = SystemRandom::new();
        let (id, secret) = (
            characters(&random, ID_LENGTH)?,
            characters(&random, SECRET_LENGTH)?,
        );
        let token = format!("{id}.{secret}").into();
        Some(Self { id, token })
    }

    /// A known token, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn known(id: &str, secret: &str) -> Self {
        Self {
            id: id.to_owned(),
            token: format!("{id}.{secret}").into(),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    fn secret_name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.id)
    }

    /// The command with which a person revokes the token.
    pub fn revoke_command(&self) -> String {
        format!("kubectl -n {NAMESPACE} delete secret {}", self.secret_name())
    }

    /// The whole token. Use it only where the joining host reads it.
    pub fn expose(&self) -> &str {
        self.token.expose()
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({}.…)", self.id)
    }
}

/// Random characters of [`ALPHABET`], each with the same probability.
fn characters(random: &SystemRandom, count: usize) -> Option<String> {
    // Drop bytes from `limit` on: the remainder of their division would prefer some characters.
    let limit = u8::try_from(256 / ALPHABET.len() * ALPHABET.len()).ok()?;
    let mut text = String::new();
    while text.len() < count {
        let mut bytes = [0; 32];
        random.fill(&mut bytes).ok()?;
        let usable = bytes.iter().filter(|byte| **byte < limit);
        let characters = usable.filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()));
        text.extend(characters.map(|byte| char::from(*byte)).take(count - text.len()));
    }
    Some(text)
}

/// Whether the name is that of a bootstrap token's Secret.
pub fn is_token_name(name: &str) -> bool {
    name.strip_prefix(NAME_PREFIX)
        .is_some_and(|id| id.len() == ID_LENGTH && id.bytes().all(|byte| ALPHABET.contains(&byte)))
}

/// A Secret in the namespace of bootstrap tokens. Its secret part is not even decoded from base64.
#[derive(Deserialize)]
pub(crate) struct TokenSecret {
    metadata: ObjectMeta,
    #[serde(default, rename = "type")]
    type_: String,
    #[serde(default)]
    data: TokenData,
}

#[derive(Default, Deserialize)]
struct TokenData {
    expiration: Option<ByteString>,
}

impl TokenSecret {
    /// When the token expires. `None` if it never does, or if the time cannot be parsed.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        let text = &self.data.expiration.as_ref()?.0;
        str::from_utf8(text).ok()?.parse().ok()
    }
}

/// Creates a bootstrap token that expires at `expires`.
pub async fn create_token(
    connection: &Connection,
    expires: Timestamp,
    description: &str,
    field_manager: &str,
) -> Result<BootstrapToken, Error> {
    let resource = SECRET.api_resource("v1");
    for _ in 0..ATTEMPTS {
        let Some(token) = BootstrapToken::generate() else {
            return Err(Error::Configuration {
                cause: "the operating system provides no random numbers for a bootstrap token".to_owned(),
            });
        };
        let (id, secret) = token.expose().split_once('.').unwrap_or_default();
        // kube-controller-manager's token cleaner reads RFC 3339 without a fraction of a second.
        let expiration = expires.round(Unit::Second).unwrap_or(expires);
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": token.secret_name(), "namespace": NAMESPACE},
            "type": SECRET_TYPE,
            "stringData": {
                "token-id": id,
                "token-secret": secret,
                "expiration": expiration.to_string(),
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": GROUP,
                "description": description,
            },
        });
        let create = CreateRequest {
            resource: &resource,
            namespace: Some(NAMESPACE),
            object: &object,
            field_manager,
            dry_run: false,
        };
        match connection.create_or_find(&create).await? {
            CreateResult::Created => return Ok(token),
            CreateResult::AlreadyExists => {}
            CreateResult::Unknown(source) => {
                return Err(Error::outcome_unknown(connection, source));
            }
        }
    }
    Err(Error::Contended {
        goal: "create a bootstrap token".to_owned(),
        attempts: ATTEMPTS,
    })
}

/// Reads the Secret of a bootstrap token. `None` if it does not exist, or is no bootstrap token.
pub(crate) async fn read_secret(connection: &Connection, name: &str) -> Result<Option<TokenSecret>, Error> {
    let secret: TokenSecret = match connection.get(&SECRET.api_resource("v1"), NAMESPACE, name).await {
        Err(Error::NotFound { .. }) => return Ok(None),
        read => read?,
    };
    Ok(Some(secret).filter(|secret| secret.type_ == SECRET_TYPE))
}

/// Deletes a bootstrap token, if the cluster has it.
pub async fn revoke_token(connection: &Connection, token: &BootstrapToken) -> Result<(), Error> {
    let name = token.secret_name();
    let Some(secret) = read_secret(connection, &name).await? else {
        return Ok(());
    };
    let delete = DeleteRequest {
        resource: &SECRET.api_resource("v1"),
        namespace: Some(NAMESPACE),
        name: &name,
        uid: secret.metadata.uid.as_deref().unwrap_or_default(),
        resource_version: None,
        dry_run: false,
    };
    match connection.delete(&delete).await {
        // `Changed`: the token was deleted, and another Secret has its name.
        Ok(Written::Stored | Written::Changed) | Err(Error::NotFound { .. }) => Ok(()),
        Ok(Written::Unknown(source)) => Err(Error::outcome_unknown(connection, source)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::Method;
    use serde_json::Value;

    use super::*;
    use crate::testing::failure;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_token_is_random_and_hidden() {
        let tokens: Vec<BootstrapToken> = (0..200).map(|_| BootstrapToken::generate().unwrap()).collect();
        let mut seen = BTreeSet::new();
        for token in &tokens {
            let (id, secret) = token.expose().split_once('.').unwrap();
            assert!(is_token_name(&token.secret_name()) && id == token.id());
            assert!(secret.len() == SECRET_LENGTH && secret.bytes().all(|byte| ALPHABET.contains(&byte)));
            assert!(seen.insert(token.expose()), "twice");
            assert!(!format!("{token:?}").contains(secret));
        }
        let used: BTreeSet<u8> = tokens.iter().flat_map(|token| token.expose().bytes()).collect();
        assert_eq!(used.len(), ALPHABET.len() + 1, "all characters occur");
    }

    #[test]
    fn another_id_is_tried_if_the_first_is_taken() {
        let expires = "2026-11-25T12:00:00.5Z".parse().unwrap();
        for (taken, is_created) in [(0, true), (ATTEMPTS - 1, true), (ATTEMPTS, false)] {
            let created = run(async {
                let attempts = std::sync::atomic::AtomicUsize::new(0);
                let connection = Connection::canned(move |method, path| {
                    assert_eq!(
                        (method, path),
                        (&Method::POST, "/api/v1/namespaces/kube-system/secrets")
                    );
                    if attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < taken {
                        return failure(409, "AlreadyExists", "");
                    }
                    (201, json!({}))
                });
                create_token(&connection, expires, "worker-1", "kubectl-kcp").await
            });
            assert_eq!(created.is_ok(), is_created, "{taken}");
        }
    }

    /// Runs against a cluster that answers the read of a token with this.
    fn against<T>(read: (u16, Value), run_with: impl AsyncFnOnce(&Connection) -> T) -> (T, bool) {
        let deletes = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = deletes.clone();
        let value = run(async {
            let connection = Connection::canned(move |method, path| {
                assert_eq!(
                    path,
                    "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef"
                );
                if *method == Method::GET {
                    read.clone()
                } else {
                    seen.store(true, std::sync::atomic::Ordering::Relaxed);
                    (200, json!({}))
                }
            });
            run_with(&connection).await
        });
        (value, deletes.load(std::sync::atomic::Ordering::Relaxed))
    }

    #[test]
    fn only_a_bootstrap_token_is_read_and_revoked() {
        let secret = |type_: &str, data: Value| {
            let metadata = json!({"name": "bootstrap-token-abcdef", "uid": "u"});
            (200, json!({"metadata": metadata, "type": type_, "data": data}))
        };
        let mut missing = failure(404, "NotFound", "not found");
        missing.1["details"] = json!({"name": "bootstrap-token-abcdef"});
        // base64 of 2026-11-25T12:00:00Z, and of x.
        let expiring = json!({"expiration": "MjAyNi0xMS0yNVQxMjowMDowMFo="});
        let expires: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        for (read, expected) in [
            (secret(SECRET_TYPE, expiring), Some(Some(expires))),
            (secret(SECRET_TYPE, json!({"expiration": "eA=="})), Some(None)),
            (secret(SECRET_TYPE, json!({})), Some(None)),
            (secret("Opaque", json!({})), None),
            (missing, None),
        ] {
            let (found, _) = against(read.clone(), async |connection| {
                let secret = read_secret(connection, "bootstrap-token-abcdef").await.unwrap();
                secret.map(|secret| secret.expires())
            });
            assert_eq!(found, expected);
            let ((), is_deleted) = against(read, async |connection| {
                let token = BootstrapToken::known("abcdef", "secret");
                revoke_token(connection, &token).await.unwrap();
            });
            assert_eq!(is_deleted, expected.is_some());
        }
    }
}
