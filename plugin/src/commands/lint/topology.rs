//! Checks the topology of a Cluster as a change of its control plane, or else with the control plane template of its `ClusterClass`,
//! if the files contain one of them.

use std::collections::HashMap;

use kcp_api::{ClusterClass, kind::CLUSTER_CLASS};
use kcp_rules::{
    api::{Cluster, cluster::ClusterTopology},
    topology::Source,
};

use crate::commands::lint::{
    object::Object,
    subject::{LintRole, Subject},
};

/// The `ClusterClasses`, the templates and the control planes in the files or in a cluster, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Topologies {
    classes: HashMap<Key, ClusterClass>,
    templates: HashMap<Key, String>,
    control_planes: HashMap<Key, String>,
}

/// The namespace and the name of an object.
type Key = (String, String);

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

impl Topologies {
    /// Collects the objects of the new and the old files. If both have the same object, the control plane of the old files counts,
    /// but the class and the template of the new files.
    pub(super) fn new<'o>(
        objects: impl IntoIterator<Item = &'o Object>,
        old: impl IntoIterator<Item = &'o Object>,
        namespace: &str,
    ) -> Self {
        let mut topologies = Self::default();
        for object in old.into_iter().chain(objects) {
            let Some(name) = object.name.name.as_deref() else {
                continue;
            };
            let key = key(object.namespace_or(namespace), name);
            match object.role {
                LintRole::Subject(Subject::Template) => {
                    topologies.templates.insert(key, object.text.clone());
                }
                LintRole::Subject(Subject::ControlPlane) => {
                    topologies
                        .control_planes
                        .entry(key)
                        .or_insert_with(|| object.text.clone());
                }
                LintRole::Ignored if object.name.kind.as_deref() == Some(CLUSTER_CLASS.kind) => {
                    topologies
                        .classes
                        .extend(serde_json::from_str(&object.text).map(|class| (key, class)));
                }
                _ => {}
            }
        }
        topologies
    }

    /// The control plane of a Cluster, or else the template of its class.
    pub(super) fn source(
        &self,
        cluster: &Cluster<'_>,
        topology: &ClusterTopology<'_>,
        namespace: &str,
    ) -> Source<'_> {
        let control_plane = cluster.control_plane_name();
        if let Some(text) = control_plane.and_then(|name| self.control_planes.get(&key(namespace, name))) {
            return Source::ControlPlane(text);
        }
        let template = || {
            let (of_class, name) = topology.class()?;
            let namespace = of_class.unwrap_or(namespace);
            let class = self.classes.get(&key(namespace, name))?;
            if class.has_other_control_plane() {
                return Some(Source::OtherKind);
            }
            let text = self
                .templates
                .get(&key(namespace, class.control_plane_template()?))?;
            Some(Source::Template {
                text,
                is_patched: class.has_patches(),
            })
        };
        template().unwrap_or(Source::Unknown)
    }
}
