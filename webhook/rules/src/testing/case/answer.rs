//! The response of an API server to a write.

/// How an API server with kcp-webhook, Cluster API's webhooks and the CRDs responds to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The write is admitted without a warning.
    Admitted,
    /// kcp-webhook's mutating webhook corrects the field before the rules run. The write is admitted with this value,
    /// as JSON.
    Mutation(&'static str),
    /// The CRD schema rejects the object before validating webhooks run. In a case of an update, it may already reject the old object
    /// when the test creates it. Contains the rejected fields, in any order.
    Schema(&'static [&'static str]),
    /// Cluster API's webhook denies the write. kcp-webhook only warns, because a newer Cluster API may accept the
    /// write.
    ClusterApi,
    /// kcp-webhook warns.
    Warn,
    /// kcp-webhook denies the write.
    Deny,
}

impl Answer {
    /// The name of the response in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Mutation(_) => "mutation",
            Self::Schema(_) => "schema",
            Self::ClusterApi => "cluster-api",
            Self::Warn => "warn",
            Self::Deny => "deny",
        }
    }
}
