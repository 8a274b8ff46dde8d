//! What is known about each program.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Component {
    #[serde(rename = "name")]
    pub(super) program: Program,
    pub(super) state: ComponentState,
    /// The version, as the program writes it; absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The versions of the program's API that the API server serves, the preferred version first. For `lease-records`, the versions
    /// of the records in the namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) api_versions: Vec<String>,
    /// Where the version was found, or why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Program {
    Plugin,
    ApiServer,
    ClusterApi,
    KubeadmBootstrap,
    KubeadmControlPlane,
    Hive,
    Webhook,
    LeaseRecords,
}

impl Program {
    /// The name in a table.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Plugin => "kubectl-kcp",
            Self::ApiServer => "API server",
            Self::ClusterApi => "Cluster API",
            Self::KubeadmBootstrap => "kubeadm bootstrap provider",
            Self::KubeadmControlPlane => "kubeadm control plane provider",
            Self::Hive => "Hive",
            Self::Webhook => "kcp-webhook",
            Self::LeaseRecords => "lease records",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum ComponentState {
    Read,
    /// Not installed, or not under the usual name.
    Absent,
    Unread,
}

impl Component {
    /// The plugin itself.
    pub(super) fn plugin() -> Self {
        Self {
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            detail: Some(format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)),
            ..Self::new(Program::Plugin, ComponentState::Read)
        }
    }

    pub(super) const fn new(program: Program, state: ComponentState) -> Self {
        Self {
            program,
            state,
            version: None,
            api_versions: Vec::new(),
            detail: None,
        }
    }

    pub(super) fn unread(program: Program, why: impl Into<String>) -> Self {
        Self {
            detail: Some(why.into()),
            ..Self::new(program, ComponentState::Unread)
        }
    }
}
