//! API groups, labels, annotations and finalizers: each is defined once.

pub mod group {
    pub const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
    pub const CLUSTER: &str = "cluster.x-k8s.io";
    pub const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
    pub const HIVE: &str = "hive.openshift.io";
}

pub mod label {
    /// The value is the name of the Cluster.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// On the Machines of a control plane; the value is empty.
    pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
    /// The value is the name of the control plane, or a hash of it where the name has more than 63 characters.
    pub const CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
    /// On objects that Cluster API's topology controller creates and applies.
    pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";

    /// Hive's, on what it creates for a pool: the pool's name.
    pub const CLUSTER_POOL_NAME: &str = "hive.openshift.io/clusterpool-name";
    /// Hive's, on what it creates for a pool: the pool's namespace.
    pub const CLUSTER_POOL_NAMESPACE: &str = "hive.openshift.io/clusterpool-namespace";

    /// On what was created for a lease: namespaces, Secrets, copies of customizations.
    pub const POOL_LEASE: &str = "kubectl-kcp.dev/pool-lease";

    /// On Nodes, and the key of the taint that kubeadm sets on the same Nodes.
    pub const NODE_CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
}

/// Key of the taint that Kubernetes sets on a Node whose kubelet does not renew its Lease.
pub const TAINT_UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The type of the Secrets that Cluster API creates.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";

pub mod annotation {
    /// Controllers do not reconcile the object. The presence counts, not the value.
    pub const PAUSED: &str = "cluster.x-k8s.io/paused";

    /// On a Machine: a scale down deletes it before others. The presence counts.
    pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
    /// On a Machine: its `MachineHealthChecks` report it unhealthy. The presence counts.
    pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
    /// On a Machine: `MachineHealthChecks` ignore it. The presence counts.
    pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
    /// On a Machine: the remediation that created it, as [`crate::Remediation`].
    pub const REMEDIATION_FOR: &str = "controlplane.cluster.x-k8s.io/remediation-for";
    /// On a control plane: the remediation whose replacement is still missing, as [`crate::Remediation`].
    pub const REMEDIATION_IN_PROGRESS: &str = "controlplane.cluster.x-k8s.io/remediation-in-progress";
    /// On a Machine that is being updated in place. The presence counts.
    pub const UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
    /// Names of runtime hooks, separated by commas.
    pub const PENDING_HOOKS: &str = "runtime.cluster.x-k8s.io/pending-hooks";
    /// Prefix of annotations that stop a Machine's deletion before its Node is drained.
    pub const PRE_DRAIN_HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
    /// Prefix of annotations that stop a Machine's deletion before its infrastructure is deleted.
    pub const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";

    /// On an object that was cloned from a template: the template's name.
    pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
    /// On an object that was cloned from a template: the template's `Kind.group`.
    pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";

    /// On a Cluster with a managed topology: the version of the current step of an upgrade across several minors.
    pub const TOPOLOGY_UPGRADE_STEP: &str = "topology.internal.cluster.x-k8s.io/upgrade-step";

    /// The manifest of the last `kubectl apply`.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    /// On an object served in an older version: the whole object in the stored version.
    pub const CONVERSION_DATA: &str = "cluster.x-k8s.io/conversion-data";
    /// On Machines of older Cluster API versions: kubeadm's `ClusterConfiguration`.
    pub const CLUSTER_CONFIGURATION: &str = "controlplane.cluster.x-k8s.io/kubeadm-cluster-configuration";

    /// Hive's, on a `ClusterDeployment`: the version of the pool that it was created from.
    pub use kcp_rules::pool_version::ANNOTATION as CLUSTER_POOL_SPEC_HASH;

    /// Admission rules that are overridden for an object, and until when.
    pub use kcp_rules::overrides::ANNOTATION as OVERRIDE_RULES;

    /// On a `ClusterDeployment`: the id of the lease that it was created with.
    pub const LEASE_ID: &str = "kubectl-kcp.dev/lease-id";
    /// On a customization that is not leased to new holders: the reason.
    pub const CORDONED: &str = "kubectl-kcp.dev/cordoned";
    /// On a pool: the clusters that are being created and are not in the list of `ClusterDeployments` yet.
    pub const CREATING: &str = "kubectl-kcp.dev/creating";
}

pub mod finalizer {
    /// Hive's, on each pool that its controller runs.
    pub const HIVE_CLUSTERS: &str = "hive.openshift.io/clusters";
    /// On each `ClusterDeployment` with a lease: it stays until the lease is released.
    pub const POOL_LEASE: &str = "kubectl-kcp.dev/pool-lease";
}
