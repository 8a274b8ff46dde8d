//! The fields of each kind whose text a bundle contains. Text in any other field may be secret, so a bundle does not contain
//! it.
//!
//! A path is relative to the object. `[]` stands for the items of a list, `*` for each key of a map, and `**` for everything
//! below. A name in braces says how the value is redacted; see [`Treatment`].
//!
//! - [`cluster_api`], [`kubernetes`]: the paths of each kind

mod cluster_api;
mod kubernetes;

use kcp_api::{
    Kind,
    kind::{
        CLUSTER, EVENT, KUBEADM_CONFIG, KUBEADM_CONTROL_PLANE, LEASE, MACHINE, MACHINE_DEPLOYMENT,
        MACHINE_HEALTH_CHECK, MUTATING_WEBHOOK_CONFIGURATION, NODE, POD, VALIDATING_WEBHOOK_CONFIGURATION,
    },
    names::annotation,
};

use cluster_api::{CLUSTER_PATHS, CONTROL_PLANE_PATHS, DEPLOYMENT_PATHS, HEALTH_CHECK_PATHS};
pub(super) use cluster_api::{KUBEADM_CONFIG_SPEC, MACHINE_SPEC};
use kubernetes::{EVENT_PATHS, NODE_PATHS, POD_PATHS, WEBHOOK_PATHS};

/// The fields that no command shows: the content of a file, the password of a user, and bootstrap tokens.
const SECRETS: [&str; 4] = [".content", ".passwd", ".token", ".tlsBootstrapToken"];

/// Whether the value at a path, such as `spec.users[0].passwd`, may be secret although the other values of its object are shown.
pub fn is_secret(path: &str) -> bool {
    SECRETS.iter().any(|field| path.ends_with(field))
}

/// The end of a path: all text below stays.
pub(super) const EVERYTHING: &str = "**";

/// How a value is redacted that is neither kept nor replaced as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// `{metadata}`: as the metadata of an object.
    Metadata,
    /// `{kubeadm}`: with the paths of a `KubeadmConfigSpec`.
    Kubeadm,
    /// `{machine}`: with the paths of a Machine's spec.
    Machine,
    /// `{flags}`: flags by their names, as a map or as a list of names and values.
    Flags,
    /// `{command}`: a program and its arguments.
    Command,
    /// `{arguments}`: arguments of a program.
    Arguments,
    /// `{opaque}`: nothing stays, not even a number or the names of fields.
    Opaque,
}

impl Treatment {
    /// The treatment of the value at this path. `None` if the path continues below the value.
    pub(super) fn at_end_of(path: &str) -> Option<Self> {
        Some(match path {
            "{metadata}" => Self::Metadata,
            "{kubeadm}" => Self::Kubeadm,
            "{machine}" => Self::Machine,
            "{flags}" => Self::Flags,
            "{command}" => Self::Command,
            "{arguments}" => Self::Arguments,
            "{opaque}" => Self::Opaque,
            _ => return None,
        })
    }
}

/// The paths of every kind.
const EVERY_KIND: &[&str] = &["apiVersion", "kind", "metadata.{metadata}"];

/// The paths of a kind that is not in [`KINDS`]: the fields of Cluster API's contract for infrastructure machines.
const OTHER_KINDS: &[&str] = &[
    "spec.failureDomain",
    "spec.providerID",
    "status.addresses.[].*",
    "status.conditions.[].*",
    "status.failureDomain",
    "status.failureMessage",
    "status.failureReason",
    "status.phase",
    "status.v1beta2.conditions.[].*",
];

const KINDS: &[(Kind, &[&str])] = &[
    (CLUSTER, CLUSTER_PATHS),
    (KUBEADM_CONTROL_PLANE, CONTROL_PLANE_PATHS),
    (MACHINE, &["spec.{machine}", "status.**"]),
    (KUBEADM_CONFIG, &["spec.{kubeadm}", "status.**"]),
    (MACHINE_HEALTH_CHECK, HEALTH_CHECK_PATHS),
    (MACHINE_DEPLOYMENT, DEPLOYMENT_PATHS),
    (EVENT, EVENT_PATHS),
    (MUTATING_WEBHOOK_CONFIGURATION, WEBHOOK_PATHS),
    (VALIDATING_WEBHOOK_CONFIGURATION, WEBHOOK_PATHS),
    (NODE, NODE_PATHS),
    (POD, POD_PATHS),
    (LEASE, &["spec.*"]),
];

/// The paths of an object of this kind.
pub(super) fn paths(api_version: &str, kind: &str) -> Vec<&'static str> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let known = KINDS
        .iter()
        .find(|(known, _)| known.group == group && known.kind == kind);
    let own = known.map_or(OTHER_KINDS, |(_, paths)| paths);
    EVERY_KIND.iter().chain(own).copied().collect()
}

/// The paths of metadata. Annotations have [`is_harmless`] instead.
pub(super) const METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers.[]",
    "generateName",
    "labels.*",
    "name",
    "namespace",
    "ownerReferences.[].*",
    "resourceVersion",
    "uid",
];

/// The annotations whose values stay. Others may contain secrets: `kubectl apply` and Cluster API's conversion store copies
/// of whole objects in annotations.
const ANNOTATIONS: &[&str] = &[
    annotation::CERTIFICATES_EXPIRY,
    annotation::CLONED_FROM_GROUP_KIND,
    annotation::CLONED_FROM_NAME,
    annotation::ETCD_SNAPSHOT,
    annotation::LABELS_FROM_MACHINE,
    annotation::MACHINE_REPLACEMENT,
    annotation::NODE_CLUSTER_NAMESPACE,
    annotation::NODE_MACHINE,
    annotation::NODE_OWNER_KIND,
    annotation::OVERRIDE_RULES,
    annotation::PENDING_HOOKS,
    annotation::REMEDIATION_FOR,
    annotation::REMEDIATION_IN_PROGRESS,
    annotation::REPLACEMENT_WITHDRAWN,
    annotation::TOPOLOGY_UPGRADE_STEP,
    "cluster.x-k8s.io/cluster-name",
    "cluster.x-k8s.io/owner-name",
    "kubeadm.alpha.kubernetes.io/cri-socket",
    "kubeadm.kubernetes.io/etcd.advertise-client-urls",
    "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint",
    "kubernetes.io/config.hash",
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.seen",
    "kubernetes.io/config.source",
    "machinedeployment.clusters.x-k8s.io/revision",
    "node.alpha.kubernetes.io/ttl",
    "volumes.kubernetes.io/controller-managed-attach-detach",
];

/// Whether the value of an annotation stays.
pub(super) fn is_harmless(annotation: &str) -> bool {
    ANNOTATIONS.contains(&annotation)
}

#[cfg(test)]
mod tests {
    use super::{
        ANNOTATIONS, EVERY_KIND, EVERYTHING, KINDS, KUBEADM_CONFIG_SPEC, MACHINE_SPEC, METADATA, OTHER_KINDS,
        Treatment, is_secret, paths,
    };

    #[test]
    fn paths_are_sorted_and_well_formed() {
        let lists = [
            EVERY_KIND,
            OTHER_KINDS,
            METADATA,
            MACHINE_SPEC,
            KUBEADM_CONFIG_SPEC,
        ];
        let of_kinds = KINDS.iter().map(|(_, paths)| *paths);
        for list in lists.into_iter().chain(of_kinds) {
            assert!(list.is_sorted(), "{list:?}");
            for path in list {
                let segments: Vec<&str> = path.split('.').collect();
                let (last, before) = segments.split_last().expect("a segment");
                for segment in before {
                    let is_key = segment.chars().all(|letter| letter.is_ascii_alphanumeric());
                    assert!(
                        !segment.is_empty() && (is_key || ["[]", "*"].contains(segment)),
                        "{path}"
                    );
                }
                let is_mark = last.starts_with('{');
                assert_eq!(is_mark, Treatment::at_end_of(last).is_some(), "{path}");
                assert!(!last.contains("**") || *last == EVERYTHING, "{path}");
                assert!(!is_secret(path), "{path}");
            }
        }
    }

    #[test]
    fn annotations_with_copies_of_objects_are_not_harmless() {
        for copy in [
            "kubectl.kubernetes.io/last-applied-configuration",
            "cluster.x-k8s.io/conversion-data",
            "controlplane.cluster.x-k8s.io/kubeadm-cluster-configuration",
            "kubectl-kcp.dev/leader-migration",
        ] {
            assert!(!ANNOTATIONS.contains(&copy), "{copy}");
        }
    }

    #[test]
    fn a_kind_is_known_by_its_group_too() {
        let of_cluster_api = paths("cluster.x-k8s.io/v1beta2", "Machine");
        assert!(of_cluster_api.contains(&"spec.{machine}"));
        let of_provider = paths("infrastructure.cluster.x-k8s.io/v1beta1", "Machine");
        assert!(!of_provider.contains(&"spec.{machine}") && of_provider.contains(&"spec.providerID"));
        assert!(paths("v1", "Pod").contains(&"spec.nodeName"));
        assert!(!paths("v1", "Secret").iter().any(|path| path.starts_with("data")));
    }
}
