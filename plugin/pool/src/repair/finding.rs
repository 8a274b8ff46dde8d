//! Describes the problem of a lease and its remedy, and writes their messages. No I/O.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;
use kcp_api::metadata::Object as _;

use crate::objects::{
    CleaningRecord, Holder, cluster_deployment::ClusterDeployment, entry::Entry, record::LeaseRecord,
};

/// A problem of a lease, and how to repair it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseProblem {
    pub subject: ProblemSubject,
    pub pool: Option<String>,
    pub cluster_deployment: Option<String>,
    pub cause: Cause,
    pub remedy: Remedy,
}

/// The object that has the problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemSubject {
    /// A customization in the pool's namespace.
    Entry {
        name: String,
    },
    Cluster {
        namespace: String,
        name: String,
    },
    /// A ClusterClaim in the pool's namespace.
    Claim {
        name: String,
    },
    /// A copy of a customization in a cluster's namespace.
    Copy {
        namespace: String,
        name: String,
    },
    /// A Lease in the pool's namespace, in which version 0.1 stored a record.
    OldRecord {
        name: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The lease has ended, and no cluster uses the entry.
    Ended { at: Option<Timestamp> },
    /// The cluster of the lease no longer exists. Or the lease has ended, and a cluster may have existed that no command has seen.
    ClusterGone {
        /// The time until which the entry stays reserved; `None` if the lease never ends.
        until: Option<Timestamp>,
    },
    /// The entry's status is incomplete, or contradicts the clusters.
    StatusFault(StatusFault),
    /// Several clusters use the entry, or a cluster of another holder uses it. Contains the names of the clusters.
    Contested { by: Vec<String> },
    /// The entry is reserved, but its holder is unknown, for this reason.
    Unknown { why: String },
    /// An object of a lease that has ended still exists. Contains a sentence about it.
    Leftover(&'static str),
    /// Hive causes the problem. Contains a sentence about it.
    Hive { what: String },
    /// A Secret changed after the cluster had been created from it. Contains a sentence about it.
    OldSecret { what: String },
    /// The entry has no problem. The user named it with `--force`, but it is not freed, for this reason.
    InUse { why: String },
}

/// How an entry's status is incomplete, or contradicts the clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFault {
    /// The entry is reserved for a holder, but its status has no record of the lease.
    NoRecord,
    /// `Available` is `True`, although the status has the record of a lease.
    MarkLost,
    /// `Available` is `True`, although a cluster uses the entry.
    MarkedAvailable,
    /// A cluster uses the entry, but the entry has no holder, or the holder's lease has ended.
    UsedByAnother,
    /// `Available` is `True`, although the entry must be cleaned.
    DirtyMarkedAvailable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    Free,
    /// Write this record, with which the entry waits for a janitor.
    Clean(CleaningRecord),
    /// Write this record of a lease for this pool.
    Record {
        pool: String,
        record: LeaseRecord,
    },
    /// Write the reservation for this holder again, in the form that Hive writes.
    Reserve {
        pool: String,
        cluster_deployment: String,
    },
    /// Create the holder's missing cluster again.
    Recreate,
    /// Remove the finalizer from the object, or delete the object.
    Remove,
    /// Free the entry, but only if the user names it with `--force`.
    Force,
    /// Change nothing, because the user must decide.
    None,
}

impl LeaseProblem {
    pub(super) fn of_entry(entry: &Entry, cause: Cause, remedy: Remedy) -> Self {
        Self {
            subject: ProblemSubject::Entry {
                name: entry.name().to_owned(),
            },
            pool: entry.status.pool().map(str::to_owned),
            cluster_deployment: entry.status.holder().map(str::to_owned),
            cause,
            remedy,
        }
    }

    /// The finding about an entry that several clusters use, or another one than its holder.
    pub(super) fn contested(entry: &Entry, users: &[&ClusterDeployment]) -> Self {
        let users = users.iter().map(|cluster| cluster.name());
        let names: BTreeSet<&str> = entry.status.holder().into_iter().chain(users).collect();
        let names = names.into_iter().map(str::to_owned).collect();
        Self::of_entry(entry, Cause::Contested { by: names }, Remedy::None)
    }
}

impl Remedy {
    /// Whether `--yes` alone is enough to apply the remedy.
    pub const fn is_safe(&self) -> bool {
        !matches!(self, Self::Force | Self::None)
    }

    /// Whether the remedy ends a lease.
    pub const fn ends_lease(&self) -> bool {
        matches!(self, Self::Free | Self::Clean(_))
    }

    /// The name of the remedy in JSON and in tables.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Clean(_) => "clean",
            Self::Record { .. } | Self::Reserve { .. } => "record",
            Self::Recreate => "recreate",
            Self::Remove => "remove",
            Self::Force => "force",
            Self::None => "none",
        }
    }
}

impl Cause {
    /// The name of the cause in JSON.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "ended",
            Self::ClusterGone { .. } => "cluster-gone",
            Self::StatusFault(_) => "unrecorded",
            Self::Contested { .. } => "contested",
            Self::Unknown { .. } => "unknown",
            Self::Leftover(_) => "left",
            Self::Hive { .. } => "hive",
            Self::OldSecret { .. } => "old-secret",
            Self::InUse { .. } => "in-use",
        }
    }
}

impl LeaseProblem {
    /// Describes the problem in one sentence.
    pub fn sentence(&self) -> String {
        let holder = self.cluster_deployment.as_deref().unwrap_or("an unknown holder");
        match &self.cause {
            Cause::Ended { at } => {
                format!("the lease of {holder} ended{}", at.map_or(String::new(), at_time))
            }
            Cause::ClusterGone { until } => format!(
                "the cluster of {holder} no longer exists; the entry stays reserved {}",
                until.map_or("until it is released".to_owned(), |until| format!(
                    "until{}",
                    when(until)
                ))
            ),
            Cause::StatusFault(StatusFault::NoRecord) => {
                format!("the entry is reserved for {holder}, but has no lease record")
            }
            Cause::StatusFault(StatusFault::MarkLost) => {
                format!("the condition Available is True, but {holder} has leased the entry")
            }
            Cause::StatusFault(StatusFault::MarkedAvailable) => {
                format!("the condition Available is True, but ClusterDeployment {holder} uses the entry")
            }
            Cause::StatusFault(StatusFault::UsedByAnother) => {
                format!("ClusterDeployment {holder} uses the entry without a lease")
            }
            Cause::StatusFault(StatusFault::DirtyMarkedAvailable) => {
                "the condition Available is True, but the entry must be cleaned".to_owned()
            }
            Cause::Contested { by } => {
                let names: Vec<&str> = by.iter().map(String::as_str).collect();
                format!(
                    "several ClusterDeployments use or hold the entry: {}; decide which one may use it, \
                     and delete the others",
                    join_names(&names)
                )
            }
            Cause::Unknown { why } => why.clone(),
            Cause::Leftover(what) => (*what).to_owned(),
            Cause::Hive { what } | Cause::OldSecret { what } => what.clone(),
            Cause::InUse { why } => format!("not freed: {why}"),
        }
    }

    /// Whether the object cannot be removed before its holder's customization is free.
    pub const fn is_removed_after_its_entry(&self) -> bool {
        matches!(
            self.subject,
            ProblemSubject::Cluster { .. } | ProblemSubject::Copy { .. }
        )
    }

    pub fn holder(&self) -> Option<Holder<'_>> {
        Some(Holder {
            pool: self.pool.as_deref()?,
            cluster_deployment: self.cluster_deployment.as_deref()?,
        })
    }

    /// Whether both findings are about the same problem.
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

impl ProblemSubject {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Entry { .. } | Self::Copy { .. } => "ClusterDeploymentCustomization",
            Self::Cluster { .. } => "ClusterDeployment",
            Self::Claim { .. } => "ClusterClaim",
            Self::OldRecord { .. } => "Lease",
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Entry { name }
            | Self::Claim { name }
            | Self::Copy { name, .. }
            | Self::Cluster { name, .. }
            | Self::OldRecord { name } => name,
        }
    }

    /// The namespace of the object; `None` if it is the pool's namespace.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Entry { .. } | Self::Claim { .. } | Self::OldRecord { .. } => None,
            Self::Cluster { namespace, .. } | Self::Copy { namespace, .. } => Some(namespace),
        }
    }

    /// The object's name, as `kubectl get -o name` prints it.
    pub fn resource_name(&self) -> String {
        let resource = match self {
            Self::Entry { .. } | Self::Copy { .. } => "clusterdeploymentcustomization.hive.openshift.io",
            Self::Cluster { .. } => "clusterdeployment.hive.openshift.io",
            Self::Claim { .. } => "clusterclaim.hive.openshift.io",
            Self::OldRecord { .. } => "lease.coordination.k8s.io",
        };
        format!("{resource}/{}", self.name())
    }

    /// The object's name, with the short name of its kind, such as `cdc/host-a`.
    pub fn short_name(&self) -> String {
        let resource = match self {
            Self::Entry { .. } | Self::Copy { .. } => "cdc",
            Self::Cluster { .. } => "cd",
            Self::Claim { .. } => "clusterclaim",
            Self::OldRecord { .. } => "lease",
        };
        format!("{resource}/{}", self.name())
    }
}

impl fmt::Display for ProblemSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short_name())
    }
}

/// Joins names for a sentence, such as `a, b and c`.
fn join_names(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
