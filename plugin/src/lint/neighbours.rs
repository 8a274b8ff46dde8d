//! The other documents given: the cluster that rules look at.
//!
//! What no document speaks of is unknown, not absent: a folder rarely holds all of a cluster.

use kcp_rules::view::{self, Part, View};
use serde_json::Value;

/// All objects that were read.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    objects: Vec<Value>,
}

impl Neighbours {
    /// Adds an object.
    pub(super) fn add(&mut self, object: Value) {
        self.objects.push(object);
    }

    /// The view of one of them.
    pub(super) fn view(&self, object: &Value) -> View {
        let namespace = text(object, "/metadata/namespace");
        let name = text(object, "/metadata/name");
        let cluster = cluster_name(object);
        let is_neighbour = |other: &&Value| text(other, "/metadata/namespace") == namespace;
        let of_kind = |kind: &'static str| {
            let is_kind = move |other: &&Value| text(other, "/kind") == Some(kind);
            self.objects.iter().filter(is_neighbour).filter(is_kind)
        };
        let deployments = self
            .objects
            .iter()
            .filter(|other| text(other, "/kind") == Some("ClusterDeployment"));
        View {
            machines: known(
                of_kind("Machine")
                    .filter(|machine| of_control_plane(machine, cluster))
                    .map(machine),
            ),
            cluster: of_kind("Cluster")
                .find(|other| cluster.is_some() && text(other, "/metadata/name") == cluster)
                .map(|found| Some(self::cluster(found)))
                .map_or_else(Part::default, Part::from),
            control_planes: known(of_kind("KubeadmControlPlane").map(named)),
            pools: known(
                of_kind("ClusterPool")
                    .filter(|pool| text(pool, "/metadata/name") != name)
                    .map(pool),
            ),
            customizations: known(of_kind("ClusterDeploymentCustomization").map(named)),
            cluster_deployments: known(
                deployments
                    .filter(|deployment| concerns(deployment, namespace, name))
                    .map(deployment),
            ),
            ..View::default()
        }
    }
}

fn known<T>(found: impl Iterator<Item = T>) -> Part<Vec<T>> {
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        Part::default()
    } else {
        found.into()
    }
}

fn text<'v>(object: &'v Value, pointer: &str) -> Option<&'v str> {
    object.pointer(pointer).and_then(Value::as_str)
}

fn named(object: &Value) -> String {
    text(object, "/metadata/name").unwrap_or_default().to_owned()
}

fn is_deleting(object: &Value) -> bool {
    text(object, "/metadata/deletionTimestamp").is_some()
}

/// `~1` is a slash (RFC 6901).
fn cluster_name(object: &Value) -> Option<&str> {
    text(object, "/metadata/labels/cluster.x-k8s.io~1cluster-name")
}

fn of_control_plane(machine: &Value, cluster: Option<&str>) -> bool {
    let label = machine.pointer("/metadata/labels/cluster.x-k8s.io~1control-plane");
    label.is_some() && cluster.is_some() && cluster_name(machine) == cluster
}

fn machine(machine: &Value) -> view::Machine {
    view::Machine {
        name: named(machine),
        version: text(machine, "/spec/version").map(str::to_owned),
        created: text(machine, "/metadata/creationTimestamp").and_then(|time| time.parse().ok()),
        has_node: machine.pointer("/status/nodeRef").is_some_and(Value::is_object),
        deleting: is_deleting(machine),
    }
}

fn cluster(cluster: &Value) -> view::Cluster {
    let reference = cluster.pointer("/spec/controlPlaneRef");
    let control_plane = reference.filter(|reference| text(reference, "/kind") == Some("KubeadmControlPlane"));
    view::Cluster {
        name: named(cluster),
        paused: cluster
            .pointer("/spec/paused")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        deleting: is_deleting(cluster),
        control_plane: control_plane
            .and_then(|reference| text(reference, "/name"))
            .map(str::to_owned),
    }
}

fn pool(pool: &Value) -> view::Pool {
    let inventory = pool.pointer("/spec/inventory").and_then(Value::as_array);
    let names = inventory
        .into_iter()
        .flatten()
        .filter_map(|entry| text(entry, "/name"));
    view::Pool {
        name: named(pool),
        inventory: names.map(str::to_owned).collect(),
        deleting: is_deleting(pool),
    }
}

fn concerns(deployment: &Value, namespace: Option<&str>, name: Option<&str>) -> bool {
    let pool = text(deployment, "/spec/clusterPoolRef/poolName");
    let customization = text(
        deployment,
        "/spec/clusterPoolRef/clusterDeploymentCustomization/name",
    );
    text(deployment, "/spec/clusterPoolRef/namespace") == namespace && [pool, customization].contains(&name)
}

fn deployment(deployment: &Value) -> view::ClusterDeployment {
    let reference = |field: &str| {
        let found = text(deployment, &format!("/spec/clusterPoolRef/{field}"));
        found.filter(|found| !found.is_empty()).map(str::to_owned)
    };
    view::ClusterDeployment {
        name: named(deployment),
        pool: reference("poolName").unwrap_or_default(),
        claim: reference("claimName"),
        customization: reference("clusterDeploymentCustomization/name"),
        deleting: is_deleting(deployment),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_no_document_speaks_of_is_unknown() {
        let object = json!({"kind": "KubeadmControlPlane", "metadata": {"name": "a"}});
        let view = Neighbours::default().view(&object);
        assert_eq!(view.control_planes.get(), None);
        assert_eq!(view.cluster.get(), None);
        assert_eq!(view.pools.get(), None);
    }

    #[test]
    fn neighbours_are_of_the_same_namespace() {
        let mut neighbours = Neighbours::default();
        for (namespace, name) in [("x", "a"), ("x", "b"), ("y", "c")] {
            neighbours.add(json!({
                "kind": "KubeadmControlPlane", "metadata": {"namespace": namespace, "name": name}
            }));
        }
        let cluster = json!({"kind": "Cluster", "metadata": {"namespace": "x", "name": "cluster"}});
        let view = neighbours.view(&cluster);
        assert_eq!(
            view.control_planes.get(),
            Some(&vec!["a".to_owned(), "b".to_owned()])
        );
    }
}
