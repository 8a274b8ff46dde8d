//! Which version of a kind the cluster serves. Asked, never assumed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kcp_api::Kind;
use kube::core::{ApiResource, GroupVersionKind};

use crate::{Action, Connection, Error};

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
