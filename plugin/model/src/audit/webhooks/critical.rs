//! The requests that a restart needs, before any Pod other than the static Pods runs.
//!
//! Sources: kubernetes/kubernetes issues 107678 (Leases) and 137356 (`ServiceCIDRs`), deckhouse 11020 (RBAC), gatekeeper 725,
//! 1997 and 3183, cozystack 3125 and kyverno 4686 (Pods).

/// The namespace of a webhook's own Pods.
pub const OWN: &str = "";

const KUBE_SYSTEM: &str = "kube-system";

/// A resource whose objects are written during a restart.
#[derive(Clone, Copy, Debug)]
pub struct CriticalResource {
    pub group: &'static str,
    pub version: &'static str,
    /// The resource, with its subresource if there is one, such as `nodes/status`.
    pub resource: &'static str,
    pub scope: Scope,
    pub operations: &'static [&'static str],
    /// The labels of the objects that are written.
    pub objects: Objects,
    /// What does not happen if the request is rejected.
    pub needed_for: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Cluster-scoped objects, which a `namespaceSelector` never excludes.
    Cluster,
    /// The namespaces in which objects are written. [`OWN`] means the namespace of the webhook's Pods.
    Namespaces(&'static [&'static str]),
}

/// The labels of the objects that are written. A webhook's `objectSelector` can exclude objects by their labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    WithoutLabels,
    Nodes,
    /// The Pods of `kube-system` or of the webhook itself.
    Pods,
    /// The roles and bindings that the API server creates.
    BootstrapRoles,
}

const CREATE: &[&str] = &["CREATE"];
const UPDATE: &[&str] = &["UPDATE"];
const BOTH: &[&str] = &["CREATE", "UPDATE"];

const fn of(
    group: &'static str,
    resource: &'static str,
    scope: Scope,
    operations: &'static [&'static str],
    needed_for: &'static str,
) -> CriticalResource {
    CriticalResource {
        group,
        version: "v1",
        resource,
        scope,
        operations,
        objects: Objects::WithoutLabels,
        needed_for,
    }
}

impl CriticalResource {
    const fn with(self, objects: Objects) -> Self {
        Self { objects, ..self }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const ROLES: &str = "the API server exits if it cannot reconcile its own roles";
const PRIORITIES: &str = "the API server cannot set up API Priority and Fairness";
const PODS: &str = "no new Pod can be created";
const ADDRESSES: &str = "the API server cannot assign addresses to Services";

/// All critical resources, the most harmful first.
pub const CRITICAL: &[CriticalResource] = &[
    of(
        "coordination.k8s.io",
        "leases",
        Scope::Namespaces(&[KUBE_SYSTEM, "kube-node-lease"]),
        BOTH,
        "kube-controller-manager and kube-scheduler elect no leader, and Nodes do not stay ready",
    ),
    of(
        "",
        "nodes",
        Scope::Cluster,
        BOTH,
        "kubelets cannot register their Nodes",
    )
    .with(Objects::Nodes),
    of(
        "",
        "nodes/status",
        Scope::Cluster,
        UPDATE,
        "Nodes do not become ready",
    )
    .with(Objects::Nodes),
    of("", "pods", Scope::Namespaces(&[KUBE_SYSTEM, OWN]), CREATE, PODS).with(Objects::Pods),
    of(
        "",
        "pods/binding",
        Scope::Namespaces(&[KUBE_SYSTEM, OWN]),
        CREATE,
        "kube-scheduler schedules no Pod",
    ),
    of(
        "",
        "pods/status",
        Scope::Namespaces(&[KUBE_SYSTEM, OWN]),
        UPDATE,
        "no Pod becomes ready",
    )
    .with(Objects::Pods),
    of(RBAC, "clusterroles", Scope::Cluster, BOTH, ROLES).with(Objects::BootstrapRoles),
    of(RBAC, "clusterrolebindings", Scope::Cluster, BOTH, ROLES).with(Objects::BootstrapRoles),
    of(RBAC, "roles", Scope::Namespaces(&[KUBE_SYSTEM]), BOTH, ROLES).with(Objects::BootstrapRoles),
    of(
        RBAC,
        "rolebindings",
        Scope::Namespaces(&[KUBE_SYSTEM]),
        BOTH,
        ROLES,
    )
    .with(Objects::BootstrapRoles),
    of(
        "scheduling.k8s.io",
        "priorityclasses",
        Scope::Cluster,
        BOTH,
        "the API server cannot create the system PriorityClasses",
    ),
    of(FLOW_CONTROL, "flowschemas", Scope::Cluster, BOTH, PRIORITIES),
    of(
        FLOW_CONTROL,
        "prioritylevelconfigurations",
        Scope::Cluster,
        BOTH,
        PRIORITIES,
    ),
    of(
        "networking.k8s.io",
        "servicecidrs",
        Scope::Cluster,
        BOTH,
        ADDRESSES,
    ),
    of(
        "networking.k8s.io",
        "ipaddresses",
        Scope::Cluster,
        BOTH,
        ADDRESSES,
    ),
    of(
        "apiregistration.k8s.io",
        "apiservices",
        Scope::Cluster,
        BOTH,
        "the API server cannot register its own APIs",
    ),
    of(
        "certificates.k8s.io",
        "certificatesigningrequests",
        Scope::Cluster,
        CREATE,
        "kubelets cannot renew their certificates",
    ),
    of(
        "discovery.k8s.io",
        "endpointslices",
        Scope::Namespaces(&["default", KUBE_SYSTEM, OWN]),
        BOTH,
        "Services have no endpoints, not even that of the API server",
    ),
    of(
        "",
        "configmaps",
        Scope::Namespaces(&[KUBE_SYSTEM]),
        BOTH,
        "the API server cannot publish the CAs that it trusts",
    ),
    of(
        "",
        "serviceaccounts/token",
        Scope::Namespaces(&[KUBE_SYSTEM, OWN]),
        CREATE,
        "Pods get no tokens, and do not start",
    ),
];
