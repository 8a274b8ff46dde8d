//! Faults of the access to a workload cluster. People select one by its name with `fault`.

use crate::named_fault;

/// A fault of the access to a workload cluster. Only one is active at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFault {
    /// The API server answers each request with 500.
    ServerError,
    /// The API server accepts connections and requests, but never answers.
    Hang,
    /// The API server answers each request with 100 MB.
    Flood,
    /// The kubeconfig points to a port where nothing listens.
    Nowhere,
    ServerExpired,
    ClientExpired,
    KubeconfigMissing,
    /// The kubeconfig contains bytes that are not text.
    KubeconfigGarbage,
    EtcdAuthorityMissing,
    /// The etcd CA is another one than the members'.
    EtcdAuthorityWrong,
    /// No fault any more.
    Restore,
}

impl AccessFault {
    /// All faults with their names and effects.
    pub const ALL: [(Self, &str, &str); 11] = [
        (
            Self::ServerError,
            "api-server-error",
            "the API server answers each request with 500",
        ),
        (
            Self::Hang,
            "api-server-hang",
            "the API server accepts requests but never answers",
        ),
        (
            Self::Flood,
            "api-server-flood",
            "the API server answers each request with 100 MB",
        ),
        (
            Self::Nowhere,
            "api-server-nowhere",
            "the kubeconfig points to a port where nothing listens",
        ),
        (
            Self::ServerExpired,
            "api-server-expired",
            "the API server's certificate has expired",
        ),
        (
            Self::ClientExpired,
            "kubeconfig-expired",
            "the client certificate in the kubeconfig has expired",
        ),
        (
            Self::KubeconfigMissing,
            "kubeconfig-missing",
            "the Secret of the kubeconfig is deleted",
        ),
        (
            Self::KubeconfigGarbage,
            "kubeconfig-garbage",
            "the Secret of the kubeconfig contains bytes that are not text",
        ),
        (
            Self::EtcdAuthorityMissing,
            "etcd-ca-missing",
            "the Secret of the etcd CA is deleted",
        ),
        (
            Self::EtcdAuthorityWrong,
            "etcd-ca-wrong",
            "the Secret of the etcd CA contains another CA",
        ),
        (
            Self::Restore,
            "restore",
            "the Secrets are as Cluster API wrote them",
        ),
    ];
}

named_fault::named!(AccessFault);
