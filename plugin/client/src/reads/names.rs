//! Lists names for the completion of a command line: without discovery, and page by page, so that a time limit loses only
//! the pages that have not arrived.

use kcp_api::{Kind, PartialObjectMetadata, kind::KUBEADM_CONTROL_PLANE};
use kube::core::ApiResource;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{Connection, Error, request::Pages};

/// Adds the metadata of the objects of a kind to `found`. If the cluster does not respond or refuses a request, adds only what
/// was read before. `namespace` is none for a cluster-scoped kind.
pub async fn list_metadata(
    connection: &Connection,
    kind: &Kind,
    namespace: Option<&str>,
    selector: Option<&str>,
    found: &mut Vec<PartialObjectMetadata>,
) {
    let pages = |resource: &ApiResource| connection.metadata_pages(resource, namespace, selector);
    read_pages(kind, pages, found).await;
}

/// Adds `spec.version` of each control plane in the connection's namespace.
pub async fn list_versions(connection: &Connection, found: &mut Vec<String>) {
    #[derive(Deserialize)]
    struct ControlPlane {
        spec: Spec,
    }

    #[derive(Deserialize)]
    struct Spec {
        version: Option<String>,
    }

    let pages = |resource: &ApiResource| connection.pages(resource, Some(&connection.namespace), None);
    let mut control_planes: Vec<ControlPlane> = Vec::new();
    read_pages(&KUBEADM_CONTROL_PLANE, pages, &mut control_planes).await;
    found.extend(
        control_planes
            .into_iter()
            .filter_map(|control_plane| control_plane.spec.version),
    );
}

/// Reads all pages of a kind, in the first of its versions that the server serves.
async fn read_pages<'c, T: DeserializeOwned>(
    kind: &Kind,
    pages: impl Fn(&ApiResource) -> Pages<'c>,
    found: &mut Vec<T>,
) {
    for version in kind.versions {
        let mut pages = pages(&kind.api_resource(version));
        loop {
            match pages.next::<T>().await {
                Ok(Some(page)) => found.extend(page),
                Err(Error::NotServed { .. }) => break,
                Ok(None) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::kind::{CLUSTER_POOL, KUBEADM_CONTROL_PLANE};
    use serde_json::{Value, json};

    use super::{list_metadata, list_versions};
    use crate::{Connection, testing::failure};

    /// A server that serves only v1beta1, in pages of one control plane.
    fn old_server() -> Connection {
        Connection::canned(|_, path| {
            if path.contains("/v1beta1/") {
                (
                    200,
                    json!({
                        "metadata": {},
                        "items": [{"metadata": {"name": "edge"}, "spec": {"version": "v1.34.1"}}],
                    }),
                )
            } else {
                (404, Value::String("404 page not found".to_owned()))
            }
        })
    }

    #[tokio::test]
    async fn an_old_version_is_read_if_no_newer_one_is_served() {
        let mut found = Vec::new();
        list_metadata(&old_server(), &KUBEADM_CONTROL_PLANE, Some("d"), None, &mut found).await;
        assert_eq!(
            found.iter().map(kcp_api::Object::name).collect::<Vec<_>>(),
            ["edge"]
        );
        let mut versions = Vec::new();
        list_versions(&old_server(), &mut versions).await;
        assert_eq!(versions, ["v1.34.1"]);
    }

    #[tokio::test]
    async fn what_the_server_refuses_or_does_not_serve_is_empty() {
        let mut found = Vec::new();
        list_metadata(&old_server(), &CLUSTER_POOL, Some("d"), None, &mut found).await;
        let refusing = Connection::canned(|_, _| failure(403, "Forbidden", "no"));
        list_metadata(&refusing, &KUBEADM_CONTROL_PLANE, Some("d"), None, &mut found).await;
        assert!(found.is_empty());
    }
}
