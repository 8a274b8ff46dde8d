//! What is wrong with the leases of a namespace, and what repairs it. Pure.

use std::fmt;

use jiff::Timestamp;

use crate::objects::{Holder, record::LeaseRecord};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub subject: Subject,
    pub pool: Option<String>,
    pub cluster_deployment: Option<String>,
    pub cause: Cause,
    pub remedy: Remedy,
}

/// The object with a fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A customization in the pool's namespace.
    Entry {
        name: String,
    },
    Cluster {
        namespace: String,
        name: String,
    },
    /// A copy of a customization in a cluster's namespace.
    Copy {
        namespace: String,
        name: String,
    },
    /// A Lease in the pool's namespace, in which 0.1 kept a record.
    OldRecord {
        name: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The lease has ended, and no cluster uses the entry.
    Ended { at: Option<Timestamp> },
    /// No cluster uses the entry any more, or the lease has ended and may have had one.
    ClusterGone {
        /// How long the entry stays reserved; none for ever.
        until: Option<Timestamp>,
    },
    /// Its status does not say who has it.
    Unrecorded(Unrecorded),
    /// Used by a cluster that is not its holder's, or by several.
    Contested { by: Vec<String> },
    /// It cannot be known who has it. The sentence says why.
    Unknown { why: String },
    /// Left by a lease that is over.
    Left(&'static str),
    /// Hive's own fault. The sentence says what.
    Hive { what: String },
    /// No fault: it was named with --force, and is not freed. The sentence says why.
    InUse { why: String },
}

/// What an entry's status leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecorded {
    /// It is reserved for a holder, without a record.
    NoRecord,
    /// It is marked available, and its record says that it is leased.
    MarkLost,
    /// A cluster uses it, and it is marked available.
    MarkedAvailable,
    /// A cluster uses it, and it names no holder, or one whose lease is over.
    UsedByAnother,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    Free,
    /// Write this record, for this pool.
    Record {
        pool: String,
        record: LeaseRecord,
    },
    /// Write Hive's own reservation again.
    Reserve {
        pool: String,
        cluster_deployment: String,
    },
    /// Create the holder's missing cluster.
    Recreate,
    /// Remove a finalizer or a copy.
    Remove,
    /// Free it, if the user names it with --force.
    Force,
    /// Left to the user.
    None,
}

impl Remedy {
    /// Whether it is applied without --force.
    pub const fn is_safe(&self) -> bool {
        !matches!(self, Self::Force | Self::None)
    }

    /// In JSON, and in a table.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Record { .. } | Self::Reserve { .. } => "record",
            Self::Recreate => "recreate",
            Self::Remove => "remove",
            Self::Force => "force",
            Self::None => "none",
        }
    }
}

impl Cause {
    /// In JSON.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "ended",
            Self::ClusterGone { .. } => "cluster-gone",
            Self::Unrecorded(_) => "unrecorded",
            Self::Contested { .. } => "contested",
            Self::Unknown { .. } => "unknown",
            Self::Left(_) => "left",
            Self::Hive { .. } => "hive",
            Self::InUse { .. } => "in-use",
        }
    }
}

impl Finding {
    /// The cause in a sentence.
    pub fn sentence(&self) -> String {
        let holder = self.cluster_deployment.as_deref().unwrap_or("an unknown holder");
        match &self.cause {
            Cause::Ended { at } => {
                format!("the lease of {holder} ended{}", at.map_or(String::new(), at_time))
            }
            Cause::ClusterGone { until } => format!(
                "no cluster uses the entry of {holder} any more; it stays reserved {}",
                until.map_or("until it is released".to_owned(), |until| format!(
                    "until{}",
                    when(until)
                ))
            ),
            Cause::Unrecorded(Unrecorded::NoRecord) => {
                format!("reserved for {holder}, without a record of the lease")
            }
            Cause::Unrecorded(Unrecorded::MarkLost) => {
                format!("marked available, but {holder} has leased it")
            }
            Cause::Unrecorded(Unrecorded::MarkedAvailable) => {
                format!("marked available, but ClusterDeployment {holder} uses it")
            }
            Cause::Unrecorded(Unrecorded::UsedByAnother) => {
                format!("names no holder with a lease, but ClusterDeployment {holder} uses it")
            }
            Cause::Contested { by } => {
                let by: Vec<&str> = by.iter().map(String::as_str).collect();
                format!("used by more than one: {}", listed(&by))
            }
            Cause::Unknown { why } => why.clone(),
            Cause::Left(what) => (*what).to_owned(),
            Cause::Hive { what } => what.clone(),
            Cause::InUse { why } => format!("not freed: held by {holder}, {why}"),
        }
    }

    /// Whether it can be removed only after its holder's customization is free.
    pub const fn is_removed_after_its_entry(&self) -> bool {
        matches!(self.subject, Subject::Cluster { .. } | Subject::Copy { .. })
    }

    pub fn holder(&self) -> Option<Holder<'_>> {
        Some(Holder {
            pool: self.pool.as_deref()?,
            cluster_deployment: self.cluster_deployment.as_deref()?,
        })
    }

    /// Whether another look finds the same fault.
    pub fn is_same(&self, other: &Self) -> bool {
        self.subject == other.subject
            && self.cause.as_str() == other.cause.as_str()
            && self.remedy.as_str() == other.remedy.as_str()
            && self.cluster_deployment == other.cluster_deployment
    }
}

fn at_time(time: Timestamp) -> String {
    format!(" at{}", when(time))
}

fn when(time: Timestamp) -> String {
    time.strftime(" %Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Subject {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Entry { .. } | Self::Copy { .. } => "ClusterDeploymentCustomization",
            Self::Cluster { .. } => "ClusterDeployment",
            Self::OldRecord { .. } => "Lease",
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Entry { name }
            | Self::Copy { name, .. }
            | Self::Cluster { name, .. }
            | Self::OldRecord { name } => name,
        }
    }

    /// Its namespace, if it is not the pool's.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Entry { .. } | Self::OldRecord { .. } => None,
            Self::Cluster { namespace, .. } | Self::Copy { namespace, .. } => Some(namespace),
        }
    }

    /// As kubectl writes it.
    pub fn resource_name(&self) -> String {
        let resource = match self {
            Self::Entry { .. } | Self::Copy { .. } => "clusterdeploymentcustomization.hive.openshift.io",
            Self::Cluster { .. } => "clusterdeployment.hive.openshift.io",
            Self::OldRecord { .. } => "lease.coordination.k8s.io",
        };
        format!("{resource}/{}", self.name())
    }

    /// With kubectl's short names.
    pub fn short_name(&self) -> String {
        let resource = match self {
            Self::Entry { .. } | Self::Copy { .. } => "cdc",
            Self::Cluster { .. } => "cd",
            Self::OldRecord { .. } => "lease",
        };
        format!("{resource}/{}", self.name())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short_name())
    }
}

/// `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
