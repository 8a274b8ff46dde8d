//! What can be wrong with the way into a workload cluster. Each has a name for `fault`, which people run.

use std::fmt;
use std::str::FromStr;

use anyhow::{Error, Result};

use crate::named_fault;

/// Something that is wrong with the way into a workload cluster. One at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFault {
    /// The API server answers each request with 500.
    ServerError,
    /// The API server accepts connections and requests and answers none.
    Hang,
    /// The API server answers each request with 100 MB.
    Flood,
    /// Nobody listens where the kubeconfig points to.
    Nowhere,
    /// The API server's certificate has expired.
    ServerExpired,
    /// The client certificate in the kubeconfig has expired.
    ClientExpired,
    /// There is no kubeconfig.
    KubeconfigMissing,
    /// What should be a kubeconfig is not even text.
    KubeconfigGarbage,
    /// There is no authority of etcd's.
    EtcdAuthorityMissing,
    /// Another authority than that of the members.
    EtcdAuthorityWrong,
    /// Nothing is wrong any more.
    Restore,
}

impl AccessFault {
    /// All, with the name and what happens.
    pub const ALL: [(Self, &str, &str); 11] = [
        (
            Self::ServerError,
            "api-server-error",
            "the API server answers each request with 500",
        ),
        (
            Self::Hang,
            "api-server-hang",
            "the API server accepts requests and answers none",
        ),
        (
            Self::Flood,
            "api-server-flood",
            "the API server answers each request with 100 MB",
        ),
        (
            Self::Nowhere,
            "api-server-nowhere",
            "nobody listens where the kubeconfig points to",
        ),
        (
            Self::ServerExpired,
            "api-server-expired",
            "the API server's certificate has expired",
        ),
        (
            Self::ClientExpired,
            "kubeconfig-expired",
            "the kubeconfig's client certificate has expired",
        ),
        (
            Self::KubeconfigMissing,
            "kubeconfig-missing",
            "the kubeconfig's Secret is deleted",
        ),
        (
            Self::KubeconfigGarbage,
            "kubeconfig-garbage",
            "the kubeconfig's Secret holds no text",
        ),
        (
            Self::EtcdAuthorityMissing,
            "etcd-ca-missing",
            "the Secret of etcd's authority is deleted",
        ),
        (
            Self::EtcdAuthorityWrong,
            "etcd-ca-wrong",
            "the Secret of etcd's authority holds another",
        ),
        (
            Self::Restore,
            "restore",
            "the Secrets are as Cluster API wrote them",
        ),
    ];
}

impl fmt::Display for AccessFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(named_fault::name(&Self::ALL, *self))
    }
}

impl FromStr for AccessFault {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        named_fault::named(&Self::ALL, name)
    }
}

#[cfg(test)]
mod tests {
    use super::AccessFault;

    #[test]
    fn every_fault_is_known_by_its_name() {
        for (fault, name, _) in AccessFault::ALL {
            assert_eq!(name.parse::<AccessFault>().unwrap(), fault);
            assert_eq!(fault.to_string(), name);
        }
    }
}
