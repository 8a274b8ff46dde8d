//! The `ClusterDeployment`s that were made for pools of one namespace.

use kcp_rules::api::hive::ClusterPoolReference;
use serde::Deserialize;

use super::{
    entry::Holder,
    model::{Deployment, References},
    release::{Cluster, Needs},
};

/// Hive's finalizer on each cluster that it has to take down. It gives the customization back just before it removes
/// the finalizer.
const DEPROVISION_FINALIZER: &str = "hive.openshift.io/deprovision";

#[derive(Deserialize)]
pub(super) struct WireDeployment {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

impl WireMetadata {
    /// How far the cluster is.
    fn life(&self) -> Life {
        if self.deletion_timestamp.is_none() {
            Life::Alive
        } else if self.finalizers.iter().any(|name| name == DEPROVISION_FINALIZER) {
            Life::Deprovisioning
        } else {
            Life::Over
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default)]
    cluster_pool_ref: Option<ClusterPoolReference>,
}

/// The clusters that were made for pools of one namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Deployments {
    all: Vec<Made>,
}

/// A cluster that was made for a pool.
#[derive(Clone, Debug)]
struct Made {
    deployment: Deployment,
    customization: Option<String>,
    namespace: String,
    life: Life,
}

/// How far a cluster is. Deleted, it has its hosts until Hive has taken it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    Deprovisioning,
    Over,
}

impl Deployments {
    pub(super) fn of(namespace: &str, deployments: Vec<WireDeployment>) -> Self {
        let all = deployments.into_iter().filter_map(|deployment| {
            let reference = deployment
                .spec
                .cluster_pool_ref
                .filter(|reference| reference.namespace == namespace)?;
            let customization = reference
                .cluster_deployment_customization
                .map(|reference| reference.name);
            Some(Made {
                life: deployment.metadata.life(),
                deployment: Deployment {
                    name: deployment.metadata.name,
                    pool: reference.pool_name,
                },
                customization: customization.filter(|name| !name.is_empty()),
                namespace: deployment.metadata.namespace,
            })
        });
        Self { all: all.collect() }
    }

    /// Whether there is a cluster of this name that was made for the pool.
    pub(super) fn contains(&self, name: &str, pool: &str) -> bool {
        self.all
            .iter()
            .any(|Made { deployment, .. }| deployment.name == name && deployment.pool == pool)
    }

    /// By customization.
    pub(super) fn by_customization(&self) -> References {
        let mut references = References::new();
        for Made {
            deployment,
            customization,
            ..
        } in &self.all
        {
            if let Some(customization) = customization {
                references
                    .entry(customization.clone())
                    .or_default()
                    .insert(deployment.clone());
            }
        }
        references
    }

    /// What the holder's clusters are made with and still need.
    pub(super) fn needs(&self, holder: Holder<'_>) -> Needs {
        let made = self.all.iter().filter(|made| made.deployment.is(holder));
        made.filter_map(|made| {
            let cluster = Cluster {
                namespace: made.namespace.clone(),
                is_deprovisioning: match made.life {
                    Life::Alive => false,
                    Life::Deprovisioning => true,
                    Life::Over => return None,
                },
            };
            Some((made.customization.clone()?, cluster))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Deployments;

    #[test]
    fn clusters_of_pools_of_other_namespaces_do_not_count() {
        let deployment = |name: &str, reference: Value| {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"clusterPoolRef": reference}}))
                .unwrap()
        };
        let of = |namespace: &str, pool: &str, customization: Value| json!({"namespace": namespace, "poolName": pool, "clusterDeploymentCustomization": customization});
        let deployments = Deployments::of(
            "d",
            vec![
                deployment("a", of("d", "p", json!({"name": "one"}))),
                deployment("b", of("other", "p", json!({"name": "one"}))),
                deployment("c", of("d", "p", Value::Null)),
                deployment("e", of("d", "p", json!({"name": ""}))),
                deployment("f", Value::Null),
            ],
        );
        let made: Vec<_> = ["a", "b", "c", "e", "f"]
            .into_iter()
            .filter(|name| deployments.contains(name, "p"))
            .collect();
        assert_eq!(made, ["a", "c", "e"]);
        assert!(!deployments.contains("a", "q"));
        let references = deployments.by_customization();
        assert_eq!(references.keys().collect::<Vec<_>>(), ["one"]);
        assert_eq!(
            references["one"]
                .iter()
                .map(|deployment| deployment.name.as_str())
                .collect::<Vec<_>>(),
            ["a"]
        );
    }
}
