//! Making the cluster of a lease, where no Hive makes it: whoever was broken off goes on where it was, and what an earlier
//! lease has left is made as wanted.

use std::{fmt, time::Duration};

use kcp_client::{Created, Error, Written};
use kcp_rules::syntax::is_dns1123_label;
use serde_json::{Map, Value, json};

use crate::{
    creation::Parts,
    install_config::patches::Unfit,
    inventory::capacity::Full,
    lease::renewal::hold,
    objects::{
        cluster_deployment::ClusterDeployment,
        entry::Holder,
        record::{LABEL, LeaseClaim, Record},
    },
    store::{Customizations as _, Made, Store},
};

/// Characters of a label's value, at most.
const MAX_LABEL: usize = 63;

/// How often an object is made whose answers get lost.
const MAX_ATTEMPTS: usize = 5;

/// Before it is made once more.
const REST: Duration = Duration::from_millis(200);

/// How long a lease lasts until its cluster is there: who is killed before leaves one that ends by itself.
const WHILE_CREATING: Duration = Duration::from_secs(600);

/// Why a cluster is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    PoolFull {
        pool: String,
        full: Full,
    },
    /// The customization's patches cannot be applied to the install-config.
    Unfit(Unfit),
    /// The patched install-config cannot be written as YAML.
    NotYaml,
    /// A namespace of that name is somebody else's.
    ForeignNamespace {
        name: String,
    },
    /// A cluster of that name is somebody else's.
    ForeignCluster {
        name: String,
    },
    ClusterDeleted {
        name: String,
    },
    /// An object of that name is somebody else's.
    ForeignObject {
        kind: &'static str,
        name: String,
    },
    /// No namespace can have the cluster's name.
    NoNamespace {
        name: String,
    },
    /// No label can have the pool's name.
    NoLabel {
        pool: String,
    },
    /// Somebody took the customization away.
    LeaseLost {
        customization: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolFull { pool, full } => write!(f, "pool {pool} is full: {full}"),
            Self::Unfit(why) => why.fmt(f),
            Self::NotYaml => f.write_str("the patched install-config cannot be written as YAML"),
            Self::ForeignNamespace { name } => {
                write!(f, "namespace {name} is there, and was not made for a lease")
            }
            Self::ForeignCluster { name } => {
                write!(f, "there is a ClusterDeployment {name} that was not made with it")
            }
            Self::ClusterDeleted { name } => write!(f, "ClusterDeployment {name} was deleted"),
            Self::ForeignObject { kind, name } => {
                write!(f, "{kind} {name} is there, and was not made for a lease")
            }
            Self::NoNamespace { name } => write!(
                f,
                "the cluster's namespace has its name, and none can be called {name}: give it at most 63 lower case \
                 letters, digits and '-'"
            ),
            Self::NoLabel { pool } => {
                write!(
                    f,
                    "labels name the pool, and {pool} is longer than the {MAX_LABEL} characters of a label"
                )
            }
            Self::LeaseLost { customization } => write!(f, "{customization} was taken away meanwhile"),
        }
    }
}

/// How long the lease of this record lasts while its cluster is made: never shorter than it says. One without an end keeps
/// that, unless its cluster is gone already, which frees it anyway.
pub fn while_creating(record: Option<&Record>, has_cluster: bool) -> Option<Duration> {
    let Some(record) = record else {
        return Some(WHILE_CREATING);
    };
    match record.duration() {
        None if has_cluster || record.cluster_deployment_uid().is_none() => None,
        duration => Some(duration.unwrap_or_default().max(WHILE_CREATING)),
    }
}

/// What is wrong with the names for a cluster that is made: its namespace has its name, and labels name its pool.
pub fn unusable(holder: Holder<'_>) -> Option<Obstacle> {
    let (pool, name) = (holder.pool, holder.cluster_deployment);
    if !is_dns1123_label(name.as_bytes()) {
        return Some(Obstacle::NoNamespace {
            name: name.to_owned(),
        });
    }
    (pool.len() > MAX_LABEL).then(|| Obstacle::NoLabel {
        pool: pool.to_owned(),
    })
}

/// Makes what is not there yet, and returns the cluster; or why it is not made. Right before the cluster the lease is
/// renewed as claimed. What an earlier lease has left is made as wanted, unless there is a cluster that was made with it.
///
/// # Errors
/// When the API server cannot be asked, or refuses.
pub async fn make(
    store: &Store<'_>,
    parts: Parts<'_>,
    claim: LeaseClaim<'_>,
) -> Result<Result<ClusterDeployment, Obstacle>, Error> {
    let Ok(objects) = parts.objects() else {
        return Ok(Err(Obstacle::NotYaml));
    };
    let name = parts.holder.cluster_deployment;
    if let Some(cluster) = store.cluster(name, name).await? {
        return Ok(own(store, parts, cluster));
    }
    ensure(store, Made::Namespace, &objects.namespace).await?;
    if !store.has_label(name, LABEL).await? {
        return Ok(Err(Obstacle::ForeignNamespace {
            name: name.to_owned(),
        }));
    }
    for (made, object, field) in [
        (Made::Secret(name), &objects.install_config, "data"),
        (Made::Customization(name), &objects.customization, "spec"),
    ] {
        if let Err(why) = bring_about(store, made, object, field).await? {
            return Ok(Err(why));
        }
    }
    let customization = parts.entry.name();
    if !hold(store, customization, claim).await? {
        return Ok(Err(Obstacle::LeaseLost {
            customization: customization.to_owned(),
        }));
    }
    ensure(store, Made::Deployment(name), &objects.deployment).await?;
    Ok(match store.cluster(name, name).await? {
        Some(cluster) => own(store, parts, cluster),
        None => Err(Obstacle::ClusterDeleted {
            name: name.to_owned(),
        }),
    })
}

/// The cluster, if it is the one that is made of these parts.
fn own(
    store: &Store<'_>,
    parts: Parts<'_>,
    cluster: ClusterDeployment,
) -> Result<ClusterDeployment, Obstacle> {
    let is_own = cluster.customization() == Some(parts.entry.name())
        && cluster.is_of(store.namespace(), parts.holder.pool);
    let name = cluster.name().to_owned();
    if !is_own {
        return Err(Obstacle::ForeignCluster { name });
    }
    if cluster.metadata.is_deleting() {
        return Err(Obstacle::ClusterDeleted { name });
    }
    Ok(cluster)
}

/// Makes an object, unless it is there.
async fn ensure(store: &Store<'_>, made: Made<'_>, object: &Value) -> Result<(), Error> {
    let mut attempt = 1;
    loop {
        match store.make(made, object).await? {
            Created::Stored | Created::Exists => return Ok(()),
            Created::Unknown(error) if attempt == MAX_ATTEMPTS => return Err(error),
            Created::Unknown(_) => {
                attempt += 1;
                store.rest(REST).await;
            }
        }
    }
}

/// Makes an object, or makes that of an earlier lease as wanted: its field of this name.
async fn bring_about(
    store: &Store<'_>,
    made: Made<'_>,
    object: &Value,
    field: &str,
) -> Result<Result<(), Obstacle>, Error> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let name = name.unwrap_or_default();
    for _ in 0..MAX_ATTEMPTS {
        ensure(store, made, object).await?;
        let Some(found) = store.made_before(made, name).await? else {
            continue;
        };
        match compare(&found, object, field) {
            Before::AsWanted => return Ok(Ok(())),
            Before::Foreign => {
                return Ok(Err(Obstacle::ForeignObject {
                    kind: made.kind(),
                    name: name.to_owned(),
                }));
            }
            // It is read again, whatever came of it.
            Before::Outdated(patch) => match store.rewrite(made, name, &patch).await? {
                Written::Stored | Written::Changed => {}
                Written::Unknown(_) => store.rest(REST).await,
            },
        }
    }
    Err(Error::Contended {
        goal: format!("make {} {name}", made.kind()),
        attempts: MAX_ATTEMPTS,
    })
}

/// What an object that is there is to the one that is to be made. It may have a pull secret: there is no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub enum Before {
    AsWanted,
    /// Ours, from an earlier lease or another install-config. The merge patch makes it as wanted, and the server refuses
    /// it once the object has changed.
    Outdated(Value),
    /// Somebody else's.
    Foreign,
}

/// Compares this field of the two.
pub fn compare(found: &Value, wanted: &Value, field: &str) -> Before {
    let of = |object: &Value| object.get(field).cloned().unwrap_or_else(|| json!({}));
    let (has, wants) = (of(found), of(wanted));
    if has == wants {
        return Before::AsWanted;
    }
    let labels = found.pointer("/metadata/labels");
    if labels.and_then(|labels| labels.get(LABEL)).is_none() {
        return Before::Foreign;
    }
    Before::Outdated(json!({
        "metadata": {"resourceVersion": found.pointer("/metadata/resourceVersion")},
        field: replacing(&has, &wants),
    }))
}

/// The merge patch that turns one value into the other: null removes a field.
fn replacing(has: &Value, wants: &Value) -> Value {
    let (Value::Object(has), Value::Object(wants)) = (has, wants) else {
        return wants.clone();
    };
    let removed = has.keys().filter(|field| !wants.contains_key(*field));
    let mut patch: Map<_, _> = removed.map(|field| (field.clone(), Value::Null)).collect();
    for (field, wanted) in wants {
        let value = has
            .get(field)
            .map_or_else(|| wanted.clone(), |has| replacing(has, wanted));
        patch.insert(field.clone(), value);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use kcp_client::{Connection, canned::failure};
    use serde_json::{Value, json};

    use super::{Before, Obstacle, compare, make, unusable, while_creating};
    use crate::{
        creation::Parts,
        install_config::InstallConfig,
        objects::{entry::Holder, record::LeaseClaim},
        store::Store,
        testing::objects::{NOW, entry, pool, record, seen},
    };

    /// Why no cluster is made for `us` on a server with this record of `a` and this Secret in its namespace, and the kinds
    /// that were made or changed.
    fn not_made(record: &Value, secret: &Value) -> (Option<Obstacle>, Vec<String>) {
        let pool = pool(&json!({}));
        let held = serde_json::from_value(entry("False", Some("us"), NOW)).unwrap();
        let install_config = InstallConfig::parse(b"metadata: {name: foo}", "f").unwrap();
        let holder = Holder {
            pool: "pool",
            cluster_deployment: "us",
        };
        let parts = Parts {
            pool: &pool,
            entry: &held,
            holder,
            install_config: &install_config,
        };
        let claim = LeaseClaim {
            holder,
            duration: Some(Duration::from_secs(600)),
            cluster_deployment_uid: None,
            is_creating: true,
        };
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&written);
        let copy = parts.objects().unwrap().customization;
        let (record, secret) = (record.clone(), secret.clone());
        let answers = move |method: &http::Method, path: &str| {
            let path = path.split('?').next().unwrap_or_default();
            let in_path = |part: &str| path.split('/').any(|found| found == part);
            if *method != http::Method::GET {
                let kinds = [
                    "clusterdeployments",
                    "secrets",
                    "leases",
                    "clusterdeploymentcustomizations",
                ];
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
                _ if in_path("leases") => (200, record.clone()),
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
            make(&Store::new(&connection, "m"), parts, claim).await.unwrap()
        });
        let written = written.lock().unwrap().clone();
        (made.err(), written)
    }

    #[test]
    fn no_cluster_is_made_with_what_somebody_else_has() {
        // base64 of `metadata:\n  name: foo\n`
        let data = json!({"install-config.yaml": "bWV0YWRhdGE6CiAgbmFtZTogZm9vCg=="});
        let secret = |data: &Value| json!({"metadata": {"resourceVersion": "7"}, "data": data});
        let before = ["POST namespaces", "POST secrets"];
        let copied = [&before[..], &["POST clusterdeploymentcustomizations"]].concat();
        let lost = Obstacle::LeaseLost {
            customization: "a".to_owned(),
        };
        assert_eq!(
            not_made(&record("them", NOW, None), &secret(&data)),
            (Some(lost), copied.into_iter().map(str::to_owned).collect())
        );
        let foreign = Obstacle::ForeignObject {
            kind: "Secret",
            name: "us-install-config".to_owned(),
        };
        assert_eq!(
            not_made(
                &record("us", NOW, None),
                &secret(&json!({"install-config.yaml": ""}))
            ),
            (Some(foreign), before.map(str::to_owned).to_vec())
        );
    }

    #[test]
    fn no_lease_is_shortened() {
        let of = |seconds: Option<u32>| Some(record("us", NOW, seconds));
        let gone = Some(seen(record("us", NOW, None), "gone"));
        for (case, record, has_cluster, expected) in [
            ("a new lease", None, false, Some(600)),
            ("a short one", of(Some(60)), false, Some(600)),
            ("a long one", of(Some(7200)), false, Some(7200)),
            ("one without an end", of(None), false, None),
            ("its cluster is gone", gone.clone(), false, Some(600)),
            ("its cluster is there", gone, true, None),
        ] {
            let record = record.map(|record: Value| serde_json::from_value(record).unwrap());
            let duration = while_creating(record.as_ref(), has_cluster);
            assert_eq!(duration, expected.map(Duration::from_secs), "{case}");
        }
    }

    #[test]
    fn names_that_no_namespace_or_label_can_have() {
        let long = |length: usize| "a".repeat(length);
        let no_namespace = |name: String| Some(Obstacle::NoNamespace { name });
        for (pool, name, expected) in [
            (long(63), long(63), None),
            ("p.q".to_owned(), "a-b".to_owned(), None),
            (long(1), "a.b".to_owned(), no_namespace("a.b".to_owned())),
            (long(1), long(64), no_namespace(long(64))),
            (long(64), long(1), Some(Obstacle::NoLabel { pool: long(64) })),
        ] {
            let holder = Holder {
                pool: &pool,
                cluster_deployment: &name,
            };
            assert_eq!(unusable(holder), expected, "{pool} {name}");
        }
    }

    #[test]
    fn what_is_there_is_kept_replaced_or_somebody_elses() {
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
            match compare(&found, &wanted, "spec") {
                Before::AsWanted => assert_eq!(is_foreign, None, "{case}"),
                Before::Foreign => assert_eq!(is_foreign, Some(true), "{case}"),
                Before::Outdated(patch) => {
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
