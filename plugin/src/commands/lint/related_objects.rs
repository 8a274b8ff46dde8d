//! Gives admission rules the other objects that they need.
//!
//! An object that no file contains is unknown, not absent, because files rarely describe a whole cluster. If a kind
//! was listed in a cluster, all of its objects are known.

use std::collections::{BTreeSet, HashMap, HashSet};

use kcp_api::{Cluster, ClusterDeployment, ClusterDeploymentCustomization, Machine, Object as _};
use kcp_rules::view::{
    self, Part, View,
    object::{PoolFragment, belongs_to},
};
use serde::de::DeserializeOwned;

use crate::commands::lint::{
    object::Object,
    subject::{LintRole, Subject},
};

/// All objects that `lint` has read, by namespace.
#[derive(Debug, Default)]
pub(super) struct RelatedObjects {
    namespaces: HashMap<String, NamespaceObjects>,
    /// The ClusterDeployments of all namespaces, because each one has a namespace of its own.
    deployments: Vec<view::ClusterDeployment>,
    listed: HashSet<RelatedKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RelatedKind {
    Machine,
    Cluster,
    ControlPlane,
    Pool,
    Customization,
    ClusterDeployment,
}

#[derive(Debug, Default)]
struct NamespaceObjects {
    machines: Vec<Machine>,
    clusters: Vec<view::Cluster>,
    control_planes: Vec<String>,
    pools: Vec<view::Pool>,
    customizations: Vec<ClusterDeploymentCustomization>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ReviewedObject<'v> {
    pub(super) namespace: &'v str,
    /// The name of the object under review; `None` if the server will generate it.
    pub(super) name: Option<&'v str>,
    /// The name of the Cluster to which the object belongs, if it is known.
    pub(super) cluster: Option<&'v str>,
    /// The namespace and the name of the customization to which the `ClusterDeployment` under review refers.
    pub(super) customization: Option<(&'v str, &'v str)>,
}

impl RelatedKind {
    fn new(role: LintRole) -> Option<Self> {
        match role {
            LintRole::Machine => Some(Self::Machine),
            LintRole::Subject(Subject::ControlPlane) | LintRole::Unrendered(Some(Subject::ControlPlane)) => {
                Some(Self::ControlPlane)
            }
            LintRole::Subject(Subject::Cluster) => Some(Self::Cluster),
            LintRole::Subject(Subject::ClusterPool) => Some(Self::Pool),
            LintRole::Subject(Subject::Customization) => Some(Self::Customization),
            LintRole::Subject(Subject::ClusterDeployment) => Some(Self::ClusterDeployment),
            LintRole::Subject(
                Subject::Template | Subject::KubeadmConfig | Subject::KubeadmConfigTemplate,
            )
            | LintRole::HealthCheck
            | LintRole::Unrendered(_)
            | LintRole::Foreign(_)
            | LintRole::Ignored => None,
        }
    }
}

impl RelatedObjects {
    /// Adds an object for rules to read. An object without a namespace gets `namespace`. Skips objects that
    /// cannot be decoded, which are reported when they are checked, and objects without a name, to which no
    /// object can refer.
    pub(super) fn add(&mut self, object: &Object, namespace: &str) {
        fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
            serde_json::from_str(&object.text).ok()
        }
        let (Some(kind), Some(name)) = (RelatedKind::new(object.role), &object.name.name) else {
            return;
        };
        let namespace = object.namespace_or(namespace).to_owned();
        let objects = self.namespaces.entry(namespace).or_default();
        match kind {
            RelatedKind::Machine => objects.machines.extend(read::<Machine>(object)),
            RelatedKind::Cluster => {
                let cluster: Option<Cluster> = read(object);
                objects.clusters.extend(cluster.as_ref().map(view::Cluster::from));
            }
            RelatedKind::ControlPlane => objects.control_planes.push(name.clone()),
            RelatedKind::Pool => objects
                .pools
                .extend(read::<PoolFragment>(object).map(view::Pool::from)),
            RelatedKind::Customization => objects
                .customizations
                .extend(read::<ClusterDeploymentCustomization>(object)),
            RelatedKind::ClusterDeployment => {
                let deployment: Option<ClusterDeployment> = read(object);
                self.deployments
                    .extend(deployment.as_ref().map(view::ClusterDeployment::from));
            }
        }
    }

    /// Adds a Machine that was listed in a cluster.
    pub(super) fn add_machine(&mut self, machine: Machine) {
        let namespace = machine.namespace().to_owned();
        self.namespaces
            .entry(namespace)
            .or_default()
            .machines
            .push(machine);
    }

    /// Declares that no other object of this kind exists, because all of them were added.
    pub(super) fn mark_complete(&mut self, role: LintRole) {
        self.listed.extend(RelatedKind::new(role));
    }

    /// A view with those of the parts that are known, for the review of this object.
    pub(super) fn view(&self, parts: &BTreeSet<Part>, reviewed: ReviewedObject<'_>) -> View {
        let ReviewedObject {
            namespace,
            name,
            cluster,
            customization,
        } = reviewed;
        let mut view = View::default();
        for part in parts {
            match part {
                Part::Machines if cluster.is_some() => {
                    let all = self.in_namespace(namespace, |objects| &objects.machines);
                    let own = all.filter(|machine| belongs_to(machine, name, cluster));
                    view.machines = self.known(RelatedKind::Machine, own.map(view::Machine::from));
                }
                Part::Cluster => view.cluster = cluster.and_then(|name| self.cluster(namespace, name)),
                Part::ControlPlanes => {
                    let names = self.in_namespace(namespace, |objects| &objects.control_planes);
                    view.control_planes = self.known(RelatedKind::ControlPlane, names.cloned());
                }
                Part::Pools => {
                    let all = self.in_namespace(namespace, |objects| &objects.pools);
                    let others = all.filter(|pool| Some(pool.name.as_str()) != name);
                    view.pools = self.known(RelatedKind::Pool, others.cloned());
                }
                Part::Customizations => {
                    let all = self.in_namespace(namespace, |objects| &objects.customizations);
                    let names = all.map(|found| found.name().to_owned());
                    view.customizations = self.known(RelatedKind::Customization, names);
                }
                Part::ClusterDeployments => {
                    let reference = customization.or(name.map(|name| (namespace, name)));
                    let concerned = self.deployments.iter().filter(|other| {
                        reference.is_some_and(|(namespace, name)| other.refers_to(namespace, name))
                    });
                    view.cluster_deployments = self.known(RelatedKind::ClusterDeployment, concerned.cloned());
                }
                Part::Customization => {
                    view.customization =
                        customization.and_then(|(namespace, name)| self.customization(namespace, name));
                }
                Part::Machines
                | Part::WorkerMachines
                | Part::NamespaceTerminating
                | Part::Migrations
                | Part::MayOverride => {}
            }
        }
        view
    }

    fn in_namespace<'o, T: 'o>(
        &'o self,
        namespace: &str,
        of_kind: impl Fn(&'o NamespaceObjects) -> &'o Vec<T>,
    ) -> impl Iterator<Item = &'o T> {
        self.namespaces.get(namespace).into_iter().flat_map(of_kind)
    }

    /// The objects that were found; `None` if others may exist.
    fn known<T>(&self, kind: RelatedKind, found: impl Iterator<Item = T>) -> Option<Vec<T>> {
        let found: Vec<_> = found.collect();
        (!found.is_empty() || self.listed.contains(&kind)).then_some(found)
    }

    #[expect(
        clippy::option_option,
        reason = "an object that does not exist differs from an unknown one"
    )]
    fn cluster(&self, namespace: &str, name: &str) -> Option<Option<view::Cluster>> {
        let all = self.in_namespace(namespace, |objects| &objects.clusters);
        let named = all.filter(|cluster| cluster.name == name).cloned();
        Some(self.known(RelatedKind::Cluster, named)?.into_iter().next())
    }

    #[expect(
        clippy::option_option,
        reason = "an object that does not exist differs from an unknown one"
    )]
    fn customization(&self, namespace: &str, name: &str) -> Option<Option<view::Customization>> {
        let all = self.in_namespace(namespace, |objects| &objects.customizations);
        let named = all.filter(|customization| customization.name() == name).cloned();
        let found = self.known(RelatedKind::Customization, named)?;
        Some(found.into_iter().next().map(view::Customization::from))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kcp_rules::view::{self, Part, View};
    use serde_json::{Value, json};

    use super::{LintRole, Object, RelatedObjects, ReviewedObject, Subject};
    use crate::commands::lint::document;

    fn everything() -> BTreeSet<Part> {
        Part::ALL.iter().copied().collect()
    }

    const REVIEWED: ReviewedObject<'_> = ReviewedObject {
        namespace: "default",
        name: Some("example"),
        cluster: Some("edge"),
        customization: None,
    };

    fn object(api_version: &str, kind: &str, metadata: &Value, spec: &Value) -> Object {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        let document = document::parse(object.to_string().as_bytes()).remove(0).unwrap();
        Object::from_document("a.yaml", document).remove(0)
    }

    fn related_objects(objects: impl IntoIterator<Item = Object>) -> RelatedObjects {
        let mut related_objects = RelatedObjects::default();
        for object in objects {
            related_objects.add(&object, "default");
        }
        related_objects
    }

    fn control_plane(metadata: &Value) -> Object {
        object(
            "controlplane.cluster.x-k8s.io/v1beta2",
            "KubeadmControlPlane",
            metadata,
            &json!({}),
        )
    }

    fn hive(kind: &str, metadata: &Value, spec: &Value) -> Object {
        object("hive.openshift.io/v1", kind, metadata, spec)
    }

    fn machine(name: &str, owner: &Value) -> Object {
        let metadata = json!({
            "name": name,
            "labels": {"cluster.x-k8s.io/cluster-name": "edge", "cluster.x-k8s.io/control-plane": ""},
            "ownerReferences": owner
        });
        object("cluster.x-k8s.io/v1beta2", "Machine", &metadata, &json!({}))
    }

    fn names(view: &View) -> Option<Vec<&str>> {
        let machines = view.machines.as_ref()?;
        Some(machines.iter().map(|machine| machine.name.as_str()).collect())
    }

    #[test]
    fn an_object_that_no_file_contains_is_unknown() {
        let view = RelatedObjects::default().view(&everything(), REVIEWED);
        assert_eq!(view.machines.as_ref(), None);
        assert_eq!(view.cluster.as_ref(), None);
        assert_eq!(view.control_planes.as_ref(), None);
        assert_eq!(view.pools.as_ref(), None);
        assert_eq!(view.customizations.as_ref(), None);
        assert_eq!(view.cluster_deployments.as_ref(), None);
    }

    #[test]
    fn an_object_missing_from_a_clusters_list_is_absent() {
        let mut related_objects = RelatedObjects::default();
        for role in [
            LintRole::Machine,
            LintRole::Subject(Subject::Cluster),
            LintRole::Subject(Subject::ControlPlane),
        ] {
            related_objects.mark_complete(role);
        }
        let view = related_objects.view(&everything(), REVIEWED);
        assert_eq!(view.machines.as_ref(), Some(&vec![]));
        assert_eq!(view.cluster.as_ref(), Some(&None));
        assert_eq!(view.control_planes.as_ref(), Some(&vec![]));
        assert_eq!(view.pools.as_ref(), None);
    }

    #[test]
    fn only_the_needed_parts_are_gathered() {
        let related_objects = related_objects([control_plane(&json!({"name": "a"}))]);
        let view = related_objects.view(&BTreeSet::from([Part::Pools]), REVIEWED);
        assert_eq!(view.control_planes, None);
    }

    #[test]
    fn related_objects_are_in_the_same_namespace_which_is_default_if_unset() {
        let related_objects = related_objects([
            control_plane(&json!({"name": "a"})),
            control_plane(&json!({"name": "b", "namespace": "default"})),
            control_plane(&json!({"name": "c", "namespace": ""})),
            control_plane(&json!({"name": "d", "namespace": "prod"})),
        ]);
        let control_planes = |namespace| {
            let reviewed = ReviewedObject {
                namespace,
                ..REVIEWED
            };
            let view = related_objects.view(&everything(), reviewed);
            view.control_planes
        };
        assert_eq!(
            control_planes("default"),
            Some(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()])
        );
        assert_eq!(control_planes("prod"), Some(vec!["d".to_owned()]));
    }

    #[test]
    fn machines_are_those_of_the_control_plane() {
        let owner = |name: &str| json!([{"kind": "KubeadmControlPlane", "name": name, "controller": true}]);
        let related_objects = related_objects([
            machine("owned", &owner("example")),
            machine("labelled", &Value::Null),
            machine("of-another", &owner("before")),
        ]);
        let view = related_objects.view(&everything(), REVIEWED);
        assert_eq!(names(&view), Some(vec!["owned", "labelled"]));
        // As in the server, a control plane that does not name its Cluster has no Cluster yet.
        let unclaimed = ReviewedObject {
            cluster: None,
            ..REVIEWED
        };
        assert_eq!(names(&related_objects.view(&everything(), unclaimed)), None);
    }

    #[test]
    fn a_kind_of_the_same_name_in_another_group_is_not_related() {
        let related_objects = related_objects([
            object(
                "postgresql.cnpg.io/v1",
                "Cluster",
                &json!({"name": "edge"}),
                &json!({"paused": true}),
            ),
            object(
                "machine.openshift.io/v1beta1",
                "Machine",
                &json!({"name": "m"}),
                &json!({}),
            ),
        ]);
        let view = related_objects.view(&everything(), REVIEWED);
        assert_eq!(view.cluster.as_ref(), None);
        assert_eq!(view.machines.as_ref(), None);
    }

    #[test]
    fn only_the_named_cluster_is_related() {
        let cluster = |name: &str, paused: bool| {
            object(
                "cluster.x-k8s.io/v1beta2",
                "Cluster",
                &json!({"name": name}),
                &json!({"paused": paused}),
            )
        };
        let related_objects = related_objects([cluster("other", false), cluster("edge", true)]);
        let expected = view::Cluster {
            name: "edge".to_owned(),
            uid: None,
            paused: true,
            ..view::Cluster::default()
        };
        let view = related_objects.view(&everything(), REVIEWED);
        assert_eq!(view.cluster.as_ref(), Some(&Some(expected)));
    }

    #[test]
    fn a_pool_is_not_related_to_itself() {
        let pool = |name: &str| {
            let inventory = json!({"inventory": [{"name": "foo"}]});
            hive("ClusterPool", &json!({"name": name}), &inventory)
        };
        let nameless = hive(
            "ClusterPool",
            &json!({"generateName": "a-"}),
            &json!({"inventory": []}),
        );
        let related_objects = related_objects([pool("example"), pool("other"), nameless]);
        let view = related_objects.view(&everything(), REVIEWED);
        let expected = view::Pool {
            name: "other".to_owned(),
            inventory: vec!["foo".to_owned()],
            is_deleting: false,
        };
        assert_eq!(view.pools.as_ref(), Some(&vec![expected]));
    }

    #[test]
    fn a_nameless_reference_matches_no_nameless_object() {
        let deployment = |name: &str, reference: &Value| {
            let metadata = json!({"name": name, "namespace": name});
            hive(
                "ClusterDeployment",
                &metadata,
                &json!({"clusterPoolRef": reference}),
            )
        };
        let related_objects = related_objects([
            deployment("plain", &Value::Null),
            deployment("nameless", &json!({"namespace": "default", "poolName": ""})),
            deployment("made", &json!({"namespace": "default", "poolName": "example"})),
            deployment("elsewhere", &json!({"namespace": "prod", "poolName": "example"})),
        ]);
        let concerned = |name| {
            let view = related_objects.view(&everything(), ReviewedObject { name, ..REVIEWED });
            let found = view.cluster_deployments.as_ref();
            found.map(|found| found.iter().map(|it| it.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(concerned(None), None);
        assert_eq!(concerned(Some("example")), Some(vec!["made".to_owned()]));
    }
}
