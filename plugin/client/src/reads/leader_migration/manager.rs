//! Reads which controllers a controller manager runs, from `/healthz?verbose`, and its settings, from `/configz`,
//! `/flagz` or its Pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kcp_api::KubeadmControlPlane;
use kcp_control_plane::leader_migration::{
    Health, ObservedManager, Settings, SettingsSource,
    served::{self, controllers_in_healthz, flags_in_flagz, manager_in_configz},
};
use kcp_rules::leader_migration::{
    Component, Flags,
    workload::{MountedFile, Workload},
};
use serde_json::Value;

use super::pods::ManagerPod;
use crate::{
    reads::{
        failure::one_line,
        workload::{WorkloadCluster, get_text, http_error},
    },
    workload::{ComponentError, ComponentResponse, ComponentServer, PortForward},
};

/// The maximum size of a response in mebibytes. The response of `/configz` has about ten kilobytes.
const MAX_RESPONSE_MEBIBYTES: usize = 1;

const HEALTHZ: &str = "/healthz?verbose";

/// The media types of `/flagz` as JSON. `/flagz` as text is not meant to be parsed: its separator is random.
const FLAGZ_AS_JSON: &str = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz,\
                             application/json;v=v1alpha1;g=config.k8s.io;as=Flagz";

/// Reads the controller managers of a workload cluster.
pub(super) struct ManagerReader<'r> {
    pub(super) cluster: &'r WorkloadCluster,
    /// The control plane, whose `files` may contain a leader migration configuration.
    pub(super) control_plane: &'r KubeadmControlPlane,
    /// The time limit of each request.
    pub(super) limit: Duration,
}

/// A controller manager, as its Pod describes it.
struct DescribedManager<'p> {
    pod: &'p ManagerPod,
    workload: Workload<'p>,
    /// The flags of the controller manager. `None` if the Pod does not show them.
    flags: Option<Flags>,
}

impl ManagerReader<'_> {
    pub(super) async fn read(&self, pod: ManagerPod) -> ObservedManager {
        let (minor, health, settings) =
            if let Some(workload) = Workload::find_component(pod.component, &pod.manifest) {
                let described = DescribedManager {
                    flags: workload.flags(),
                    pod: &pod,
                    workload,
                };
                let (health, settings) = Box::pin(self.health_and_settings(&described)).await;
                (workload.minor(), health, settings)
            } else {
                let why = "no container of the Pod runs a controller manager";
                (None, Health::Unread(why.to_owned()), Settings::unknown(why))
            };
        ObservedManager {
            component: pod.component,
            namespace: pod.namespace,
            pod: pod.name,
            node: pod.node,
            minor,
            health,
            settings,
        }
    }

    async fn health_and_settings(&self, described: &DescribedManager<'_>) -> (Health, Settings) {
        let DescribedManager { pod, flags, .. } = described;
        if let Some(why) = &pod.down_reason {
            return (
                Health::Down(why.clone()),
                self.settings_from_pod(described, why.clone()).await,
            );
        }
        let Some(port) = port(pod.component, flags.as_ref().unwrap_or(&Flags::default())) else {
            let why = "--secure-port disables the controller manager's server".to_owned();
            return (
                Health::Unread(why.clone()),
                self.settings_from_pod(described, why).await,
            );
        };
        let server = ComponentServer {
            forward: PortForward::new(
                self.cluster.server.client.clone(),
                &pod.namespace,
                &pod.name,
                port,
            ),
            port,
            tls: &self.cluster.server.component_tls,
            limit: self.limit,
            max_mebibytes: MAX_RESPONSE_MEBIBYTES,
        };
        let health = health(&server).await;
        let settings = match &health {
            Health::Serves(_) => self.settings(&server, described).await,
            Health::Down(why) | Health::Unread(why) => self.settings_from_pod(described, why.clone()).await,
        };
        (health, settings)
    }

    async fn settings(&self, server: &ComponentServer<'_>, described: &DescribedManager<'_>) -> Settings {
        let (component, minor) = (described.pod.component, described.workload.minor());
        let configz = get_text(server, "/configz", "application/json").await;
        let configz = configz.and_then(|text| manager_in_configz(component, minor, &text));
        let why = match configz {
            Ok(manager) => {
                return Settings {
                    source: SettingsSource::Configz,
                    described: Ok(manager),
                    unverified_reason: None,
                };
            }
            Err(why) => why,
        };
        let response = get_text(server, "/flagz", FLAGZ_AS_JSON).await;
        match response.and_then(|text| flags_in_flagz(&text)) {
            Ok(flags) => {
                self.settings_from_flags(described, SettingsSource::Flagz, flags, why)
                    .await
            }
            Err(_) => self.settings_from_pod(described, why).await,
        }
    }

    async fn settings_from_pod(&self, described: &DescribedManager<'_>, why: String) -> Settings {
        let Some(flags) = described.flags.clone() else {
            return Settings::unknown(&format!(
                "{why}; the Pod does not show the controller manager's flags"
            ));
        };
        self.settings_from_flags(described, SettingsSource::Pod, flags, why)
            .await
    }

    /// Returns the settings in the flags, and in the leader migration configuration that the flags name. `why` says why
    /// no better source was read.
    async fn settings_from_flags(
        &self,
        described: &DescribedManager<'_>,
        source: SettingsSource,
        flags: Flags,
        why: String,
    ) -> Settings {
        let file = match flags.configuration_path() {
            None => Ok(None),
            Some(path) => self.file(described, path).await.map(Some),
        };
        let (component, minor) = (described.pod.component, described.workload.minor());
        Settings {
            source,
            described: match file {
                Ok(file) => Ok(served::manager(component, minor, flags, file.as_deref())),
                Err(error) => Err(format!("{why}; {error}")),
            },
            unverified_reason: Some(why),
        }
    }

    /// Reads the content of a file that the controller manager reads at startup.
    async fn file(&self, described: &DescribedManager<'_>, path: &str) -> Result<String, String> {
        match described.workload.file(path) {
            MountedFile::ConfigMap { name, key } => {
                let read = self
                    .cluster
                    .objects
                    .get::<ConfigMap>(&described.pod.namespace, &name)
                    .await;
                let config_map = read.map_err(|error| one_line(&error.to_string()))?;
                let data = config_map.and_then(|config_map| config_map.data?.remove(&key));
                data.ok_or_else(|| format!("the ConfigMap {name} has no key {key}"))
            }
            MountedFile::Host(path) => inline_file(self.control_plane, &path).ok_or_else(|| {
                format!(
                    "{path} is a file on the Node, and spec.kubeadmConfigSpec.files does not contain it as plain \
                     text"
                )
            }),
            MountedFile::Unknown => Err(format!("{path} comes neither from a ConfigMap nor from the Node")),
        }
    }
}

/// The port of a controller manager's server. `None` if the flags disable the server.
fn port(component: Component, flags: &Flags) -> Option<u16> {
    let default = match component {
        Component::Kube => 10257,
        Component::Cloud => 10258,
    };
    match flags.text("secure-port") {
        None => Some(default),
        Some(port) => port.parse().ok().filter(|port| *port != 0),
    }
}

async fn health(server: &ComponentServer<'_>) -> Health {
    let mut response = server.get_anonymously(HEALTHZ).await;
    // Ask again with the client certificate, because --authorization-always-allow-paths may exclude /healthz.
    if matches!(&response, Ok(response) if matches!(response.code, 401 | 403)) {
        response = server.get(HEALTHZ, "*/*").await;
    }
    match response {
        // 500 means that a check fails.
        Ok(ComponentResponse {
            code: 200 | 500,
            text,
        }) => match controllers_in_healthz(&text) {
            Some(started) => Health::Serves(started),
            None => Health::Unread("the response to /healthz?verbose lists no checks".to_owned()),
        },
        Ok(response) => Health::Unread(http_error("/healthz", response.code)),
        Err(error @ ComponentError::Refused { .. }) => Health::Down(error.to_string()),
        Err(error) => Health::Unread(one_line(&error.to_string())),
    }
}

/// The content of a file in the control plane's spec. `None` if the spec has no such file, encodes it, or takes it from a
/// Secret.
fn inline_file(control_plane: &KubeadmControlPlane, path: &str) -> Option<String> {
    let files = control_plane.spec.kubeadm_config_spec.fields.get("files")?;
    let text = |file: &Value, name: &str| file.get(name).and_then(Value::as_str).map(str::to_owned);
    let file = files
        .as_array()?
        .iter()
        .find(|file| text(file, "path").as_deref() == Some(path))?;
    text(file, "encoding")
        .is_none_or(|encoding| encoding.is_empty())
        .then_some(())?;
    text(file, "content").filter(|content| !content.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_are_those_of_the_flags() {
        for (component, flags, expected) in [
            (Component::Kube, "", Some(10257)),
            (Component::Cloud, "", Some(10258)),
            (Component::Cloud, "--secure-port=7", Some(7)),
            (Component::Kube, "--secure-port=0", None),
            (Component::Kube, "--secure-port=x", None),
        ] {
            let flags = Flags::from_command(flags.split(' '));
            assert_eq!(port(component, &flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn only_plain_files_of_the_control_plane_are_used() {
        let mut control_plane = kcp_control_plane::testing::plan::observed().control_plane;
        control_plane.spec.kubeadm_config_spec.fields = json!({"files": [
            {"path": "/a", "content": "text"},
            {"path": "/b", "content": "dGV4dA==", "encoding": "base64"},
            {"path": "/c", "contentFrom": {"secret": {"name": "s", "key": "k"}}},
        ]});
        for (path, expected) in [("/a", Some("text")), ("/b", None), ("/c", None), ("/d", None)] {
            assert_eq!(inline_file(&control_plane, path).as_deref(), expected, "{path}");
        }
    }
}
