//! Creates the objects of a lease's cluster, in pools that Hive does not manage. Continues an interrupted creation, and
//! updates objects that an earlier lease left behind.

use std::{fmt, time::Duration};

use kcp_api::{
    ClusterDeployment,
    metadata::Object as _,
    names::label::{CLUSTER_POOL_NAMESPACE, POOL_LEASE as LABEL},
};
use kcp_client::{CreateResult, Error, Written};
use kcp_rules::syntax::is_dns1123_label;
use serde_json::{Map, Value, json};

use crate::{
    creation::ClusterInputs,
    install_config::patches::PatchProblem,
    inventory::capacity::LimitReached,
    lease::{
        LeaseError, Ttl,
        renewal::{LeaseName, renew},
    },
    objects::Holder,
    store::{LeaseStore as _, ObjectTarget, Store},
};

/// The maximum length of the value of a Kubernetes label, in characters.
const MAX_LABEL: usize = 63;

/// How many times to try to create an object if the response is lost.
const MAX_ATTEMPTS: usize = 5;

/// The pause before another attempt to create the object.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// When this program creates a ClusterDeployment, its lease must last for at least this time. So this program renews the lease
/// right before it creates the ClusterDeployment.
const MIN_REMAINING_TTL: Ttl = Ttl::For(Duration::from_secs(600));

/// An obstacle that prevents the creation of a cluster for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreationObstacle {
    PoolFull {
        pool: String,
        full: LimitReached,
    },
    /// The pool's annotation has the maximum number of intents.
    TooManyAtOnce {
        pool: String,
    },
    /// The customization's patches cannot be applied to the install-config.
    PatchProblem(PatchProblem),
    NotYaml,
    /// The caller passed no install-config, and the pool has none that this client can read.
    NoInstallConfig {
        pool: String,
    },
    /// A namespace with the cluster's name exists, but was not created for a lease.
    ForeignNamespace {
        name: String,
    },
    /// A ClusterDeployment with this name exists, but was not created for this lease.
    ForeignCluster {
        name: String,
    },
    ClusterDeleted {
        name: String,
    },
    /// An object with this name exists, but was not created for a lease.
    ForeignObject {
        kind: &'static str,
        name: String,
    },
    /// The cluster's name is not valid as the name of the cluster's namespace.
    NoNamespace {
        name: String,
    },
    /// The pool's name is too long for the value of the label that names the pool on the cluster's objects.
    NoLabel {
        pool: String,
    },
    LeaseLost {
        customization: String,
    },
    /// Another client took over the lease after this client created the ClusterDeployment.
    LostWhileCreating {
        customization: String,
        name: String,
    },
}

impl fmt::Display for CreationObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolFull { pool, full } => write!(f, "pool {pool} cannot have another cluster now: {full}"),
            Self::TooManyAtOnce { pool } => {
                write!(
                    f,
                    "64 clusters of pool {pool} are already being created, which is the maximum; try again \
                     later"
                )
            }
            Self::PatchProblem(why) => why.fmt(f),
            Self::NoInstallConfig { pool } => write!(
                f,
                "no install-config is available; use --install-config, or set \
                 installConfigSecretTemplateRef of pool {pool} to a Secret that you are allowed to read"
            ),
            Self::NotYaml => f.write_str("the patched install-config cannot be written as YAML"),
            Self::ForeignNamespace { name } => {
                write!(
                    f,
                    "namespace {name} exists, but was not created for a lease; to use it anyway, run: \
                     kubectl label namespace {name} \
                     {LABEL}=true"
                )
            }
            Self::ForeignCluster { name } => {
                write!(
                    f,
                    "ClusterDeployment {name} exists, but was not created for this lease; pass another \
                     name with --cluster-deployment"
                )
            }
            Self::ClusterDeleted { name } => write!(f, "ClusterDeployment {name} was deleted"),
            Self::ForeignObject { kind, name } => {
                write!(f, "{kind} {name} exists, but was not created for a lease")
            }
            Self::NoNamespace { name } => write!(
                f,
                "{name} is not a valid name for the cluster's namespace, which has the same name as the \
                 cluster; use at most 63 lowercase letters, digits and '-'"
            ),
            Self::NoLabel { pool } => {
                write!(
                    f,
                    "the pool's name {pool} is too long; kubectl-kcp writes it into the value of a label, \
                     which can have at most {MAX_LABEL} characters"
                )
            }
            Self::LeaseLost { customization } => write!(
                f,
                "this command no longer has the lease on \
                {customization}"
            ),
            Self::LostWhileCreating { customization, name } => write!(
                f,
                "another client took over the lease on {customization} while this command created cluster \
                 {name}; delete ClusterDeployment {name}"
            ),
        }
    }
}

/// Checks that the cluster's name can be the name of a namespace, and that the pool's name can be the value of a label.
pub fn check_names(holder: Holder<'_>) -> Option<CreationObstacle> {
    let (pool, name) = (holder.pool, holder.cluster_deployment);
    if !is_dns1123_label(name.as_bytes()) {
        return Some(CreationObstacle::NoNamespace {
            name: name.to_owned(),
        });
    }
    (pool.len() > MAX_LABEL).then(|| CreationObstacle::NoLabel {
        pool: pool.to_owned(),
    })
}

/// Checks the namespace with the cluster's name. A namespace that exists without the label for leases is an
/// obstacle.
pub async fn check_foreign_namespace(
    store: &Store<'_>,
    name: &str,
) -> Result<Option<CreationObstacle>, Error> {
    let labels = store.read_namespace_labels(name).await?;
    let is_foreign = labels.is_some_and(|labels| !labels.contains_key(LABEL));
    let name = name.to_owned();
    Ok(is_foreign.then_some(CreationObstacle::ForeignNamespace { name }))
}

/// Creates the cluster's missing objects and returns its ClusterDeployment, or the obstacle to its creation.
/// Renews the lease right before it creates the ClusterDeployment. Updates objects that an earlier lease left
/// behind, unless a cluster uses them.
pub async fn create_missing_objects(
    store: &Store<'_>,
    parts: ClusterInputs<'_>,
) -> Result<Result<ClusterDeployment, CreationObstacle>, Error> {
    let Ok(objects) = parts.objects() else {
        return Ok(Err(CreationObstacle::NotYaml));
    };
    let name = parts.holder.cluster_deployment;
    if let Some(cluster) = store.read_cluster(name, name).await? {
        return Ok(existing_cluster(store, parts, cluster));
    }
    create_unless_exists(store, ObjectTarget::Namespace, &objects.namespace).await?;
    if let Some(why) = check_foreign_namespace(store, name).await? {
        return Ok(Err(why));
    }
    for (made, object, field) in [
        (ObjectTarget::Secret(name), &objects.install_config, "data"),
        (ObjectTarget::Customization(name), &objects.customization, "spec"),
    ] {
        if let Err(why) = create_or_update(store, made, object, field).await? {
            return Ok(Err(why));
        }
    }
    let customization = parts.entry.name();
    let lease = LeaseName {
        holder: parts.holder,
        id: Some(parts.lease_id),
    };
    let renewed = renew(store, customization, lease, MIN_REMAINING_TTL).await;
    if renewed.map_err(LeaseError::into_cause)?.is_none() {
        return Ok(Err(CreationObstacle::LeaseLost {
            customization: customization.to_owned(),
        }));
    }
    create_unless_exists(
        store,
        ObjectTarget::ClusterDeployment(name),
        &objects.cluster_deployment,
    )
    .await?;
    Ok(match store.read_cluster(name, name).await? {
        Some(cluster) => existing_cluster(store, parts, cluster),
        None => Err(CreationObstacle::ClusterDeleted {
            name: name.to_owned(),
        }),
    })
}

/// The ClusterDeployment with the cluster's name, if it already exists. A ClusterDeployment that was created for
/// another lease is an obstacle.
fn existing_cluster(
    store: &Store<'_>,
    parts: ClusterInputs<'_>,
    cluster: ClusterDeployment,
) -> Result<ClusterDeployment, CreationObstacle> {
    let is_own = cluster.customization() == Some(parts.entry.name())
        && cluster.belongs_to_pool(store.namespace(), parts.holder.pool);
    let name = cluster.name().to_owned();
    if !is_own {
        return Err(CreationObstacle::ForeignCluster { name });
    }
    if cluster.is_deleting() {
        return Err(CreationObstacle::ClusterDeleted { name });
    }
    Ok(cluster)
}

/// Creates the object, unless an object with its name exists.
async fn create_unless_exists(
    store: &Store<'_>,
    made: ObjectTarget<'_>,
    object: &Value,
) -> Result<(), Error> {
    let mut attempt = 1;
    loop {
        match store.create_once(made, object).await? {
            CreateResult::Created | CreateResult::AlreadyExists => return Ok(()),
            CreateResult::Unknown(error) if attempt == MAX_ATTEMPTS => return Err(error),
            CreateResult::Unknown(_) => {
                attempt += 1;
                store.pause(RETRY_PAUSE).await;
            }
        }
    }
}

/// Creates the object, or replaces the named field of an object that an earlier lease left behind.
async fn create_or_update(
    store: &Store<'_>,
    made: ObjectTarget<'_>,
    object: &Value,
    field: &str,
) -> Result<Result<(), CreationObstacle>, Error> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let name = name.unwrap_or_default();
    for _ in 0..MAX_ATTEMPTS {
        create_unless_exists(store, made, object).await?;
        let Some(found) = store.read_object(made, name).await? else {
            continue;
        };
        match compare_with_existing(&found, object, field) {
            ExistingObject::UpToDate => return Ok(Ok(())),
            ExistingObject::Foreign => {
                return Ok(Err(CreationObstacle::ForeignObject {
                    kind: made.kind(),
                    name: name.to_owned(),
                }));
            }
            // Read the object again, whether or not the write succeeded.
            ExistingObject::Outdated(patch) => match store.patch_object_once(made, name, &patch).await? {
                Written::Stored | Written::Changed => {}
                Written::Unknown(_) => store.pause(RETRY_PAUSE).await,
            },
        }
    }
    Err(Error::Contended {
        goal: format!("create {} {name}", made.kind()),
        attempts: MAX_ATTEMPTS,
    })
}

/// How an object that exists compares with the object to create. Has no `Debug`, because it may contain a pull secret.
#[derive(Clone, PartialEq, Eq)]
pub enum ExistingObject {
    UpToDate,
    /// An earlier lease created the object, or it has another install-config. This merge patch updates it; the server
    /// refuses the patch if the object has changed since it was read.
    Outdated(Value),
    /// The object was not created for a lease.
    Foreign,
}

/// Decides whether an existing object can be kept, by comparing the named field of both objects.
pub fn compare_with_existing(found: &Value, wanted: &Value, field: &str) -> ExistingObject {
    let value = |object: &Value| object.get(field).cloned().unwrap_or_else(|| json!({}));
    let (has, wants) = (value(found), value(wanted));
    if has == wants {
        return ExistingObject::UpToDate;
    }
    let label = |object: &Value, name: &str| object.pointer("/metadata/labels")?.get(name).cloned();
    // Compare the namespaces of the pools, because a holder of a pool in another namespace may have the same name.
    let pool = |object| label(object, CLUSTER_POOL_NAMESPACE);
    let is_another_pools = pool(found).is_some_and(|owner| Some(owner) != pool(wanted));
    if label(found, LABEL).is_none() || is_another_pools {
        return ExistingObject::Foreign;
    }
    ExistingObject::Outdated(json!({
        "metadata": {"resourceVersion": found.pointer("/metadata/resourceVersion")},
        field: merge_patch(&has, &wants),
    }))
}

/// The JSON merge patch that turns one value into the other. A null removes a field.
fn merge_patch(has: &Value, wants: &Value) -> Value {
    let (Value::Object(has), Value::Object(wants)) = (has, wants) else {
        return wants.clone();
    };
    let removed = has.keys().filter(|field| !wants.contains_key(*field));
    let mut patch: Map<_, _> = removed.map(|field| (field.clone(), Value::Null)).collect();
    for (field, wanted) in wants {
        let value = has
            .get(field)
            .map_or_else(|| wanted.clone(), |has| merge_patch(has, wanted));
        patch.insert(field.clone(), value);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kcp_client::{Connection, testing::failure};
    use serde_json::{Value, json};

    use super::{
        CreationObstacle, ExistingObject, check_names, compare_with_existing, create_missing_objects,
    };
    use crate::{
        creation::ClusterInputs,
        install_config::InstallConfig,
        objects::{Holder, record::LeaseRecord},
        store::Store,
        testing::objects::{NOW, lease, leased, pool, read},
    };

    /// Why no cluster is created for `us` on a server where entry `a` has this lease, with this Secret in its
    /// namespace, and the kinds that were created or changed.
    fn not_made(record: &LeaseRecord, secret: &Value) -> (Option<CreationObstacle>, Vec<String>) {
        let pool = pool(&json!({}));
        let entry = leased(record);
        let held = read(&leased(&lease("us", Some(NOW))));
        let install_config = InstallConfig::parse(b"metadata: {name: foo}", "f").unwrap();
        let parts = ClusterInputs {
            pool: &pool,
            entry: &held,
            holder: Holder {
                pool: "pool",
                cluster_deployment: "us",
            },
            lease_id: "k4x7",
            install_config: &install_config,
        };
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&written);
        let (copy, secret) = (parts.objects().unwrap().customization, secret.clone());
        let answers = move |method: &http::Method, path: &str| {
            let path = path.split('?').next().unwrap_or_default();
            let in_path = |part: &str| path.split('/').any(|found| found == part);
            if *method != http::Method::GET {
                let kinds = ["clusterdeployments", "secrets", "clusterdeploymentcustomizations"];
                let kind = kinds
                    .into_iter()
                    .find(|kind| in_path(kind))
                    .unwrap_or("namespaces");
                log.lock().unwrap().push(format!("{method} {kind}"));
                let is_there = *method == http::Method::POST && kind == "secrets";
                return if is_there {
                    failure(409, "AlreadyExists", "there")
                } else {
                    (201, json!({}))
                };
            }
            let metadata = json!({"name": "us", "labels": {"kubectl-kcp.dev/pool-lease": "true"}});
            match path {
                _ if in_path("clusterdeployments") => {
                    let (code, mut gone) = failure(404, "NotFound", "gone");
                    gone["details"] = json!({"name": "us"});
                    (code, gone)
                }
                _ if in_path("secrets") => (200, secret.clone()),
                _ if in_path("clusterdeploymentcustomizations") && in_path("d") => (200, entry.clone()),
                _ if in_path("clusterdeploymentcustomizations") => (200, copy.clone()),
                _ => (
                    200,
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
                ),
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let made = runtime.unwrap().block_on(async {
            let connection = Connection::canned(answers);
            create_missing_objects(&Store::new(&connection, "m"), parts)
                .await
                .unwrap()
        });
        let written = written.lock().unwrap().clone();
        (made.err(), written)
    }

    #[test]
    fn no_cluster_is_created_over_objects_of_others() {
        // base64 of `metadata:\n  name: foo\n`
        let data = json!({"install-config.yaml": "bWV0YWRhdGE6CiAgbmFtZTogZm9vCg=="});
        let secret = |data: &Value| json!({"metadata": {"resourceVersion": "7"}, "data": data});
        let before = ["POST namespaces", "POST secrets"].map(str::to_owned);
        let copied = [&before[..], &["POST clusterdeploymentcustomizations".to_owned()]].concat();
        let lost = || CreationObstacle::LeaseLost {
            customization: "a".to_owned(),
        };
        let them = lease("them", Some(NOW));
        assert_eq!(not_made(&them, &secret(&data)), (Some(lost()), copied.clone()));
        // A later lease under the same name.
        let later = LeaseRecord {
            id: "later".to_owned(),
            ..lease("us", Some(NOW))
        };
        assert_eq!(not_made(&later, &secret(&data)), (Some(lost()), copied));
        let foreign = CreationObstacle::ForeignObject {
            kind: "Secret",
            name: "us-a-install-config".to_owned(),
        };
        let other = secret(&json!({"install-config.yaml": ""}));
        let ours = lease("us", Some(NOW));
        assert_eq!(not_made(&ours, &other), (Some(foreign.clone()), before.to_vec()));
        let mut of_another_pool = other;
        of_another_pool["metadata"]["labels"] = json!({"kubectl-kcp.dev/pool-lease": "true", "hive.openshift.io/clusterpool-namespace": "elsewhere"});
        assert_eq!(
            not_made(&ours, &of_another_pool),
            (Some(foreign), before.to_vec())
        );
    }

    #[test]
    fn rejects_names_that_no_namespace_or_label_can_have() {
        let long = |length: usize| "a".repeat(length);
        let no_namespace = |name: String| Some(CreationObstacle::NoNamespace { name });
        for (pool, name, expected) in [
            (long(63), long(63), None),
            ("p.q".to_owned(), "a-b".to_owned(), None),
            (long(1), "a.b".to_owned(), no_namespace("a.b".to_owned())),
            (long(1), long(64), no_namespace(long(64))),
            (
                long(64),
                long(1),
                Some(CreationObstacle::NoLabel { pool: long(64) }),
            ),
        ] {
            let holder = Holder {
                pool: &pool,
                cluster_deployment: &name,
            };
            assert_eq!(check_names(holder), expected, "{pool} {name}");
        }
    }

    #[test]
    fn an_existing_object_is_kept_updated_or_foreign() {
        let wanted = json!({"spec": {"a": [1], "b": {"c": 1}}});
        let found = |labels: Value, spec: Value| json!({"metadata": {"resourceVersion": "7", "labels": labels}, "spec": spec});
        let ours = json!({"kubectl-kcp.dev/pool-lease": "true"});
        let same = json!({"a": [1], "b": {"c": 1}});
        let other = json!({"a": [2], "b": {"d": 1}, "e": 1});
        for (case, found, is_foreign) in [
            ("the same", found(ours.clone(), same.clone()), None),
            ("the same of another", found(json!({}), same), None),
            (
                "ours, and another",
                found(ours.clone(), other.clone()),
                Some(false),
            ),
            ("ours, and empty", found(ours, json!({})), Some(false)),
            ("another's", found(json!({}), other.clone()), Some(true)),
            ("another's without labels", found(Value::Null, other), Some(true)),
        ] {
            match compare_with_existing(&found, &wanted, "spec") {
                ExistingObject::UpToDate => assert_eq!(is_foreign, None, "{case}"),
                ExistingObject::Foreign => assert_eq!(is_foreign, Some(true), "{case}"),
                ExistingObject::Outdated(patch) => {
                    assert_eq!(is_foreign, Some(false), "{case}");
                    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}), "{case}");
                    let mut replaced = found;
                    json_patch::merge(&mut replaced, &patch);
                    assert_eq!(replaced["spec"], wanted["spec"], "{case}");
                }
            }
        }
    }
}
