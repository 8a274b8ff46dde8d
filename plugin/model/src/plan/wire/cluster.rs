//! A Cluster.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::plan::observed::Cluster;
use crate::plan::wire::Metadata;

const UPGRADE_STEP: &str = "topology.internal.cluster.x-k8s.io/upgrade-step";

/// A Cluster.
#[derive(Deserialize)]
pub struct WireCluster {
    metadata: Metadata,
    #[serde(default)]
    spec: ClusterSpec,
    #[serde(default)]
    status: ClusterStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterSpec {
    #[serde(default)]
    paused: bool,
    control_plane_endpoint: Option<Endpoint>,
    topology: Option<Topology>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    host: String,
    #[serde(default)]
    port: i64,
}

#[derive(Deserialize)]
struct Topology {
    version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterStatus {
    failure_domains: Option<FailureDomains>,
    /// v1beta2.
    initialization: Option<Initialization>,
    /// v1beta1.
    infrastructure_ready: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialization {
    infrastructure_provisioned: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FailureDomains {
    /// v1beta2.
    List(Vec<NamedFailureDomain>),
    /// v1beta1.
    Map(BTreeMap<String, FailureDomain>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedFailureDomain {
    name: String,
    #[serde(default)]
    control_plane: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FailureDomain {
    #[serde(default)]
    control_plane: bool,
}

impl FailureDomains {
    /// Those that take control plane Machines.
    fn of_control_planes(self) -> Vec<String> {
        let named: Vec<(String, bool)> = match self {
            Self::List(list) => list
                .into_iter()
                .map(|domain| (domain.name, domain.control_plane))
                .collect(),
            Self::Map(map) => map
                .into_iter()
                .map(|(name, domain)| (name, domain.control_plane))
                .collect(),
        };
        let taken = named.into_iter().filter(|(_, takes)| *takes);
        taken.map(|(name, _)| name).collect()
    }
}

impl From<WireCluster> for Cluster {
    fn from(
        WireCluster {
            metadata,
            spec,
            status,
        }: WireCluster,
    ) -> Self {
        let provisioned = status
            .initialization
            .and_then(|initialization| initialization.infrastructure_provisioned);
        let endpoint = spec.control_plane_endpoint;
        Self {
            paused: spec.paused,
            failure_domains: status
                .failure_domains
                .map(FailureDomains::of_control_planes)
                .unwrap_or_default(),
            infrastructure_ready: provisioned.or(status.infrastructure_ready).unwrap_or(false),
            has_endpoint: endpoint.is_some_and(|endpoint| !endpoint.host.is_empty() && endpoint.port != 0),
            has_kubeconfig: None,
            topology_version: spec.topology.and_then(|topology| topology.version),
            topology_upgrade_step: metadata.annotations.get(UPGRADE_STEP).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::WireCluster;
    use crate::plan::{example::declared, observed::Cluster};

    #[test]
    fn both_versions_of_a_cluster_say_the_same() {
        let metadata = json!({"name": "c1", "annotations": {
            "topology.internal.cluster.x-k8s.io/upgrade-step": "v1.34.1"}});
        let spec = json!({"paused": true, "controlPlaneEndpoint": {"host": "h", "port": 6443},
            "topology": {"version": "v1.35.0"}});
        let decode = |status: Value| -> Cluster {
            let object = json!({"metadata": metadata, "spec": spec, "status": status});
            serde_json::from_value::<WireCluster>(object)
                .expect("decodes")
                .into()
        };
        let later = decode(json!({"initialization": {"infrastructureProvisioned": true},
            "failureDomains": [{"name": "a", "controlPlane": true}, {"name": "b"}, {"name": "c", "controlPlane": true}]}));
        let earlier = decode(json!({"infrastructureReady": true, "failureDomains": {
            "a": {"controlPlane": true}, "b": {"controlPlane": false}, "c": {"controlPlane": true}}}));
        let expected = Cluster {
            paused: true,
            failure_domains: declared("a c"),
            infrastructure_ready: true,
            has_endpoint: true,
            has_kubeconfig: None,
            topology_version: Some("v1.35.0".to_owned()),
            topology_upgrade_step: Some("v1.34.1".to_owned()),
        };
        assert_eq!((&later, &earlier), (&expected, &expected));

        let bare =
            json!({"metadata": {"name": "c1"}, "spec": {"controlPlaneEndpoint": {"host": "", "port": 0}}});
        let bare: Cluster = serde_json::from_value::<WireCluster>(bare)
            .expect("decodes")
            .into();
        assert_eq!(bare, Cluster::default());
    }
}
