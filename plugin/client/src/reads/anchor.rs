//! Reads how the anchor of kcp-webhook is installed.

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ConfigMap};
use kcp_api::kind::{CONFIG_MAP, DAEMON_SET};
use kcp_rules::anchor::{ANCHOR, CONFIGURATION};

use crate::{Action, Connection, Error, ReadLimit};

/// The name of the ConfigMap that the Pods mount, in `manifests/base`.
const CONFIG_MAP_NAME: &str = "kcp-webhook";

/// The container of the anchor, and the configuration of the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledAnchor {
    pub image: String,
    pub arguments: Vec<String>,
    /// `None` if every rule has its default action.
    pub configuration: Option<String>,
}

/// Reads the DaemonSet of the anchor and the ConfigMap of the webhook in a namespace.
pub async fn read_anchor(
    connection: &Connection,
    namespace: &str,
    limit: ReadLimit,
) -> Result<InstalledAnchor, Error> {
    let resource = DAEMON_SET.api_resource("v1");
    let action = Action::new("get", &resource)
        .in_namespace(namespace)
        .with_name(ANCHOR);
    let read = connection.get::<DaemonSet>(&resource, namespace, ANCHOR);
    let daemon_set = connection.run_with_limit(limit, &action, read).await?;
    let resource = CONFIG_MAP.api_resource("v1");
    let of_map = Action::new("get", &resource)
        .in_namespace(namespace)
        .with_name(CONFIG_MAP_NAME);
    let read = connection.get::<ConfigMap>(&resource, namespace, CONFIG_MAP_NAME);
    let configuration = match connection.run_with_limit(limit, &of_map, read).await {
        Ok(map) => map.data.and_then(|mut data| data.remove(CONFIGURATION)),
        Err(Error::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    let spec = daemon_set.spec.and_then(|spec| spec.template.spec);
    let container = spec.and_then(|spec| spec.containers.into_iter().next());
    let installed = container.and_then(|container| {
        Some(InstalledAnchor {
            image: container.image?,
            arguments: container.args.unwrap_or_default(),
            configuration,
        })
    });
    installed.ok_or_else(|| Error::Other {
        action,
        cause: "its container has no image".to_owned(),
    })
}
