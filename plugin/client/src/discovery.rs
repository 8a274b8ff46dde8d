//! Finds out which API versions a cluster serves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kcp_api::Kind;
use kube::core::{ApiResource, GroupVersionKind};

use crate::{Action, Connection, Error};

/// The name of the product that installs a resource. `resource` has the form `plural.group`.
pub(crate) fn product_of(resource: &str) -> &'static str {
    if resource.ends_with(".hive.openshift.io") {
        "Hive"
    } else if resource.ends_with(".cluster.x-k8s.io") {
        "Cluster API"
    } else {
        "the product that defines this kind"
    }
}

impl Connection {
    /// Whether the cluster serves the resource. By default, every user can read this, even a user without permission to read
    /// objects of the resource.
    pub async fn serves(&self, resource: &ApiResource) -> Result<bool, Error> {
        let action = Action::path("get", &format!("/apis/{}", resource.api_version));
        let list = self.read(&action, || {
            self.client.list_api_group_resources(&resource.api_version)
        });
        match list.await {
            Ok(list) => Ok(list.resources.iter().any(|served| served.name == resource.plural)),
            Err(Error::NotFound { .. } | Error::NotServed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ServedVersions {
    groups: Vec<APIGroup>,
    server: String,
}

impl ServedVersions {
    /// Reads the API groups of the cluster.
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

    /// Returns the resource of a kind, in the version that the cluster prefers. Fails with
    /// [`Error::NotServed`] if the cluster does not serve the kind's group.
    pub fn resource(&self, kind: &Kind) -> Result<ApiResource, Error> {
        match kind.choose(&self.versions(kind.group)) {
            Some(version) => Ok(kind.api_resource(version)),
            None => Err(Error::NotServed {
                resource: format!("{}.{}", kind.plural, kind.group),
                product: kind.product,
                server: self.server.clone(),
            }),
        }
    }

    /// Returns the resource of a kind in this version if the cluster serves it, otherwise in the preferred version.
    pub fn resource_in(&self, kind: &Kind, version: &str) -> Result<ApiResource, Error> {
        if self.versions(kind.group).contains(&version) {
            Ok(kind.api_resource(version))
        } else {
            self.resource(kind)
        }
    }

    /// Returns the resource of a kind that is known only from a reference, in the preferred version of its
    /// group. The plural is derived from the kind according to Cluster API's provider contract. Fails with [`Error::NotServed`]
    /// if the cluster does not serve the kind's group.
    pub fn resource_of_reference(&self, group: &str, kind: &str) -> Result<ApiResource, Error> {
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

    /// The versions of an API group that the cluster serves, the preferred version first.
    pub fn versions(&self, group: &str) -> Vec<&str> {
        let group = self.groups.iter().find(|other| other.name == group);
        let versions = group.into_iter().flat_map(|group| {
            // The versions are in order of preference, but the preferred version is a separate field.
            group.preferred_version.iter().chain(&group.versions)
        });
        versions.map(|version| version.version.as_str()).collect()
    }
}
