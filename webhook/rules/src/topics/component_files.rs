//! Files that a component reads at startup, and that no volume of its Pod contains.

use crate::{
    api::{
        ControlPlaneSpec,
        kubeadm_config::{ClusterConfiguration, KubeadmConfigSpec},
    },
    cel::{Cel, NoCel},
    change::Change,
    components::Component,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, Rule, Scope},
    topics::{
        Topic,
        component_flags::{Given, given},
        extra_args::{FlagValue, has_placeholder},
        leader_migration::length_above,
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "component-files",
    rules: RULES,
};

const RULES: &[Rule] = &[Rule {
    id: "component-file-unmounted",
    summary: "a volume must contain each file that a component reads at startup",
    why: "A component runs in a container, and sees only the files of its volumes. It exits at startup if a flag names a file \
              that it does not see.",
    scope: Scope::Object,
    overridable: true,
    source: "kubeadm, app/phases/controlplane/volumes.go; kubernetes/kubernetes#133574",
    check: Check::ControlPlaneSpec(file_unmounted),
    cel: Cel::None(NoCel::TooLong),
    ..Rule::USUAL
}];

/// The flag with a certificate and its key, as `CERTIFICATE,KEY:NAMES`.
const SNI: &str = "tls-sni-cert-key";

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
            "authorization-policy-file",
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
            SNI,
            "token-auth-file",
            "tracing-config-file",
        ],
        Component::ControllerManager => &[
            "authentication-kubeconfig",
            "authorization-kubeconfig",
            "client-ca-file",
            "cluster-signing-cert-file",
            "cluster-signing-key-file",
            "kubeconfig",
            "requestheader-client-ca-file",
            "root-ca-file",
            "service-account-private-key-file",
            "tls-cert-file",
            "tls-private-key-file",
            SNI,
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
            SNI,
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

/// The default folders of kubeadm for certificates (`CertificatesDir`) and for the data of etcd (`DataDir`).
const CERTIFICATES: &str = "/etc/kubernetes/pki";
const ETCD_DATA: &str = "/var/lib/etcd";

/// The folders of certificate authorities that kubeadm mounts into kube-apiserver and kube-controller-manager. kubeadm always
/// mounts the first one. It mounts each other folder only if the folder exists on the Machine.
const fn authorities(minor: u64) -> [&'static str; 6] {
    let [red_hat, red_hat_bundles] = if minor < 31 {
        ["/etc/pki", "/etc/pki"]
    } else {
        ["/etc/pki/ca-trust", "/etc/pki/tls/certs"]
    };
    [
        "/etc/ssl/certs",
        "/etc/ca-certificates",
        "/usr/share/ca-certificates",
        "/usr/local/share/ca-certificates",
        red_hat,
        red_hat_bundles,
    ]
}

/// What kubeadm mounts into the Pod of a component (kubeadm, `phases/controlplane/volumes.go` and `phases/etcd/local.go`).
fn mounts_of_kubeadm(component: Component, minor: u64, cluster: &ClusterConfiguration<'_>) -> Vec<String> {
    let is_set = |text: &&str| !text.is_empty();
    let certificates = cluster
        .certificates_dir
        .as_deref()
        .filter(is_set)
        .unwrap_or(CERTIFICATES);
    let etcd = cluster.etcd.as_ref();
    let mounts = match component {
        Component::Kubelet => Vec::new(),
        Component::Etcd => {
            let data = etcd
                .and_then(|etcd| etcd.local.as_ref()?.data_dir.as_deref())
                .filter(is_set);
            let certificates = format!("{certificates}/etcd");
            return [certificates.as_str(), data.unwrap_or(ETCD_DATA)]
                .map(from_root)
                .into();
        }
        Component::Scheduler => vec!["/etc/kubernetes/scheduler.conf"],
        Component::ControllerManager => {
            let own = [certificates, "/etc/kubernetes/controller-manager.conf"];
            own.into_iter().chain(authorities(minor)).collect()
        }
        Component::ApiServer => {
            let external = etcd.and_then(|etcd| etcd.external.as_ref());
            let files = external.map(|etcd| [&etcd.ca_file, &etcd.cert_file, &etcd.key_file]);
            let files = files.into_iter().flatten().filter_map(|file| file.as_deref());
            let folders = files.filter_map(|file| Some(file.rsplit_once('/')?.0));
            let own = [certificates].into_iter().chain(authorities(minor));
            own.chain(folders.filter(is_set)).collect()
        }
    };
    mounts.into_iter().map(from_root).collect()
}

/// Whether the Pod of a component sees a file.
fn is_mounted(component: Component, minor: u64, path: &str, cluster: &ClusterConfiguration<'_>) -> bool {
    let settings = match component {
        Component::ApiServer => cluster.api_server.as_ref(),
        Component::ControllerManager => cluster.controller_manager.as_ref(),
        Component::Scheduler => cluster.scheduler.as_ref(),
        Component::Etcd => None,
        Component::Kubelet => return true,
    };
    let volumes = settings
        .and_then(|settings| settings.extra_volumes.as_deref())
        .unwrap_or_default();
    let own = volumes
        .iter()
        .filter_map(|volume| volume.mount_path.as_deref().map(from_root));
    own.chain(mounts_of_kubeadm(component, minor, cluster))
        .any(|mount| length_above(path, &mount).is_some())
}

/// The files in the value of a flag.
fn paths<'c>(flag: &FlagValue<'c>) -> impl Iterator<Item = &'c str> {
    let (files, separators): (_, &[char]) = if flag.is(SNI) {
        (flag.value.split(':').next().unwrap_or_default(), &[','])
    } else {
        (flag.value, &[])
    };
    files
        .split(separators)
        .map(str::trim)
        .filter(|path| !path.is_empty())
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
    for Given {
        component,
        flags,
        version,
    } in given(spec)
    {
        let set = files(component).iter().filter_map(|name| flags.get(name));
        for flag in set.filter(|flag| !has_placeholder(flag.value)) {
            let is_seen = |path: &str| is_mounted(component, version.minor, &from_root(path), cluster);
            if paths(&flag).all(is_seen) {
                continue;
            }
            let program = component.name();
            let remedy = match component {
                Component::ApiServer => "add the file to apiServer.extraVolumes",
                Component::ControllerManager => "add the file to controllerManager.extraVolumes",
                Component::Scheduler => "add the file to scheduler.extraVolumes",
                Component::Etcd | Component::Kubelet => {
                    "put the file into the folder etcd of certificatesDir, which kubeadm mounts into the Pod of etcd"
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

/// The absolute path of a file, without repeated slashes, `.` and `..`. A relative path starts at the root folder, in which the
/// components run.
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
