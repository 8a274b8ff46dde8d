//! What `status` looks at in objects as the API server sends them, beside what plans look at. The fields of v1beta1 and
//! v1beta2 stand side by side: each object has one or the other.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use kcp_control_plane::{
    control_plane::{Condition, find},
    snapshot::management::{ClusterLink, Deletion},
};

/// What a Machine's deletion waits for is in annotations that begin so: `{before which step}.{this}/{hook}`.
const DELETION_HOOKS: [&str; 2] = [
    "pre-drain.delete.hook.machine.cluster.x-k8s.io",
    "pre-terminate.delete.hook.machine.cluster.x-k8s.io",
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Deserialize)]
struct OwnerReference {
    #[serde(default)]
    controller: bool,
}

#[derive(Default, Deserialize)]
struct Status {
    conditions: Option<Vec<Condition>>,
    /// v1beta1.
    v1beta2: Option<Later>,
}

/// What an object served as v1beta1 already has of v1beta2.
#[derive(Deserialize)]
struct Later {
    conditions: Option<Vec<Condition>>,
}

impl Status {
    fn conditions(self) -> Vec<Condition> {
        let later = self.v1beta2.and_then(|later| later.conditions);
        later.or(self.conditions).unwrap_or_default()
    }
}

/// What ties a Machine to others, and what keeps it.
#[derive(Debug, Deserialize)]
#[serde(from = "WireMachine")]
pub struct MachineTies {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Whether it has an owner that answers for it.
    pub is_owned: bool,
    /// Set while it is being deleted.
    pub deletion: Option<Deletion>,
}

#[derive(Deserialize)]
struct WireMachine {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

impl From<WireMachine> for MachineTies {
    fn from(WireMachine { metadata, status }: WireMachine) -> Self {
        let deletion = metadata.deletion_timestamp.map(|since| Deletion {
            machine: metadata.name.clone(),
            since,
            waits_for: waits_for(&metadata, &status.conditions()),
        });
        Self {
            name: metadata.name,
            labels: metadata.labels,
            is_owned: metadata.owner_references.iter().any(|owner| owner.controller),
            deletion,
        }
    }
}

fn waits_for(metadata: &Metadata, conditions: &[Condition]) -> Vec<String> {
    let is_hook = |annotation: &&String| DELETION_HOOKS.iter().any(|hook| annotation.starts_with(hook));
    let hooks = metadata.annotations.keys().filter(is_hook);
    let says = find(conditions, "Deleting").filter(|condition| condition.is_true());
    hooks
        .map(|hook| format!("deletion hook {hook}"))
        .chain(metadata.finalizers.iter().map(|name| format!("finalizer {name}")))
        .chain(says.map(Condition::one_line))
        .collect()
}

/// A Cluster's reference to its control plane, and where the Cluster is.
#[derive(Debug, Deserialize)]
#[serde(from = "WireCluster")]
pub struct NamedLink {
    pub namespace: String,
    pub link: ClusterLink,
}

#[derive(Deserialize)]
struct WireCluster {
    metadata: Metadata,
    #[serde(default)]
    spec: ClusterSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterSpec {
    control_plane_ref: Option<ControlPlaneReference>,
    control_plane_endpoint: Option<Endpoint>,
}

#[derive(Deserialize)]
struct ControlPlaneReference {
    kind: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    host: String,
    #[serde(default)]
    port: i64,
}

impl Endpoint {
    /// With brackets around an IPv6 address.
    fn host_and_port(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

impl From<WireCluster> for NamedLink {
    fn from(WireCluster { metadata, spec }: WireCluster) -> Self {
        let (kind, name) = spec
            .control_plane_ref
            .map_or((None, None), |reference| (reference.kind, reference.name));
        let endpoint = spec
            .control_plane_endpoint
            .filter(|endpoint| !endpoint.host.is_empty());
        Self {
            namespace: metadata.namespace,
            link: ClusterLink {
                name: metadata.name,
                control_plane_kind: kind,
                control_plane_name: name,
                endpoint: endpoint.map(|endpoint| endpoint.host_and_port()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ClusterLink, Deletion, MachineTies, NamedLink};

    fn ties(object: Value) -> MachineTies {
        serde_json::from_value(object).expect("a Machine")
    }

    #[test]
    fn both_versions_of_a_machine_tell_what_its_deletion_waits_for() {
        let metadata = json!({
            "name": "m1", "deletionTimestamp": "2026-08-21T10:00:00Z",
            "finalizers": ["machine.cluster.x-k8s.io"],
            "annotations": {
                "a": "b",
                "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup": "",
                "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup": "",
            },
        });
        let deleting = json!([{"type": "Deleting", "status": "True", "reason": "DrainingNode",
            "message": "Drain not completed yet:\n* Pods d/p: cannot evict"}]);
        let expected = Deletion {
            machine: "m1".to_owned(),
            since: "2026-08-21T10:00:00Z".parse().expect("a time"),
            waits_for: [
                "deletion hook pre-drain.delete.hook.machine.cluster.x-k8s.io/backup",
                "deletion hook pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup",
                "finalizer machine.cluster.x-k8s.io",
                "Drain not completed yet: Pods d/p: cannot evict",
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        for status in [
            json!({"conditions": deleting}),
            json!({"conditions": [{"type": "Ready", "status": "False"}], "v1beta2": {"conditions": deleting}}),
        ] {
            let ties = ties(json!({"metadata": metadata, "status": status}));
            assert_eq!(ties.deletion, Some(expected.clone()), "{status}");
        }
    }

    #[test]
    fn a_machine_that_stays_waits_for_nothing() {
        let ties = ties(json!({
            "metadata": {"name": "m1", "finalizers": ["machine.cluster.x-k8s.io"]},
            "status": {"conditions": [{"type": "Deleting", "status": "False", "reason": "NotDeleting"}]},
        }));
        assert_eq!(ties.deletion, None);
    }

    #[test]
    fn a_machine_is_owned_by_who_answers_for_it() {
        let owner = |controller: Value| {
            let owners = json!([{"kind": "KubeadmControlPlane", "name": "c1-cp", "controller": controller}]);
            ties(json!({"metadata": {"name": "m1", "ownerReferences": owners}})).is_owned
        };
        assert!(owner(json!(true)));
        assert!(!owner(json!(false)));
        // Cluster API's Cluster is an owner of each Machine, and answers for none.
        let of_cluster =
            json!({"metadata": {"name": "m1", "ownerReferences": [{"kind": "Cluster", "name": "c1"}]}});
        assert!(!ties(of_cluster).is_owned);
    }

    #[test]
    fn a_cluster_tells_its_control_plane_and_its_endpoint() {
        let link = |spec: Value| -> ClusterLink {
            let object = json!({"metadata": {"name": "c1"}, "spec": spec});
            serde_json::from_value::<NamedLink>(object)
                .expect("a Cluster")
                .link
        };
        let bare = ClusterLink {
            name: "c1".to_owned(),
            ..ClusterLink::default()
        };
        assert_eq!(
            link(json!({"controlPlaneEndpoint": {"host": "", "port": 0}})),
            bare
        );
        assert_eq!(
            link(
                json!({"controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "c1-cp"},
                "controlPlaneEndpoint": {"host": "fd00::1", "port": 6443}})
            ),
            ClusterLink {
                control_plane_kind: Some("KubeadmControlPlane".to_owned()),
                control_plane_name: Some("c1-cp".to_owned()),
                endpoint: Some("[fd00::1]:6443".to_owned()),
                ..bare
            }
        );
    }
}
