//! Reads the versions of all programs in a cluster. What cannot be read does not hide the rest.

use kcp_api::{
    Kind,
    kind::{CLUSTER, CLUSTER_POOL, KUBEADM_CONFIG, KUBEADM_CONTROL_PLANE},
};
use kcp_client::{
    Connection, Error, ServedVersions,
    reads::versions::{CONTROL_PLANE_CONTROLLER, Deployed, DeploymentName, api_server_version, deployed},
};
use kcp_pool::record_versions::record_versions;

use super::component::{Component, ComponentState, Program};
use crate::session::Session;

/// A program that runs as a Deployment, and the kind that it installs.
struct Installed {
    program: Program,
    deployment: DeploymentName,
    kind: Option<Kind>,
}

/// The Deployments as the release manifests of each project name them.
const INSTALLED: [Installed; 5] = [
    Installed {
        program: Program::ClusterApi,
        deployment: DeploymentName {
            namespace: "capi-system",
            name: "capi-controller-manager",
            provider: Some("cluster-api"),
        },
        kind: Some(CLUSTER),
    },
    Installed {
        program: Program::KubeadmBootstrap,
        deployment: DeploymentName {
            namespace: "capi-kubeadm-bootstrap-system",
            name: "capi-kubeadm-bootstrap-controller-manager",
            provider: Some("bootstrap-kubeadm"),
        },
        kind: Some(KUBEADM_CONFIG),
    },
    Installed {
        program: Program::KubeadmControlPlane,
        deployment: CONTROL_PLANE_CONTROLLER,
        kind: Some(KUBEADM_CONTROL_PLANE),
    },
    Installed {
        program: Program::Hive,
        deployment: DeploymentName {
            namespace: "hive",
            name: "hive-controllers",
            provider: None,
        },
        kind: Some(CLUSTER_POOL),
    },
    Installed {
        program: Program::Webhook,
        deployment: DeploymentName {
            namespace: kcp_rules::registration::NAMESPACE,
            name: "kcp-webhook",
            provider: None,
        },
        kind: None,
    },
];

/// Reads the versions of all programs except the plugin.
pub(super) async fn read(session: &Session) -> Vec<Component> {
    match session.connect().await {
        Ok(connection) => read_connected(&connection).await,
        Err(error) => vec![Component::unread(Program::ApiServer, failure(&error))],
    }
}

/// Reads the versions of all programs except the plugin, from this cluster.
pub(super) async fn read_connected(connection: &Connection) -> Vec<Component> {
    let api_server = match api_server_version(connection).await {
        Ok(version) => Component {
            version: Some(version),
            detail: Some(connection.server.clone()),
            ..Component::new(Program::ApiServer, ComponentState::Read)
        },
        // Every other read would fail in the same way.
        Err(error) if !matches!(error, Error::Forbidden { .. }) => {
            return vec![Component::unread(Program::ApiServer, failure(&error))];
        }
        Err(error) => Component::unread(Program::ApiServer, failure(&error)),
    };
    let served = ServedVersions::discover(connection).await;
    let mut components = vec![api_server];
    for installed in &INSTALLED {
        components.push(installed.read(connection, served.as_ref()).await);
    }
    components.extend(lease_records(connection, served.as_ref()).await);
    components
}

/// The error with its hint.
fn failure(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

impl Installed {
    async fn read(&self, connection: &Connection, served: Result<&ServedVersions, &Error>) -> Component {
        let api_versions = match (&self.kind, served) {
            (None, _) => Vec::new(),
            (Some(kind), Ok(served)) => {
                let mut versions: Vec<String> = Vec::new();
                // The preferred version occurs twice.
                for version in served.versions(kind.group) {
                    if !versions.iter().any(|known| known == version) {
                        versions.push(version.to_owned());
                    }
                }
                versions
            }
            (Some(_), Err(error)) => return Component::unread(self.program, failure(error)),
        };
        let component = |state| Component {
            api_versions: api_versions.clone(),
            ..Component::new(self.program, state)
        };
        match deployed(connection, self.deployment).await {
            Ok(Some(found)) => Component {
                version: found.version().map(str::to_owned),
                detail: Some(source(&found)),
                ..component(ComponentState::Read)
            },
            Ok(None) if api_versions.is_empty() => component(ComponentState::Absent),
            Ok(None) => {
                let DeploymentName { namespace, name, .. } = self.deployment;
                Component {
                    detail: Some(format!("there is no Deployment {namespace}/{name}")),
                    ..component(ComponentState::Read)
                }
            }
            // Without its API, the provider is not installed under another name either.
            Err(Error::Forbidden { action, .. }) if action.verb == "list" && api_versions.is_empty() => {
                component(ComponentState::Absent)
            }
            Err(error) => Component {
                api_versions: api_versions.clone(),
                ..Component::unread(self.program, failure(&error))
            },
        }
    }
}

/// Where the version of a Deployment comes from.
fn source(found: &Deployed) -> String {
    let Deployed {
        namespace,
        name,
        image,
        ..
    } = found;
    match (found.tag(), found.version()) {
        (Some(_), _) => format!("image of Deployment {namespace}/{name}"),
        (None, Some(_)) => format!("label of Deployment {namespace}/{name}"),
        (None, None) => format!("Deployment {namespace}/{name} has an image without a tag: {image}"),
    }
}

/// The versions of the lease records in the namespace. `None` if the cluster does not serve Hive's kinds.
async fn lease_records(
    connection: &Connection,
    served: Result<&ServedVersions, &Error>,
) -> Option<Component> {
    let program = Program::LeaseRecords;
    let versions = match record_versions(connection, served.ok()?).await {
        Ok(versions) => versions,
        Err(Error::NotServed { .. }) => return None,
        Err(error) => return Some(Component::unread(program, failure(&error))),
    };
    let namespace = &connection.namespace;
    Some(Component {
        detail: Some(if versions.is_empty() {
            format!("no leases in namespace {namespace}")
        } else {
            format!("in namespace {namespace}")
        }),
        api_versions: versions.into_iter().collect(),
        ..Component::new(program, ComponentState::Read)
    })
}

#[cfg(test)]
mod tests {
    use kcp_client::testing::{example::groups, failure};
    use serde_json::{Value, json};

    use super::{ComponentState, Connection, INSTALLED, Program, ServedVersions};

    /// The state of Cluster API and its detail, if no Deployment has the usual name.
    async fn cluster_api(apis: Value, listed: (u16, Value)) -> (ComponentState, Option<String>) {
        let connection = Connection::canned(move |_, path| match path {
            "/apis" => (200, apis.clone()),
            "/apis/apps/v1/deployments" => listed.clone(),
            _ => {
                let (code, mut status) = failure(404, "NotFound", "no");
                status["details"] = json!({"name": "x"});
                (code, status)
            }
        });
        let served = ServedVersions::discover(&connection).await;
        let [first, ..] = &INSTALLED;
        let found = first.read(&connection, served.as_ref()).await;
        assert_eq!(found.program, Program::ClusterApi);
        (found.state, found.detail)
    }

    #[tokio::test]
    async fn deployments_that_cannot_be_listed_are_unread() {
        let none = || (200, json!({"items": []}));
        let denied = || failure(403, "Forbidden", "no");
        let empty = || json!({"groups": []});
        let absent = "there is no Deployment capi-system/capi-controller-manager";
        let cannot = "cannot list deployments in all namespaces: forbidden";
        for (apis, listed, state, detail) in [
            (groups(), none(), ComponentState::Read, Some(absent)),
            (groups(), denied(), ComponentState::Unread, Some(cannot)),
            (empty(), none(), ComponentState::Absent, None),
            (empty(), denied(), ComponentState::Absent, None),
        ] {
            let (found, why) = cluster_api(apis, listed).await;
            assert_eq!(found, state, "{why:?}");
            let why = why.as_deref();
            let is_expected = match detail {
                Some(detail) => why.is_some_and(|why| why.starts_with(detail)),
                None => why.is_none(),
            };
            assert!(is_expected, "{why:?} instead of {detail:?}");
        }
    }
}
