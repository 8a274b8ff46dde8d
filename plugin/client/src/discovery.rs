//! Which version of a kind the cluster serves. Asked, never assumed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::core::{ApiResource, GroupVersionKind};

use crate::{Action, Connection, Error};

/// A kind that we read, in any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group.
    pub group: &'static str,
    /// As in manifests.
    pub kind: &'static str,
    /// As in URLs.
    pub plural: &'static str,
    /// The versions that we know, best first. When none of them is served we take the server's preferred one: a
    /// later version is then read like our best.
    pub versions: &'static [&'static str],
    /// What is missing from a cluster without it.
    pub product: &'static str,
}

/// `KubeadmControlPlane`.
pub const KUBEADM_CONTROL_PLANE: Kind = Kind {
    group: "controlplane.cluster.x-k8s.io",
    kind: "KubeadmControlPlane",
    plural: "kubeadmcontrolplanes",
    versions: &["v1beta2", "v1beta1"],
    product: "Cluster API's kubeadm control plane provider",
};

/// `Machine`.
pub const MACHINE: Kind = Kind {
    group: "cluster.x-k8s.io",
    kind: "Machine",
    plural: "machines",
    versions: &["v1beta2", "v1beta1"],
    product: "Cluster API",
};

/// `KubeadmConfig`.
pub const KUBEADM_CONFIG: Kind = Kind {
    group: "bootstrap.cluster.x-k8s.io",
    kind: "KubeadmConfig",
    plural: "kubeadmconfigs",
    versions: &["v1beta2", "v1beta1"],
    product: "Cluster API's kubeadm bootstrap provider",
};

/// `MachineHealthCheck`.
pub const MACHINE_HEALTH_CHECK: Kind = Kind {
    group: "cluster.x-k8s.io",
    kind: "MachineHealthCheck",
    plural: "machinehealthchecks",
    versions: &["v1beta2", "v1beta1"],
    product: "Cluster API",
};

/// `Secret`. Every cluster has it.
pub const SECRET: Kind = Kind {
    group: "",
    kind: "Secret",
    plural: "secrets",
    versions: &["v1"],
    product: "Kubernetes",
};

/// `Event`. Every cluster has it.
pub const EVENT: Kind = Kind {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    versions: &["v1"],
    product: "Kubernetes",
};

/// `SelfSubjectReview`: whom the server takes a caller for. Every cluster has it.
pub const SELF_SUBJECT_REVIEW: Kind = Kind {
    group: "authentication.k8s.io",
    kind: "SelfSubjectReview",
    plural: "selfsubjectreviews",
    versions: &["v1"],
    product: "Kubernetes",
};

/// `Cluster`.
pub const CLUSTER: Kind = Kind {
    group: "cluster.x-k8s.io",
    kind: "Cluster",
    plural: "clusters",
    versions: &["v1beta2", "v1beta1"],
    product: "Cluster API",
};

/// What brings a resource, given as `plural.group`, for the kinds of which we only know that they are missing.
pub(crate) fn product_of(resource: &str) -> &'static str {
    if resource.ends_with(".hive.openshift.io") {
        "Hive"
    } else if resource.ends_with(".cluster.x-k8s.io") {
        "Cluster API"
    } else {
        "what defines that kind"
    }
}

impl Kind {
    /// The kind in one version.
    pub fn at(&self, version: &str) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group, version, self.kind);
        ApiResource::from_gvk_with_plural(&kind, self.plural)
    }

    /// The version to use of those that are served, given in the server's order of preference.
    fn choose<'s>(&self, served: &[&'s str]) -> Option<&'s str> {
        self.versions
            .iter()
            .find_map(|known| served.iter().find(|version| *version == known))
            .or_else(|| served.first())
            .copied()
    }
}

/// What the cluster serves.
#[derive(Clone, Debug)]
pub struct Served {
    groups: Vec<APIGroup>,
    server: String,
}

impl Served {
    /// Asks the cluster, once.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn discover(connection: &Connection) -> Result<Self, Error> {
        let action = Action::path("get", "/apis");
        let list = connection
            .read(&action, || connection.client.list_api_groups())
            .await?;
        Ok(Self {
            groups: list.groups,
            server: connection.server.clone(),
        })
    }

    /// The kind in the version to use.
    ///
    /// # Errors
    /// [`Error::NotServed`] when the cluster does not have the kind's group.
    pub fn resource(&self, kind: &Kind) -> Result<ApiResource, Error> {
        match kind.choose(&self.versions(kind.group)) {
            Some(version) => Ok(kind.at(version)),
            None => Err(Error::NotServed {
                resource: format!("{}.{}", kind.plural, kind.group),
                product: kind.product,
                server: self.server.clone(),
            }),
        }
    }

    /// The kind in a version, if that is served, else in the version to use.
    ///
    /// # Errors
    /// As [`Served::resource`].
    pub fn resource_in(&self, kind: &Kind, version: &str) -> Result<ApiResource, Error> {
        if self.versions(kind.group).contains(&version) {
            Ok(kind.at(version))
        } else {
            self.resource(kind)
        }
    }

    /// A kind of which we know no more than that another object refers to it, in the version that the server prefers.
    /// Its plural is the kind's in lower case, as Cluster API's contract for providers has it.
    ///
    /// # Errors
    /// [`Error::NotServed`] when the cluster does not have the kind's group.
    pub fn referenced(&self, group: &str, kind: &str) -> Result<ApiResource, Error> {
        let resource = |version| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        self.versions(group)
            .first()
            .map(|version| resource(version))
            .ok_or_else(|| {
                let resource = format!("{}.{group}", resource("").plural);
                Error::NotServed {
                    product: product_of(&resource),
                    resource,
                    server: self.server.clone(),
                }
            })
    }

    /// The versions of a group, best first.
    fn versions(&self, group: &str) -> Vec<&str> {
        let group = self.groups.iter().find(|other| other.name == group);
        let versions = group.into_iter().flat_map(|group| {
            // The server lists its versions best first, and says which it prefers beside the list.
            group.preferred_version.iter().chain(&group.versions)
        });
        versions.map(|version| version.version.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::KUBEADM_CONTROL_PLANE;

    #[test]
    fn chooses_the_best_version_that_is_served() {
        for (served, chosen) in [
            (&["v1beta1", "v1beta2"][..], Some("v1beta2")),
            (&["v1beta1"], Some("v1beta1")),
            (&["v1beta1", "v1alpha4"], Some("v1beta1")),
            (&["v1", "v1beta3"], Some("v1")),
            (&[], None),
        ] {
            assert_eq!(KUBEADM_CONTROL_PLANE.choose(served), chosen, "{served:?}");
        }
    }
}
