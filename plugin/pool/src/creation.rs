//! Builds the objects of a cluster that is created with a lease, in pools that Hive does not manage. Pure, except for
//! [`make`] and [`intent`], which `pool lease --create` and `pool repair --recreate` use.
//! - [`make`]: creates the objects; [`intent`]: prevents concurrent clients from exceeding the pool's limits

pub mod intent;
pub mod make;

use k8s_openapi::ByteString;
use kcp_api::{
    ClusterPool,
    metadata::Object as _,
    names::{annotation, finalizer, label},
};
use kcp_rules::pool_version::pool_version;
use serde_json::{Map, Value, json};

use crate::{
    install_config::{self, InstallConfig},
    objects::{Holder, entry::Entry},
};

/// The fields that a ClusterDeployment's spec takes over from the pool's spec.
const POOL_SPEC_FIELDS: [&str; 5] = [
    "baseDomain",
    "hibernateAfter",
    "installAttemptsLimit",
    "platform",
    "pullSecretRef",
];

/// The objects of one cluster, in the order of their creation. The ClusterDeployment comes last, after the objects that it
/// refers to. Has no `Debug`, because the objects contain a pull secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterObjects {
    /// The namespace in which all other objects are created. It has the cluster's name.
    pub namespace: Value,
    pub install_config: Value,
    pub customization: Value,
    pub cluster_deployment: Value,
}

#[derive(Clone, Copy)]
pub struct ClusterInputs<'p> {
    pub pool: &'p ClusterPool,
    pub entry: &'p Entry,
    pub holder: Holder<'p>,
    /// The id of the lease for which the cluster is created.
    pub lease_id: &'p str,
    /// The install-config to which the customization's patches were applied.
    pub install_config: &'p InstallConfig,
}

impl ClusterInputs<'_> {
    /// Builds the objects of the cluster.
    pub fn objects(&self) -> Result<ClusterObjects, serde_saphyr::ser::Error> {
        let name = self.holder.cluster_deployment;
        // The Secret's name contains the customization's name, so that a holder with leases in two pools has two Secrets.
        let secret = format!("{name}-{}-install-config", self.entry.name());
        let metadata = |object: &str| json!({"name": object, "namespace": name, "labels": self.labels()});
        Ok(ClusterObjects {
            namespace: json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": self.labels()},
            }),
            install_config: json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata(&secret),
                "data": {install_config::KEY: ByteString(self.install_config.to_yaml()?.into_bytes())},
            }),
            customization: json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterDeploymentCustomization",
                "metadata": metadata(self.entry.name()),
                "spec": self.entry.spec,
            }),
            cluster_deployment: json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterDeployment",
                "metadata": {
                    "name": name,
                    "namespace": name,
                    "labels": self.merge_with_pool("labels", self.labels()),
                    "annotations": self.merge_with_pool("annotations", self.annotations()),
                    "finalizers": [finalizer::POOL_LEASE],
                },
                "spec": self.deployment_spec(&secret),
            }),
        })
    }

    fn labels(&self) -> Map<String, Value> {
        [
            (label::POOL_LEASE, "true"),
            (label::CLUSTER_POOL_NAMESPACE, self.pool.namespace()),
            (label::CLUSTER_POOL_NAME, self.pool.name()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
    }

    /// The annotations of the cluster's objects: the lease's id, and the pool's version if it is known.
    fn annotations(&self) -> Map<String, Value> {
        let version =
            pool_version(&self.pool.spec).map(|version| (annotation::CLUSTER_POOL_SPEC_HASH, version));
        let id = (annotation::LEASE_ID, self.lease_id.to_owned());
        let all = version.into_iter().chain([id]);
        all.map(|(name, value)| (name.to_owned(), value.into())).collect()
    }

    /// The labels or annotations (`field`) that the pool sets on its clusters, merged with `ours`, which take
    /// precedence.
    fn merge_with_pool(&self, field: &str, ours: Map<String, Value>) -> Map<String, Value> {
        let mut all = match self.pool.whole_spec.get(field) {
            Some(Value::Object(pools)) => pools.clone(),
            _ => Map::new(),
        };
        all.extend(ours);
        all
    }

    fn deployment_spec(&self, install_config_secret: &str) -> Map<String, Value> {
        let pool = &self.pool.whole_spec;
        let mut spec = Map::new();
        for field in POOL_SPEC_FIELDS {
            if let Some(value) = pool.get(field) {
                spec.insert(field.to_owned(), value.clone());
            }
        }
        // The patches may set the cluster's name, because DNS may be prepared for a certain name.
        let patched_name = self.install_config.value().pointer("/metadata/name");
        let name = self.holder.cluster_deployment;
        let cluster_name = patched_name.and_then(Value::as_str).unwrap_or(name);
        spec.insert("clusterName".to_owned(), cluster_name.into());
        let mut provisioning = json!({
            "imageSetRef": pool.get("imageSetRef"),
            "installConfigSecretRef": {"name": install_config_secret},
        });
        if let (Some(environment), Value::Object(fields)) = (pool.get("installerEnv"), &mut provisioning) {
            fields.insert("installerEnv".to_owned(), environment.clone());
        }
        spec.insert("provisioning".to_owned(), provisioning);
        spec.insert(
            "clusterPoolRef".to_owned(),
            json!({
                "namespace": self.pool.namespace(),
                "poolName": self.pool.name(),
                "clusterDeploymentCustomization": {"name": self.entry.name()},
            }),
        );
        spec
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ClusterInputs;
    use crate::{install_config::InstallConfig, objects::Holder, testing::objects::pool};

    #[test]
    fn the_objects_of_a_cluster() {
        let pool = pool(&json!({
            "platform": {"aws": {"credentialsSecretRef": {"name": "aws-creds"}, "region": "region"}},
            "baseDomain": "test-domain", "imageSetRef": {"name": "test-image-set"},
            "inventory": [{"name": "host-a"}], "maxSize": 3, "installAttemptsLimit": 2,
            "labels": {"team": "a", "hive.openshift.io/clusterpool-name": "wrong"}, "annotations": {"note": "b"},
            "installerEnv": [{"name": "A", "value": "b"}],
        }));
        let entry = json!({
            "metadata": {"name": "host-a", "resourceVersion": "7"},
            "spec": {"installConfigPatches": [{"op": "remove", "path": "/x"}], "unknown": 1},
        });
        let install_config = InstallConfig::parse(b"metadata: {name: foo}", "f").unwrap();
        let parts = ClusterInputs {
            pool: &pool,
            entry: &serde_json::from_value(entry).unwrap(),
            holder: Holder {
                pool: "pool",
                cluster_deployment: "paris",
            },
            lease_id: "k4x7",
            install_config: &install_config,
        };
        let objects = parts.objects().unwrap();
        let all = [
            objects.namespace,
            objects.install_config,
            objects.customization,
            objects.cluster_deployment,
        ];
        insta::with_settings!({snapshot_path => "testing/snapshots"}, {
            insta::assert_snapshot!(serde_json::to_string_pretty(&all).unwrap());
        });
    }
}
