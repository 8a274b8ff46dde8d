//! The contents page: every check.

use crate::checks::{
    AskedBy, Check, add_ons, certificates, components, conditions, etcd_agreement, etcd_members, etcd_quorum,
    etcd_storage, kubeadm_config, kubelet_skew, lifecycle, machines, nodes, remediation, rollout, sources,
};

/// All, in the order in which they are told.
pub const CHECKS: &[Check] = &[
    // Whether it could be looked at.
    Check::new(
        "management-readable",
        "what surrounds the control plane in the management cluster was read",
        AskedBy::Reading,
        sources::management,
    ),
    Check::new(
        "workload-reachable",
        "the workload cluster answers",
        AskedBy::Reading,
        sources::workload,
    ),
    Check::new(
        "etcd-reachable",
        "there is a way to etcd's members",
        AskedBy::Reading,
        sources::etcd,
    ),
    Check::new(
        "permissions",
        "nothing was refused for want of a permission",
        AskedBy::Reading,
        sources::permissions,
    ),
    // The control plane as an object.
    Check::new(
        "status-reported",
        "its controller reports whether it is available",
        AskedBy::Health,
        conditions::reported,
    ),
    Check::new(
        "status-current",
        "its controller has seen the spec as it stands",
        AskedBy::Health,
        conditions::current,
    ),
    Check::new(
        "not-paused",
        "neither it nor its Cluster is paused",
        AskedBy::Lifecycle,
        lifecycle::paused,
    )
    .blocking(),
    Check::new(
        "not-deleted",
        "it is not being deleted",
        AskedBy::Lifecycle,
        lifecycle::deletion,
    ),
    Check::new(
        "no-failure",
        "no failureReason and no failureMessage is set",
        AskedBy::Health,
        lifecycle::failure,
    ),
    Check::new(
        "cluster-reference",
        "spec.controlPlaneRef of its Cluster names it",
        AskedBy::Lifecycle,
        lifecycle::cluster_reference,
    ),
    Check::new(
        "cluster-ready",
        "its Cluster has infrastructure and an endpoint",
        AskedBy::Lifecycle,
        lifecycle::cluster_ready,
    ),
    Check::new(
        "topology-version",
        "a managed topology has come to its version",
        AskedBy::Lifecycle,
        lifecycle::topology,
    ),
    Check::new(
        "machines-owned",
        "it owns every control plane Machine of its Cluster",
        AskedBy::Lifecycle,
        lifecycle::adoption,
    ),
    Check::new(
        "available",
        "its controller finds it available",
        AskedBy::Health,
        conditions::available,
    )
    .summing_up(),
    Check::new(
        "certificates-available",
        "its controller finds the cluster's certificates",
        AskedBy::Health,
        conditions::certificates_available,
    ),
    Check::new(
        "etcd-cluster-healthy",
        "its controller finds etcd healthy",
        AskedBy::Health,
        conditions::etcd_cluster_healthy,
    )
    .summing_up(),
    Check::new(
        "components-healthy",
        "its controller finds the components healthy",
        AskedBy::Health,
        conditions::components_healthy,
    )
    .summing_up(),
    // What is asked for.
    Check::new(
        "machines-up-to-date",
        "no Machine is out of date",
        AskedBy::Lifecycle,
        rollout::machines_up_to_date,
    ),
    Check::new(
        "rollout-ends",
        "new Machines are not out of date",
        AskedBy::Lifecycle,
        rollout::ends,
    ),
    Check::new(
        "replicas",
        "there are as many Machines as asked for",
        AskedBy::Lifecycle,
        rollout::replicas,
    ),
    Check::new(
        "change-progress",
        "no change has been blocked for long",
        AskedBy::Lifecycle,
        rollout::progress,
    )
    .blocking(),
    // The nodes: what is wrong with one explains what is wrong on it.
    Check::new(
        "machines-joined",
        "every Machine has its node",
        AskedBy::Health,
        machines::nodes,
    )
    .preflight(),
    Check::new(
        "nodes-ready",
        "every node is there and ready",
        AskedBy::Health,
        nodes::ready,
    ),
    // etcd.
    Check::new(
        "etcd-quorum",
        "as many members are healthy as a decision takes",
        AskedBy::Health,
        etcd_quorum::quorum,
    )
    .preflight()
    .blocking(),
    Check::new(
        "etcd-tolerance",
        "as many members may fail as should",
        AskedBy::Health,
        etcd_quorum::tolerance,
    )
    .preflight()
    .summing_up(),
    Check::new(
        "etcd-members-answer",
        "every member answers",
        AskedBy::Preflight,
        etcd_members::answer,
    )
    .preflight(),
    // Before those that tell how to replace a Machine: which data would be lost with it.
    Check::new(
        "etcd-one-cluster",
        "all members are of one etcd cluster",
        AskedBy::Preflight,
        etcd_agreement::cluster_id,
    )
    .preflight(),
    Check::new(
        "etcd-members-match",
        "Machines and members are as many, and the same",
        AskedBy::Preflight,
        etcd_members::match_machines,
    )
    .preflight(),
    Check::new(
        "etcd-member-lists",
        "every member tells the same list of members",
        AskedBy::Preflight,
        etcd_agreement::member_lists,
    )
    .preflight(),
    Check::new(
        "etcd-alarms",
        "no member raises an alarm",
        AskedBy::Preflight,
        etcd_members::alarms,
    )
    .preflight(),
    Check::new(
        "etcd-learners",
        "no learner is left behind",
        AskedBy::Operation,
        etcd_members::learners,
    )
    .preflight(),
    Check::new(
        "etcd-leader",
        "members agree on a leader",
        AskedBy::Operation,
        etcd_agreement::leader,
    )
    .preflight(),
    Check::new(
        "etcd-raft-term",
        "members are in the same raft term",
        AskedBy::Operation,
        etcd_agreement::raft_term,
    ),
    Check::new(
        "etcd-raft-lag",
        "no member is far behind",
        AskedBy::Operation,
        etcd_agreement::raft_lag,
    ),
    Check::new(
        "etcd-space",
        "databases are well below their quota",
        AskedBy::Operation,
        etcd_storage::space,
    ),
    Check::new(
        "etcd-fragmentation",
        "databases are in use for the most part",
        AskedBy::Operation,
        etcd_storage::fragmentation,
    ),
    Check::new(
        "etcd-versions",
        "members run the same version",
        AskedBy::Operation,
        etcd_storage::versions,
    ),
    // Components.
    Check::new(
        "api-servers-match",
        "Machines and API servers are as many, and the same",
        AskedBy::Preflight,
        components::api_servers_match,
    )
    .preflight(),
    Check::new(
        "api-servers-ready",
        "the API server of every node is ready",
        AskedBy::Preflight,
        components::api_servers_ready,
    )
    .preflight(),
    Check::new(
        "controller-managers-ready",
        "the controller manager of every node is ready",
        AskedBy::Preflight,
        components::controller_managers_ready,
    )
    .preflight(),
    Check::new(
        "schedulers-ready",
        "the scheduler of every node is ready",
        AskedBy::Preflight,
        components::schedulers_ready,
    )
    .preflight(),
    Check::new(
        "etcd-pods-ready",
        "the etcd pod of every node is ready",
        AskedBy::Preflight,
        components::etcd_pods_ready,
    )
    .preflight(),
    Check::new(
        "node-labels-and-taints",
        "every node has the label and the taint of the control plane",
        AskedBy::Health,
        nodes::labels_and_taints,
    ),
    Check::new(
        "controller-leases",
        "controller manager and scheduler have a leader",
        AskedBy::Operation,
        add_ons::leases,
    ),
    Check::new(
        "kube-proxy-ready",
        "kube-proxy is ready on every node",
        AskedBy::Health,
        add_ons::kube_proxy,
    ),
    Check::new(
        "coredns-ready",
        "CoreDNS is ready",
        AskedBy::Health,
        add_ons::core_dns,
    ),
    Check::new(
        "kubelet-skew",
        "kubelets are of versions that the API servers serve",
        AskedBy::Operation,
        kubelet_skew::kubelet_skew,
    ),
    Check::new(
        "kubeadm-config-version",
        "kubeadm-config names the version that is asked for",
        AskedBy::Operation,
        kubeadm_config::version,
    ),
    // Machines.
    Check::new(
        "machines-ready",
        "every Machine is ready",
        AskedBy::Health,
        machines::ready,
    ),
    Check::new(
        "machine-deletions",
        "Machines that are deleted are gone in time",
        AskedBy::Lifecycle,
        machines::deletions,
    )
    .preflight(),
    Check::new(
        "machine-health-checks",
        "no health check finds a Machine unhealthy",
        AskedBy::Lifecycle,
        remediation::health_checks_passed,
    ),
    Check::new(
        "remediation",
        "what is to be replaced is replaced",
        AskedBy::Lifecycle,
        remediation::remediation,
    ),
    Check::new(
        "health-check-cover",
        "a MachineHealthCheck looks after every Machine",
        AskedBy::Lifecycle,
        remediation::cover,
    ),
    // Certificates.
    Check::new(
        "secrets-present",
        "the Secrets of the cluster are there",
        AskedBy::Lifecycle,
        certificates::secrets,
    ),
    Check::new(
        "machine-certificates",
        "no Machine's certificates expire soon",
        AskedBy::Lifecycle,
        certificates::of_machines,
    ),
    Check::new(
        "endpoint-certificate",
        "the endpoint's certificate does not expire soon",
        AskedBy::Operation,
        certificates::of_endpoint,
    ),
    Check::new(
        "etcd-certificates",
        "no etcd member's certificate expires soon",
        AskedBy::Operation,
        certificates::of_etcd,
    ),
];
