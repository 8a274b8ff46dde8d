//! Decides which combinations of versions to warn about. Pure.

use kcp_control_plane::controller_release::Release;
use kcp_rules::syntax::parse_version;

use super::component::{Component, ComponentState, Program};

/// The oldest Kubernetes whose API server can enforce the shipped webhook configurations and policies.
const OLDEST_KUBERNETES: (u64, u64) = (1, 31);

/// The versions of Cluster API's API that the plugin reads.
const CLUSTER_API_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// The warnings about the components, in their order.
pub(super) fn warnings(components: &[Component]) -> Vec<String> {
    let read = components
        .iter()
        .filter(|component| component.state == ComponentState::Read);
    read.filter_map(|component| match component.program {
        Program::ApiServer => api_server(component),
        Program::ClusterApi => cluster_api(component),
        Program::KubeadmControlPlane => control_plane_provider(component),
        Program::Plugin | Program::KubeadmBootstrap | Program::Hive => None,
        Program::Webhook => webhook(component),
        Program::LeaseRecords => lease_records(component),
    })
    .collect()
}

/// The major and the minor version.
fn minor(version: Option<&str>) -> Option<(u64, u64)> {
    let version = parse_version(version?).ok()?;
    Some((version.major, version.minor))
}

fn api_server(component: &Component) -> Option<String> {
    let version = component.version.as_deref();
    let (major, oldest) = OLDEST_KUBERNETES;
    (minor(version)? < OLDEST_KUBERNETES).then(|| {
        format!(
            "the API server runs Kubernetes {}, but kcp-webhook needs {major}.{oldest} or newer",
            version.unwrap_or_default()
        )
    })
}

fn cluster_api(component: &Component) -> Option<String> {
    let served = &component.api_versions;
    let is_known = served
        .iter()
        .any(|version| CLUSTER_API_VERSIONS.contains(&version.as_str()));
    (!served.is_empty() && !is_known).then(|| {
        format!(
            "the cluster serves Cluster API's API only in {}, which this plugin does not know; it reads {}",
            served.join(", "),
            CLUSTER_API_VERSIONS.join(" and ")
        )
    })
}

fn control_plane_provider(component: &Component) -> Option<String> {
    let version = component.version.as_deref()?;
    let release = Release::parse(version);
    (!release.is_some_and(Release::is_known)).then(|| {
        let (oldest, latest) = (Release::OLDEST, Release::LATEST);
        format!(
            "the kubeadm control plane provider has version {version}, but the plugin predicts only what the releases from \
             {oldest} to {latest} do"
        )
    })
}

/// Both programs have the same rules, so the plugin predicts a denial only if both have the same minor version.
fn webhook(component: &Component) -> Option<String> {
    let version = component.version.as_deref();
    let own = env!("CARGO_PKG_VERSION");
    (minor(version)? != minor(Some(own))?).then(|| {
        format!(
            "kcp-webhook has version {}, but the plugin has {own}: the plugin may predict denials that differ from the \
             webhook's",
            version.unwrap_or_default()
        )
    })
}

fn lease_records(component: &Component) -> Option<String> {
    let known = kcp_pool::objects::record::VERSION;
    let newer: Vec<&str> = component
        .api_versions
        .iter()
        .map(String::as_str)
        .filter(|version| *version != known)
        .collect();
    (!newer.is_empty()).then(|| {
        format!(
            "there are lease records of version {}, but this plugin reads only {known}, and treats the others as leases that \
             never end: upgrade the plugin",
            newer.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Component, ComponentState, Program, warnings};

    fn component(program: Program, version: &str, api_versions: &[&str]) -> Component {
        Component {
            program,
            state: ComponentState::Read,
            version: (!version.is_empty()).then(|| version.to_owned()),
            api_versions: api_versions.iter().map(|&version| version.to_owned()).collect(),
            detail: None,
        }
    }

    #[test]
    fn each_component_has_its_own_limits() {
        let own = env!("CARGO_PKG_VERSION");
        for (program, version, api_versions, expected) in [
            (Program::ApiServer, "v1.31.0", &[][..], None),
            (Program::ApiServer, "v1.36.3+k3s1", &[], None),
            (
                Program::ApiServer,
                "v1.30.14",
                &[],
                Some("the API server runs Kubernetes v1.30.14, but kcp-webhook needs 1.31 or newer"),
            ),
            (Program::ApiServer, "unknown", &[], None),
            (Program::ClusterApi, "v1.14.1", &["v1beta2", "v1beta1"], None),
            (Program::ClusterApi, "", &["v1beta1"], None),
            (
                Program::ClusterApi,
                "v2.0.0",
                &["v1", "v1beta3"],
                Some(
                    "the cluster serves Cluster API's API only in v1, v1beta3, which this plugin does not know; it reads \
                     v1beta2 and v1beta1",
                ),
            ),
            (Program::KubeadmControlPlane, "v1.14.0", &[], None),
            (Program::KubeadmControlPlane, "v1.11.5", &[], None),
            (Program::KubeadmControlPlane, "", &[], None),
            (
                Program::KubeadmControlPlane,
                "v1.10.4",
                &[],
                Some(
                    "the kubeadm control plane provider has version v1.10.4, but the plugin predicts only what the releases from v1.11.0 to \
                     v1.14.2 do",
                ),
            ),
            (Program::Webhook, own, &[], None),
            (
                Program::Webhook,
                "9.9.0",
                &[],
                Some(
                    "kcp-webhook has version 9.9.0, but the plugin has 0.1.0: the plugin may predict denials that \
                     differ from the webhook's",
                ),
            ),
            (Program::Hive, "v1.0.0", &["v1"], None),
            (Program::LeaseRecords, "", &["v1"], None),
            (
                Program::LeaseRecords,
                "",
                &["v1", "v2"],
                Some(
                    "there are lease records of version v2, but this plugin reads only v1, and treats the others as \
                     leases that never end: upgrade the plugin",
                ),
            ),
        ] {
            let found = warnings(&[component(program, version, api_versions)]);
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(found, expected, "{program:?} {version}");
        }
    }
}
