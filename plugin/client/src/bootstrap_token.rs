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
pub const ID_LENGTH: usize = 6;
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
    /// Generates a random token. None if the operating system provides no randomness.
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
    // Larger bytes are dropped, because the remainder of a division would prefer some characters.
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

/// Whether a text is the id of a bootstrap token.
fn is_token_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

/// The id of the token in the Secret with this name. None if the name is not that of a token.
pub fn id_of_secret(name: &str) -> Option<&str> {
    name.strip_prefix(NAME_PREFIX).filter(|id| is_token_id(id))
}

/// A bootstrap token in a cluster, without its secret part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedToken {
    pub id: String,
    /// None if the token never expires, or if its expiration cannot be parsed.
    pub expires: Option<Timestamp>,
    /// Whether hosts may use the token, and whether the cluster signs `cluster-info` with it.
    pub usages: Vec<&'static str>,
    pub groups: Vec<String>,
    pub description: String,
}

#[derive(Deserialize)]
struct TokenSecret {
    metadata: ObjectMeta,
    #[serde(default, rename = "type")]
    type_: String,
    #[serde(default)]
    data: TokenData,
}

/// The data of a token without the secret part, which is not even decoded from base64.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct TokenData {
    token_id: Option<ByteString>,
    expiration: Option<ByteString>,
    usage_bootstrap_authentication: Option<ByteString>,
    usage_bootstrap_signing: Option<ByteString>,
    auth_extra_groups: Option<ByteString>,
    description: Option<ByteString>,
}

fn text(value: Option<&ByteString>) -> String {
    value.map_or_else(String::new, |value| {
        String::from_utf8_lossy(&value.0).into_owned()
    })
}

impl ListedToken {
    fn new(secret: &TokenSecret) -> Option<Self> {
        let data = &secret.data;
        let id = text(data.token_id.as_ref());
        let usages = [
            ("authentication", &data.usage_bootstrap_authentication),
            ("signing", &data.usage_bootstrap_signing),
        ];
        let usages = usages
            .into_iter()
            .filter(|(_, value)| text(value.as_ref()) == "true");
        let groups = text(data.auth_extra_groups.as_ref());
        let groups = groups.split(',').filter(|group| !group.is_empty());
        is_token_id(&id).then(|| Self {
            expires: text(data.expiration.as_ref()).parse().ok(),
            usages: usages.map(|(usage, _)| usage).collect(),
            groups: groups.map(str::to_owned).collect(),
            description: text(data.description.as_ref()),
            id,
        })
    }
}

/// Creates a bootstrap token that expires at `expires`.
///
/// # Errors
/// The Secret cannot be created, or it is unknown whether it was created.
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
            "metadata": {"name": format!("{NAME_PREFIX}{id}"), "namespace": NAMESPACE},
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

/// Lists the bootstrap tokens of a cluster by id.
///
/// # Errors
/// The Secrets cannot be listed.
pub async fn list_tokens(connection: &Connection) -> Result<Vec<ListedToken>, Error> {
    let selector = format!("type={SECRET_TYPE}");
    let secrets: Vec<TokenSecret> = connection
        .list_by_fields(&SECRET.api_resource("v1"), NAMESPACE, &selector)
        .await?;
    Ok(secrets.iter().filter_map(ListedToken::new).collect())
}

/// Deletes a bootstrap token. False if the cluster has no token with this id.
///
/// # Errors
/// The Secret cannot be read or deleted, or it is unknown whether it was deleted.
pub async fn revoke_token(connection: &Connection, id: &str) -> Result<bool, Error> {
    let resource = SECRET.api_resource("v1");
    let name = format!("{NAME_PREFIX}{id}");
    let secret: TokenSecret = match connection.get(&resource, NAMESPACE, &name).await {
        Err(Error::NotFound { .. }) => return Ok(false),
        read => read?,
    };
    if secret.type_ != SECRET_TYPE {
        return Ok(false);
    }
    let delete = DeleteRequest {
        resource: &resource,
        namespace: Some(NAMESPACE),
        name: &name,
        uid: secret.metadata.uid.as_deref().unwrap_or_default(),
        resource_version: None,
        dry_run: false,
    };
    match connection.delete(&delete).await {
        // `Changed`: the token was deleted, and another Secret has its name.
        Ok(Written::Stored | Written::Changed) | Err(Error::NotFound { .. }) => Ok(true),
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
    use crate::canned::failure;

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
            assert!(is_token_id(id) && id == token.id());
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

    fn secret(data: &[(&str, &str)]) -> Value {
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        let data: std::collections::BTreeMap<String, ByteString> = data.collect();
        json!({"metadata": {"name": "bootstrap-token-abcdef", "uid": "u"}, "type": SECRET_TYPE, "data": data})
    }

    #[test]
    fn a_listed_token_has_no_secret_part() {
        let items = [
            secret(&[
                ("token-id", "abcdef"),
                ("token-secret", "0123456789abcdef"),
                ("expiration", "2026-11-25T12:00:00Z"),
                ("usage-bootstrap-authentication", "true"),
                ("usage-bootstrap-signing", "false"),
                (
                    "auth-extra-groups",
                    "system:bootstrappers:a,system:bootstrappers:b",
                ),
                ("description", "worker-1"),
            ]),
            secret(&[("token-id", "ghijkl")]),
            secret(&[("token-id", "not an id")]),
        ];
        let listed = run(async {
            let connection = Connection::canned(move |_, _| (200, json!({"metadata": {}, "items": items})));
            list_tokens(&connection).await.unwrap()
        });
        let [first, second] = listed.as_slice() else {
            panic!("{listed:?}");
        };
        assert_eq!(
            *first,
            ListedToken {
                id: "abcdef".to_owned(),
                expires: Some("2026-11-25T12:00:00Z".parse().unwrap()),
                usages: vec!["authentication"],
                groups: vec![
                    "system:bootstrappers:a".to_owned(),
                    "system:bootstrappers:b".to_owned()
                ],
                description: "worker-1".to_owned(),
            }
        );
        assert_eq!((second.expires, second.usages.len()), (None, 0));
        assert!(!format!("{listed:?}").contains("0123456789"));
    }

    #[test]
    fn only_a_bootstrap_token_is_revoked() {
        let mut other = secret(&[("token-id", "abcdef")]);
        other["type"] = json!("Opaque");
        let missing = {
            let (code, mut status) = failure(404, "NotFound", "not found");
            status["details"] = json!({"name": "bootstrap-token-abcdef"});
            (code, status)
        };
        for (read, expected) in [
            ((200, secret(&[("token-id", "abcdef")])), true),
            ((200, other), false),
            (missing, false),
        ] {
            let revoked = run(async {
                let connection = Connection::canned(move |method, path| {
                    assert_eq!(
                        path,
                        "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef"
                    );
                    match *method {
                        Method::GET => read.clone(),
                        _ => (200, json!({})),
                    }
                });
                revoke_token(&connection, "abcdef").await.unwrap()
            });
            assert_eq!(revoked, expected);
        }
    }
}
