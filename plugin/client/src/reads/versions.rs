//! Reads the versions of the programs in a cluster.

use kcp_api::{kind::DEPLOYMENT, names::label};
use kcp_control_plane::{addon_update::image_tag, snapshot::Reading};
use kube::core::ObjectMeta;
use serde::Deserialize;

use crate::{Action, Connection, Error, ReadLimit, reader::Reader, reads::failure};

/// The Deployment of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentName {
    pub namespace: &'static str,
    pub name: &'static str,
    /// The value of the label `cluster.x-k8s.io/provider` that clusterctl sets on the Deployments of Cluster API's providers. `None`
    /// for other programs.
    pub provider: Option<&'static str>,
}

/// The Deployment of the control plane controller as clusterctl installs it.
pub const CONTROL_PLANE_CONTROLLER: DeploymentName = DeploymentName {
    namespace: "capi-kubeadm-control-plane-system",
    name: "capi-kubeadm-control-plane-controller-manager",
    provider: Some("control-plane-kubeadm"),
};

/// What a Deployment says about its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployed {
    pub namespace: String,
    pub name: String,
    /// The image of the first container.
    pub image: String,
    /// The value of the label `app.kubernetes.io/version`.
    version_label: Option<String>,
}

impl Deployed {
    /// The tag of the image.
    pub fn tag(&self) -> Option<&str> {
        image_tag(&self.image)
    }

    /// The version in the tag of the image, or else in the label of the Deployment.
    pub fn version(&self) -> Option<&str> {
        self.tag().or(self.version_label.as_deref())
    }
}

/// The version of the API server, such as `v1.36.3`.
pub async fn api_server_version(connection: &Connection) -> Result<String, Error> {
    let action = Action::path("get", "/version");
    let info = connection
        .read(&action, || connection.client.apiserver_version())
        .await?;
    Ok(info.git_version)
}

#[derive(Deserialize)]
struct Deployment {
    metadata: ObjectMeta,
    spec: DeploymentSpec,
}

#[derive(Deserialize)]
struct DeploymentSpec {
    template: PodTemplate,
}

#[derive(Deserialize)]
struct PodTemplate {
    spec: PodSpec,
}

#[derive(Deserialize)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    image: String,
}

impl Deployment {
    fn into_deployed(self) -> Option<Deployed> {
        let mut labels = self.metadata.labels.unwrap_or_default();
        Some(Deployed {
            namespace: self.metadata.namespace.unwrap_or_default(),
            name: self.metadata.name.unwrap_or_default(),
            image: self.spec.template.spec.containers.into_iter().next()?.image,
            version_label: labels.remove("app.kubernetes.io/version"),
        })
    }
}

/// Reads the Deployment of a program. If it does not exist, but its program is a provider of Cluster API, reads the Deployment
/// with the provider's label in any namespace. `None` if neither exists.
pub async fn deployed(
    connection: &Connection,
    deployment: DeploymentName,
) -> Result<Option<Deployed>, Error> {
    let DeploymentName {
        namespace,
        name,
        provider,
    } = deployment;
    let resource = DEPLOYMENT.api_resource("v1");
    let found = match (
        connection.get::<Deployment>(&resource, namespace, name).await,
        provider,
    ) {
        (Ok(found), _) => Some(found),
        (Err(Error::NotFound { .. }), None) => None,
        (Err(Error::NotFound { .. }), Some(provider)) => {
            let selector = format!("{}={provider}", label::PROVIDER);
            match connection.list(&resource, None, Some(&selector)).await {
                Ok(found) => found.into_iter().next(),
                Err(Error::NotFound { .. }) => None,
                Err(error) => return Err(error),
            }
        }
        (Err(error), _) => return Err(error),
    };
    Ok(found.and_then(Deployment::into_deployed))
}

impl Reader<'_> {
    /// Reads the version of the control plane controller once, and then returns the same result.
    pub async fn controller_version(&self, limit: ReadLimit) -> Reading<Option<String>> {
        let read = || async {
            let deployment = CONTROL_PLANE_CONTROLLER;
            let action = Action::new("get", &DEPLOYMENT.api_resource("v1"))
                .in_namespace(deployment.namespace)
                .with_name(deployment.name);
            let read = deployed(self.connection, deployment);
            match self.connection.run_with_limit(limit, &action, read).await {
                Ok(found) => Reading::Read(found.and_then(|found| found.version().map(str::to_owned))),
                // The ClusterRole kcp-reader does not permit this search. Without the version, predictions follow the latest one.
                Err(Error::Forbidden { action, .. }) if action.verb == "list" => Reading::Read(None),
                Err(error) => {
                    let object = failure::object_name(DEPLOYMENT.kind, Some(deployment.name));
                    Reading::Failed(failure::from_error(object, &error))
                }
            }
        };
        self.controller_version.get_or_init(read).await.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use serde_json::{Value, json};

    use crate::{
        Connection, ReadLimit,
        reader::Reader,
        testing::{example::groups, failure},
    };
    use kcp_control_plane::snapshot::Reading;

    const USUAL: &str = "/apis/apps/v1/namespaces/capi-kubeadm-control-plane-system/deployments/\
                         capi-kubeadm-control-plane-controller-manager";
    const LABELLED: &str = "/apis/apps/v1/deployments";

    fn deployment(image: &str) -> Value {
        json!({
            "metadata": {"name": "any", "namespace": "any", "labels": {"app.kubernetes.io/version": "v1.12.3"}},
            "spec": {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}},
        })
    }

    fn denied() -> (u16, Value) {
        failure(403, "Forbidden", "no")
    }

    fn absent() -> (u16, Value) {
        let (code, mut status) = failure(404, "NotFound", "no");
        status["details"] = json!({"name": "x"});
        (code, status)
    }

    /// Reads the version twice. Returns it, or whether its read failed, and the number of requests.
    async fn version(usual: (u16, Value), labelled: (u16, Value)) -> (Result<Option<String>, ()>, usize) {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let known = paths.clone();
        let connection = Connection::canned(move |_, path| match path {
            "/apis" => (200, groups()),
            path => {
                known.lock().expect("a lock").push(path.to_owned());
                match path {
                    USUAL => usual.clone(),
                    LABELLED => labelled.clone(),
                    path => panic!("{path} is not asked for"),
                }
            }
        });
        let reader = Reader::discover(&connection).await.expect("groups");
        let limit = ReadLimit::per_read(Duration::from_secs(10));
        let first = reader.controller_version(limit).await;
        assert_eq!(reader.controller_version(limit).await, first);
        let requests = paths.lock().expect("a lock").len();
        match first {
            Reading::Read(version) => (Ok(version), requests),
            Reading::Failed(_) => (Err(()), requests),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn the_version_of_the_controller_is_read_once() {
        let found = |image: &str| (200, deployment(image));
        let list = |items: &[Value]| (200, json!({ "items": items }));
        let none = || list(&[]);
        let tag = |version: &str| Ok(Some(version.to_owned()));
        let cases = [
            (found("r/c:v1.14.2"), none(), (tag("v1.14.2"), 1)),
            (found("r/c@sha256:0123"), none(), (tag("v1.12.3"), 1)),
            (absent(), list(&[deployment("r/c:v1.13.0")]), (tag("v1.13.0"), 2)),
            (absent(), none(), (Ok(None), 2)),
            (absent(), denied(), (Ok(None), 2)),
            (denied(), none(), (Err(()), 1)),
        ];
        for (usual, labelled, expected) in cases {
            assert_eq!(version(usual, labelled).await, expected);
        }
    }
}
