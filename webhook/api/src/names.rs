//! API groups, labels, annotations and finalizers.

pub mod group {
    pub const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
    pub const CLUSTER: &str = "cluster.x-k8s.io";
    pub const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
    pub const HIVE: &str = "hive.openshift.io";
    pub const RUNTIME: &str = "runtime.cluster.x-k8s.io";
}

pub mod label {
    /// A label of a Cluster's objects; the value is the name of the Cluster.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// A label of a control plane's Machines, with an empty value.
    pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
    /// A label of a control plane's Machines; the value is the name of the control plane, or a hash of the
    /// name if the name exceeds 63 characters.
    pub const CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
    /// A label that clusterctl sets on the objects of a provider; the value is the provider, such as `control-plane-kubeadm`.
    pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
    /// A label of objects that Cluster API's topology controller manages.
    pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";
    /// On a `MachineDeployment` of a managed topology: its name in the topology.
    pub const TOPOLOGY_DEPLOYMENT_NAME: &str = "topology.cluster.x-k8s.io/deployment-name";
    /// On a `MachinePool` of a managed topology: its name in the topology.
    pub const TOPOLOGY_POOL_NAME: &str = "topology.cluster.x-k8s.io/pool-name";

    /// Set by Hive on objects that it creates for a pool; the value is the pool's name.
    pub const CLUSTER_POOL_NAME: &str = "hive.openshift.io/clusterpool-name";
    /// Set by Hive on objects that it creates for a pool; the value is the pool's namespace.
    pub const CLUSTER_POOL_NAMESPACE: &str = "hive.openshift.io/clusterpool-namespace";

    /// A label of objects that were created for a lease: namespaces, Secrets and copies of customizations (`true`), and the
    /// queues of pools (`queue`).
    pub const POOL_LEASE: &str = "kubectl-kcp.dev/pool-lease";

    /// On a pod: `skip` or `wait-completed` says how Cluster API drains the pod's Node.
    pub const POD_DRAIN: &str = "cluster.x-k8s.io/drain";
    /// A label of control plane Nodes, and the key of the taint that kubeadm sets on them.
    pub const NODE_CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
}

/// Key of the taint that Kubernetes sets on a Node whose kubelet has stopped renewing its Lease.
pub const TAINT_UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The type of the Secrets that Cluster API creates.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";

/// The leader election Lease of Cluster API's kubeadm control plane controller.
pub mod lease {
    pub const CONTROL_PLANE: &str = "kubeadm-control-plane-manager-leader-election-capi";
    /// The namespace into which clusterctl installs Cluster API's kubeadm control plane controller.
    pub const CONTROL_PLANE_NAMESPACE: &str = "capi-kubeadm-control-plane-system";

    /// The leader election Lease of Cluster API's core controllers, which include the Machine controller.
    pub const CORE: &str = "controller-leader-election-capi";
    pub const CORE_NAMESPACE: &str = "capi-system";

    /// The leader election Lease of Cluster API's kubeadm bootstrap controller.
    pub const BOOTSTRAP: &str = "kubeadm-bootstrap-manager-leader-election-capi";
    pub const BOOTSTRAP_NAMESPACE: &str = "capi-kubeadm-bootstrap-system";
}

pub mod annotation {
    /// On an object, with any value: Cluster API's controllers do not reconcile the object.
    pub const PAUSED: &str = "cluster.x-k8s.io/paused";
    /// On an object that `clusterctl move` has copied to another cluster and is about to delete.
    pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

    /// On a Machine, with any value: a scale down deletes this Machine first.
    pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
    /// On a Machine, with any value: `MachineHealthChecks` report the Machine unhealthy.
    pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
    /// On a Machine: when the certificates that kubeadm issued on it expire, as a time in RFC 3339 format.
    pub const CERTIFICATES_EXPIRY: &str = "machine.cluster.x-k8s.io/certificates-expiry";
    /// On a Machine, with any value: `MachineHealthChecks` ignore the Machine.
    pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
    /// On a Machine that a remediation created: the record of the remediation, decoded as [`crate::Remediation`].
    pub const REMEDIATION_FOR: &str = "controlplane.cluster.x-k8s.io/remediation-for";
    /// On a control plane: the remediation that has not created its replacement Machine yet, decoded as
    /// [`crate::Remediation`].
    pub const REMEDIATION_IN_PROGRESS: &str = "controlplane.cluster.x-k8s.io/remediation-in-progress";
    /// On a Machine, with any value: an in-place update is in progress.
    pub const UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
    /// On an object: the names of the runtime hooks that have not completed, separated by commas.
    pub const PENDING_HOOKS: &str = "runtime.cluster.x-k8s.io/pending-hooks";
    /// On a Machine, with any value: Cluster API does not drain the Machine's Node.
    pub const EXCLUDE_NODE_DRAINING: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
    /// The prefix of annotations that block a Machine's deletion before its Node is drained.
    pub const PRE_DRAIN_HOOK_PREFIX: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
    /// The hook that the control plane controller sets on its Machines. The controller removes it after it has removed
    /// the Machine's etcd member.
    pub const KCP_CLEANUP_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup";
    /// The prefix of annotations that block a Machine's deletion before its infrastructure is deleted.
    pub const PRE_TERMINATE_HOOK_PREFIX: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";

    /// On a Node: the name of its Machine.
    pub const NODE_MACHINE: &str = "cluster.x-k8s.io/machine";
    /// On a Node of a Machine: the namespace of its Cluster, and of the Machine.
    pub const NODE_CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
    /// On a Node of a Machine: the keys of the labels that Cluster API copied from the Machine, separated by commas.
    pub const LABELS_FROM_MACHINE: &str = "cluster.x-k8s.io/labels-from-machine";
    /// On a Node: the kind of the object that owns its Machine. A Node without a Machine has the value `MachinePool`.
    pub const NODE_OWNER_KIND: &str = "cluster.x-k8s.io/owner-kind";

    /// On an object that was cloned from a template: the template's name.
    pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
    /// On an object that was cloned from a template: the template's `Kind.group`.
    pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";

    /// On a Cluster with a managed topology: the version of the current step of an upgrade across several minor versions.
    pub const TOPOLOGY_UPGRADE_STEP: &str = "topology.internal.cluster.x-k8s.io/upgrade-step";
    /// The prefix of annotations of a Cluster that keep the upgrade of its managed topology from beginning. Cluster API 1.10 and
    /// later read them.
    pub const BEFORE_UPGRADE_HOOK_PREFIX: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io";
    /// On a Cluster, with any value: Cluster API's webhook does not compare the version of the topology with the one before
    /// (`ClusterTopologyUnsafeUpdateVersionAnnotation`).
    pub const UNCHECKED_VERSION: &str = "unsafe.topology.cluster.x-k8s.io/disable-update-version-check";
    /// On workers in a topology, with any value: these workers are not upgraded.
    pub const DEFER_UPGRADE: &str = "topology.cluster.x-k8s.io/defer-upgrade";
    /// On workers in a topology, with any value: neither these workers nor those after them in the list are upgraded.
    pub const HOLD_UPGRADE_SEQUENCE: &str = "topology.cluster.x-k8s.io/hold-upgrade-sequence";

    /// The manifest of the last `kubectl apply`, as JSON.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    /// On an object served in an older version: the whole object in the stored version.
    pub const CONVERSION_DATA: &str = "cluster.x-k8s.io/conversion-data";
    /// On Machines of older Cluster API versions: kubeadm's `ClusterConfiguration`.
    pub const CLUSTER_CONFIGURATION: &str = "controlplane.cluster.x-k8s.io/kubeadm-cluster-configuration";

    /// Set by Hive on a `ClusterDeployment`: a hash of the pool spec that it was created from.
    pub const CLUSTER_POOL_SPEC_HASH: &str = "hive.openshift.io/cluster-pool-spec-hash";

    /// The annotation that overrides admission rules: a comma-separated list of `<rule id>=<RFC 3339 expiry time>`.
    pub const OVERRIDE_RULES: &str = "kubectl-kcp.dev/override-rules";

    /// On a `ClusterDeployment`: the id of the lease that it was created with. On a `ClusterClaim`: the id of the command
    /// that created it.
    pub const LEASE_ID: &str = "kubectl-kcp.dev/lease-id";
    /// On a `ClusterClaim`: the user who created it.
    pub const LEASE_USER: &str = "kubectl-kcp.dev/lease-user";
    /// On a customization: why it must not be leased.
    pub const CORDONED: &str = "kubectl-kcp.dev/cordoned";
    /// On a control plane: the Machine that `kubectl kcp machine replace` is replacing, as JSON.
    pub const MACHINE_REPLACEMENT: &str = "kubectl-kcp.dev/machine-replacement";
    /// On a control plane: how `--step rollback` of `kubectl kcp leader-migration generate` reverses the last step of a migration, as JSON.
    pub const LEADER_MIGRATION: &str = "kubectl-kcp.dev/leader-migration";
    /// On a control plane: the last etcd snapshot that `kubectl kcp etcd snapshot` saved, as JSON.
    pub const ETCD_SNAPSHOT: &str = "kubectl-kcp.dev/etcd-snapshot";
    /// On a control plane: how long the nodes of its Machines may take to join, such as `30m`.
    pub const JOIN_LIMIT: &str = "kubectl-kcp.dev/join-limit";
    /// On a Secret with a CA: the last phase that `kubectl kcp certificates rotate` has written, as JSON.
    pub const CA_ROTATION: &str = "kubectl-kcp.dev/ca-rotation";
    /// On a control plane or Machine: when `kubectl kcp reconcile` last asked its controller to reconcile it.
    pub const RECONCILE_REQUESTED: &str = "kubectl-kcp.dev/reconcile-requested-at";
    /// On a Machine: the time of an announced replacement that another command has withdrawn.
    pub const REPLACEMENT_WITHDRAWN: &str = "kubectl-kcp.dev/replacement-withdrawn";
    /// On a pool: the clusters that are being created. The annotation names them, because lists might not contain their
    /// `ClusterDeployments` yet.
    pub const CLUSTERS_IN_CREATION: &str = "kubectl-kcp.dev/creating";
    /// On a pool: whether an entry must be cleaned between two holders, `true` or `false`. Any other value counts as `true`.
    pub const CLEAN_BEFORE_REUSE: &str = "kubectl-kcp.dev/clean-before-reuse";
    /// The prefix of annotations on the queue of a pool, each the place of a lessee that waits, as JSON.
    pub const PLACE_PREFIX: &str = "kubectl-kcp.dev/place-";
}

pub mod finalizer {
    /// Set by Hive's controller on each pool that it manages.
    pub const HIVE_CLUSTERS: &str = "hive.openshift.io/clusters";
    /// Prevents the deletion of a `ClusterDeployment` until the lease of the `ClusterDeployment` is released.
    pub const POOL_LEASE: &str = "kubectl-kcp.dev/pool-lease";
}
