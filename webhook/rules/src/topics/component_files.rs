//! Files that a component reads at startup, and that no volume of its Pod contains.

use crate::{
    action::Action,
    api::{
        ControlPlaneSpec,
        kubeadm_config::{ClusterConfiguration, HostPathMount, KubeadmConfigSpec},
    },
    case::{Case, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    components::Component,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, ON_WRITE, Rule, Scope},
    topics::{
        Topic,
        component_flags::{Given, given},
        extra_args::has_placeholder,
        leader_migration::{host_path, length_above},
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "component-files",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[Rule {
    id: "component-file-unmounted",
    summary: "a volume must contain each file that a component reads at startup",
    why: "A component runs in a container, and sees only the files of its volumes. It exits at startup if a flag names a file \
              that it does not see.",
    operations: ON_WRITE,
    action: Action::Deny,
    scope: Scope::Object,
    overridable: true,
    source: "kubeadm, app/phases/controlplane/volumes.go; kubernetes/kubernetes#133574",
    check: Check::ControlPlaneSpec(file_unmounted),
    cel: Cel::None(NoCel::TooLong),
}];

/// The flags with files that a component reads at startup.
const fn files(component: Component) -> &'static [&'static str] {
    match component {
        Component::ApiServer => &[
            "admission-control-config-file",
            "audit-policy-file",
            "audit-webhook-config-file",
            "authentication-config",
            "authentication-token-webhook-config-file",
            "authorization-config",
            "authorization-webhook-config-file",
            "client-ca-file",
            "egress-selector-config-file",
            "encryption-provider-config",
            "etcd-cafile",
            "etcd-certfile",
            "etcd-keyfile",
            "kubelet-certificate-authority",
            "kubelet-client-certificate",
            "kubelet-client-key",
            "oidc-ca-file",
            "peer-ca-file",
            "proxy-client-cert-file",
            "proxy-client-key-file",
            "requestheader-client-ca-file",
            "service-account-key-file",
            "service-account-signing-key-file",
            "tls-cert-file",
            "tls-private-key-file",
            "token-auth-file",
            "tracing-config-file",
        ],
        Component::ControllerManager => &[
            "authentication-kubeconfig",
            "authorization-kubeconfig",
            "client-ca-file",
            "kubeconfig",
            "requestheader-client-ca-file",
            "root-ca-file",
            "service-account-private-key-file",
            "tls-cert-file",
            "tls-private-key-file",
        ],
        Component::Scheduler => &[
            "authentication-kubeconfig",
            "authorization-kubeconfig",
            "client-ca-file",
            "config",
            "kubeconfig",
            "requestheader-client-ca-file",
            "tls-cert-file",
            "tls-private-key-file",
        ],
        Component::Etcd => &[
            "cert-file",
            "client-crl-file",
            "config-file",
            "key-file",
            "peer-cert-file",
            "peer-crl-file",
            "peer-key-file",
            "peer-trusted-ca-file",
            "trusted-ca-file",
        ],
        // The kubelet runs on the host.
        Component::Kubelet => &[],
    }
}

/// The only file that kubeadm mounts into kube-scheduler.
const SCHEDULER_KUBECONFIG: &str = "/etc/kubernetes/scheduler.conf";
/// kubeadm's `CertificatesDir` and `DataDir` of etcd, by default.
const CERTIFICATES: &str = "/etc/kubernetes/pki";
const ETCD_DATA: &str = "/var/lib/etcd";

/// Whether the Pod of a component sees a file (kubeadm, `phases/controlplane/volumes.go` and `phases/etcd/local.go`).
fn is_mounted(component: Component, path: &str, cluster: &ClusterConfiguration<'_>) -> bool {
    let is_set = |folder: &&str| !folder.is_empty();
    let certificates = cluster.certificates_dir.as_deref().filter(is_set);
    let settings = match component {
        Component::ApiServer => &cluster.api_server,
        Component::ControllerManager => &cluster.controller_manager,
        Component::Scheduler => &cluster.scheduler,
        Component::Etcd => {
            let local = cluster.etcd.as_ref().and_then(|etcd| etcd.local.as_ref());
            let data = local.and_then(|local| local.data_dir.as_deref()).filter(is_set);
            let certificates = format!("{}/etcd", certificates.unwrap_or(CERTIFICATES));
            let mounts = [certificates.as_str(), data.unwrap_or(ETCD_DATA)];
            return mounts.iter().any(|mount| length_above(path, mount).is_some());
        }
        Component::Kubelet => return true,
    };
    let volumes = settings
        .as_ref()
        .and_then(|settings| settings.extra_volumes.as_deref())
        .unwrap_or_default();
    let is_in = |volume: &HostPathMount<'_>| {
        let mount = volume.mount_path.as_deref();
        mount.is_some_and(|mount| length_above(path, &from_root(mount)).is_some())
    };
    volumes.iter().any(is_in)
        || match component {
            Component::Scheduler => path == SCHEDULER_KUBECONFIG,
            _ => host_path(path, &[], certificates).is_some(),
        }
}

fn file_unmounted(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(cluster) = spec.cluster_configuration() else {
        return;
    };
    // A patch of kubeadm may add volumes to a Pod.
    if spec.kubeadm_config().is_some_and(KubeadmConfigSpec::has_patches) {
        return;
    }
    let has_external_etcd = spec
        .kubeadm_config()
        .is_some_and(KubeadmConfigSpec::has_external_etcd);
    for Given { component, flags, .. } in given(spec) {
        // kubeadm also mounts the folders with the certificates for an external etcd.
        if component == Component::ApiServer && has_external_etcd {
            continue;
        }
        let set = files(component).iter().filter_map(|name| flags.get(name));
        for flag in set.filter(|flag| !flag.value.is_empty() && !has_placeholder(flag.value)) {
            if is_mounted(component, &from_root(flag.value), cluster) {
                continue;
            }
            let program = component.name();
            let remedy = match component {
                Component::ApiServer => "add the file to apiServer.extraVolumes",
                Component::ControllerManager => "add the file to controllerManager.extraVolumes",
                Component::Scheduler => "add the file to scheduler.extraVolumes",
                Component::Etcd | Component::Kubelet => {
                    "put the file into CERTIFICATES_DIR/etcd, which kubeadm mounts into etcd"
                }
            };
            let fault = Fault {
                field: flag.path(spec),
                reason: CauseReason::NotFound,
                value: Some(HIDDEN.to_owned()),
                detail: format!("no volume of {program} contains this path, so {program} exits at startup")
                    .into(),
                remedy: remedy.into(),
            };
            faults.push_redacted(flag.value, fault);
        }
    }
}

/// The absolute path of a file, without repeated slashes, `.` and `..`. The components run in the root folder.
fn from_root(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("/{}", parts.join("/"))
}

const FILE: &str = "component-file-unmounted";

const API_SERVER: &str = "spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value";

const CASES: &[Case] = &[
    Case::create(
        "accepts_files_in_volumes",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"audit-policy-file","value":"/etc/kubernetes/audit/policy.yaml"},
                {"name":"audit-log-path","value":"/var/log/audit.log"},
                {"name":"oidc-ca-file","value":"etc/kubernetes//pki/./oidc.crt"},{"name":"token-auth-file","value":""},
                {"name":"tracing-config-file","value":"{{ ds.meta_data.tracing }}"}],
                "extraVolumes":[{"name":"audit","hostPath":"/etc/audit","mountPath":"/etc/kubernetes/audit"}]},
            "scheduler":{"extraArgs":[{"name":"config","value":"/etc/kubernetes/scheduler/config.yaml"}],
                "extraVolumes":[{"name":"config","hostPath":"/etc/s","mountPath":"/etc/kubernetes/scheduler/config.yaml"}]},
            "etcd":{"local":{"dataDir":"/data","extraArgs":[{"name":"peer-crl-file","value":"/data/crl"},
                {"name":"trusted-ca-file","value":"/etc/kubernetes/pki/etcd/ca.crt"}]}}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_files_without_a_volume",
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"audit-policy-file","value":"/etc/kubernetes/audit-policy.yaml"}]},
            "scheduler":{"extraArgs":[{"name":"config","value":"/etc/kubernetes/pki/config.yaml"}]},
            "etcd":{"local":{"extraArgs":[{"name":"trusted-ca-file","value":"/etc/kubernetes/pki/ca.crt"}]}}}}}}"#,
        &[
            (FILE, API_SERVER),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.scheduler.extraArgs[0].value"),
            (FILE, "spec.kubeadmConfigSpec.clusterConfiguration.etcd.local.extraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
    Case::template(
        "rejects_files_without_a_volume_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{
            "apiServer":{"extraArgs":[{"name":"tracing-config-file","value":"/etc/tracing.yaml"}]},
            "controllerManager":{"extraArgs":[{"name":"root-ca-file","value":"/etc/root.crt"}]}}}}}}}"#,
        &[
            (FILE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.apiServer.extraArgs[0].value"),
            (FILE, "spec.template.spec.kubeadmConfigSpec.clusterConfiguration.controllerManager.extraArgs[0].value"),
        ],
    )
    .only_in_version(V1BETA2),
];
