//! Reads the versions of the programs in a cluster.

use kcp_api::kind::DEPLOYMENT;
use serde::Deserialize;

use crate::{Action, Connection, Error};

/// The Deployment of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentName {
    pub namespace: &'static str,
    pub name: &'static str,
}

/// The version of the API server, such as `v1.36.3`.
///
/// # Errors
/// Same as [`Connection::read`].
pub async fn api_server_version(connection: &Connection) -> Result<String, Error> {
    let action = Action::path("get", "/version");
    let info = connection
        .read(&action, || connection.client.apiserver_version())
        .await?;
    Ok(info.git_version)
}

/// The image of the first container. None if the Deployment does not exist.
///
/// # Errors
/// Same as [`Connection::get`].
pub async fn image(connection: &Connection, deployment: DeploymentName) -> Result<Option<String>, Error> {
    #[derive(Deserialize)]
    struct Deployment {
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

    let DeploymentName { namespace, name } = deployment;
    let resource = DEPLOYMENT.api_resource("v1");
    match connection.get::<Deployment>(&resource, namespace, name).await {
        Ok(deployment) => {
            let containers = deployment.spec.template.spec.containers;
            Ok(containers.into_iter().next().map(|container| container.image))
        }
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
