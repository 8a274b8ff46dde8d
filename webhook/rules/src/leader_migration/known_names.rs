//! The controllers that kube-controller-manager knows, by minor version of Kubernetes.

use std::ops::RangeInclusive;

/// The minor versions of Kubernetes that the table covers. Later versions may know other names.
pub const KNOWN_MINORS: RangeInclusive<u64> = 27..=37;

/// A controller of kube-controller-manager.
#[derive(Clone, Copy)]
struct KnownName {
    /// The name of the controller from 1.28 on.
    canonical: &'static str,
    /// The name of the controller up to 1.27, which later versions accept in `--controllers`; empty if there is none.
    alias: &'static str,
    /// The first minor version with the controller, at least 27.
    since: u64,
    /// The last minor version with the controller; `None` if all later ones have it.
    until: Option<u64>,
}

const fn row(canonical: &'static str, alias: &'static str, since: u64) -> KnownName {
    KnownName {
        canonical,
        alias,
        since,
        until: None,
    }
}

const fn until(last: u64, known: KnownName) -> KnownName {
    KnownName {
        until: Some(last),
        ..known
    }
}

/// From `cmd/kube-controller-manager/names/controller_names.go` and the aliases in `cmd/kube-controller-manager/app` of
/// 1.28 to 1.37, and from `app/controllermanager.go` of 1.27. Controllers of feature gates that are off count as known.
const KNOWN_NAMES: [KnownName; 52] = [
    row("bootstrap-signer-controller", "bootstrapsigner", 27),
    row(
        "certificatesigningrequest-approving-controller",
        "csrapproving",
        27,
    ),
    row("certificatesigningrequest-cleaner-controller", "csrcleaner", 27),
    row("certificatesigningrequest-signing-controller", "csrsigning", 27),
    until(
        36,
        row("cloud-node-lifecycle-controller", "cloud-node-lifecycle", 27),
    ),
    row(
        "clusterrole-aggregation-controller",
        "clusterrole-aggregation",
        27,
    ),
    row("cronjob-controller", "cronjob", 27),
    row("daemonset-controller", "daemonset", 27),
    row("deployment-controller", "deployment", 27),
    row("device-taint-eviction-controller", "", 33),
    row("disruption-controller", "disruption", 27),
    row("endpoints-controller", "endpoint", 27),
    row("endpointslice-controller", "endpointslice", 27),
    row("endpointslice-mirroring-controller", "endpointslicemirroring", 27),
    row("ephemeral-volume-controller", "ephemeral-volume", 27),
    row("garbage-collector-controller", "garbagecollector", 27),
    row(
        "horizontal-pod-autoscaler-controller",
        "horizontalpodautoscaling",
        27,
    ),
    row("job-controller", "job", 27),
    row(
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "",
        32,
    ),
    row(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        27,
    ),
    row("namespace-controller", "namespace", 27),
    row("node-ipam-controller", "nodeipam", 27),
    row("node-lifecycle-controller", "nodelifecycle", 27),
    until(36, row("node-route-controller", "route", 27)),
    row("persistentvolume-attach-detach-controller", "attachdetach", 27),
    row(
        "persistentvolume-binder-controller",
        "persistentvolume-binder",
        27,
    ),
    row(
        "persistentvolume-expander-controller",
        "persistentvolume-expander",
        27,
    ),
    row("persistentvolume-protection-controller", "pv-protection", 27),
    row(
        "persistentvolumeclaim-protection-controller",
        "pvc-protection",
        27,
    ),
    row("pod-garbage-collector-controller", "podgc", 27),
    row("podcertificaterequest-cleaner-controller", "", 34),
    row("podgroup-protection-controller", "", 36),
    row("replicaset-controller", "replicaset", 27),
    row("replicationcontroller-controller", "replicationcontroller", 27),
    row("resourceclaim-controller", "resource-claim-controller", 27),
    row("resourcepoolstatusrequest-controller", "", 36),
    row("resourcequota-controller", "resourcequota", 27),
    row(
        "root-ca-certificate-publisher-controller",
        "root-ca-cert-publisher",
        27,
    ),
    row("selinux-warning-controller", "", 32),
    row("service-cidr-controller", "", 29),
    until(36, row("service-lb-controller", "service", 27)),
    row("serviceaccount-controller", "serviceaccount", 27),
    row("serviceaccount-token-controller", "serviceaccount-token", 27),
    row("statefulset-controller", "statefulset", 27),
    row("storage-version-migrator-controller", "svm", 30),
    row(
        "storageversion-garbage-collector-controller",
        "storage-version-gc",
        27,
    ),
    row("taint-eviction-controller", "", 29),
    row("token-cleaner-controller", "tokencleaner", 27),
    row("ttl-after-finished-controller", "ttl-after-finished", 27),
    row("ttl-controller", "ttl", 27),
    row("validatingadmissionpolicy-status-controller", "", 28),
    row("volumeattributesclass-protection-controller", "", 32),
];

/// Whether kube-controller-manager of a minor version accepts a name in `--controllers`. `None` if the table
/// does not cover the version.
pub fn is_known(name: &str, minor: u64) -> Option<bool> {
    KNOWN_MINORS.contains(&minor).then(|| {
        KNOWN_NAMES.iter().any(|known| {
            let is_named =
                (!known.alias.is_empty() && known.alias == name) || (minor >= 28 && known.canonical == name);
            is_named && known.since <= minor && known.until.is_none_or(|last| minor <= last)
        })
    })
}

/// Returns the name if a controller has it. Other text in a flag or a file may be secret, so messages do not
/// show such text.
pub fn known_name(name: &str) -> Option<&str> {
    is_a_controller(name).then_some(name)
}

/// Whether any version of kube-controller-manager has a controller with this name. Names up to 1.27 and later
/// names count.
pub fn is_a_controller(name: &str) -> bool {
    KNOWN_NAMES
        .iter()
        .any(|known| known.canonical == name || (!known.alias.is_empty() && known.alias == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row is what a binary of the version answered, or its source.
    #[test]
    fn names_are_known_by_version() {
        for (name, minor, expected) in [
            ("nodeipam", 27, Some(true)),
            ("node-ipam-controller", 27, Some(false)),
            ("node-ipam-controller", 28, Some(true)),
            ("nodeipam", 37, Some(true)),
            ("route", 36, Some(true)),
            ("node-route-controller", 36, Some(true)),
            ("route", 37, Some(false)),
            ("service-lb-controller", 37, Some(false)),
            ("cloud-node-lifecycle", 37, Some(false)),
            ("service-cidr-controller", 28, Some(false)),
            ("service-cidr-controller", 29, Some(true)),
            ("bootstrapsigner", 35, Some(true)),
            ("", 35, Some(false)),
            ("route", 26, None),
            ("route", 38, None),
        ] {
            assert_eq!(is_known(name, minor), expected, "{name} at 1.{minor}");
        }
    }
}
