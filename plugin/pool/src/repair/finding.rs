//! What is wrong with the leases of a namespace, and what repairs it.

use std::{borrow::Cow, fmt};

use jiff::Timestamp;

use crate::{
    creation::make::Obstacle,
    objects::{
        entry::{Entry, Holder},
        record::name_of,
    },
    repair::holder::Proof,
};

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
    /// The record of that customization.
    Record {
        customization: String,
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The holder is gone.
    HolderGone {
        proof: Proof,
        mark: Mark,
        /// Whether the pool still lists it.
        is_in_inventory: bool,
    },
    /// It is unknown whether the holder still exists.
    Unverifiable { mark: Mark, is_in_inventory: bool },
    /// The creation of the holder's cluster did not finish.
    CreationBrokenOff,
    /// Reserved, or assigned to a pool, without a holder.
    HolderUnknown { mark: Mark },
    /// Marked available, but a living cluster uses it.
    MarkedAvailable,
    /// Reserved without a holder, and a living cluster uses it.
    ReferencesMissing,
    /// The holder is gone, and another living cluster uses it.
    UsedByAnother { gone: String },
    /// More than one cluster uses it.
    Contested { by: Vec<String> },
    /// No fault: it was named with --force, and may still be in use.
    InUse(Use),
    /// A deleted ClusterDeployment waits for our finalizer alone.
    FinalizerLeft,
    /// The record's holder does not have the customization.
    RecordLeft,
    /// A copy in a namespace without a cluster.
    CopyLeft,
}

/// An entry's Available condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Reserved,
    Available,
}

/// Who may still use a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// The holder's ClusterDeployment exists.
    Cluster { namespace: String },
    /// The holder's lease has not expired.
    Lease { until: Option<Timestamp> },
    /// It was leased less than the grace period ago.
    Recent,
    /// It belongs to another pool than the requested one.
    OtherPool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Free the entry: its holder is gone.
    Free,
    /// Reserve it for the cluster that uses it.
    Reserve {
        pool: String,
        cluster_deployment: String,
    },
    /// Create the holder's missing cluster.
    Recreate,
    /// The same, once nothing blocks it.
    Blocked(Obstacle),
    RemoveFinalizer,
    Delete,
    /// Free it, if the user names it with --force.
    FreeByName,
    /// Leave it as it is, although it was named with --force.
    Keep,
    /// No remedy is certain to be right.
    Unknown,
}

/// A finding about an entry and its holder.
pub fn about_entry(entry: &Entry, cause: Cause, remedy: Remedy) -> Finding {
    Finding {
        subject: Subject::Entry {
            name: entry.name().to_owned(),
        },
        pool: entry.pool().map(str::to_owned),
        cluster_deployment: entry.cluster_deployment().map(str::to_owned),
        cause,
        remedy,
    }
}

/// Follows the holder's name.
impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { namespace } => {
                write!(f, "whose ClusterDeployment exists, in namespace {namespace}")
            }
            Self::Lease { until: Some(until) } => {
                write!(f, "whose lease ends at {}", until.strftime("%Y-%m-%dT%H:%M:%SZ"))
            }
            Self::Lease { until: None } => f.write_str("whose lease has not expired"),
            Self::Recent => f.write_str("which has held it for less than the grace period"),
            Self::OtherPool => f.write_str("for another pool"),
        }
    }
}

impl Remedy {
    /// Whether it is applied without --force.
    pub const fn is_safe(&self) -> bool {
        !matches!(
            self,
            Self::Blocked(_) | Self::FreeByName | Self::Keep | Self::Unknown
        )
    }

    /// In JSON, and in a table.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Reserve { .. } => "reserve",
            Self::Recreate => "recreate",
            Self::Blocked(_) => "blocked",
            Self::RemoveFinalizer => "remove-finalizer",
            Self::Delete => "delete",
            Self::FreeByName => "force",
            Self::Keep => "keep",
            Self::Unknown => "none",
        }
    }
}

impl Cause {
    /// In JSON.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::HolderGone { proof, .. } => match proof {
                Proof::Expired { .. } => "lease-expired",
                Proof::Revoked => "lease-revoked",
                Proof::ClusterGone { .. } => "cluster-gone",
                Proof::ClusterTakenDown { .. } => "cluster-taken-down",
            },
            Self::Unverifiable { .. } => "unverifiable",
            Self::CreationBrokenOff => "creation-broken-off",
            Self::HolderUnknown { .. } => "holder-unknown",
            Self::MarkedAvailable => "marked-available",
            Self::ReferencesMissing => "references-missing",
            Self::UsedByAnother { .. } => "used-by-another",
            Self::Contested { .. } => "contested",
            Self::InUse(_) => "in-use",
            Self::FinalizerLeft => "finalizer-left",
            Self::RecordLeft => "record-left",
            Self::CopyLeft => "copy-left",
        }
    }
}

impl Finding {
    /// The cause in a sentence, and what blocks the remedy.
    pub fn sentence(&self) -> String {
        match &self.remedy {
            Remedy::Blocked(why) => format!("{}; not created again: {why}", self.cause_sentence()),
            _ => self.cause_sentence(),
        }
    }

    fn cause_sentence(&self) -> String {
        let holder = self.cluster_deployment.as_deref().unwrap_or("an unknown holder");
        match &self.cause {
            Cause::HolderGone {
                proof,
                mark,
                is_in_inventory,
            } => format!("{}, {proof}", self.held(*mark, *is_in_inventory)),
            Cause::Unverifiable {
                mark,
                is_in_inventory,
            } => format!(
                "{}, which cannot be verified: its lease has no end, and its ClusterDeployment was never seen",
                self.held(*mark, *is_in_inventory)
            ),
            Cause::CreationBrokenOff => {
                format!("reserved for {holder}, and the creation of its ClusterDeployment did not finish")
            }
            Cause::HolderUnknown { mark } => match (mark, &self.pool) {
                (Mark::Reserved, _) => "reserved, but names no ClusterDeployment".to_owned(),
                (Mark::Available, pool) => format!(
                    "marked available, but names pool {} without a ClusterDeployment",
                    pool.as_deref().unwrap_or("an unknown holder")
                ),
            },
            Cause::MarkedAvailable => {
                format!("marked available, but ClusterDeployment {holder} uses it")
            }
            Cause::ReferencesMissing => {
                format!("names no holder, but ClusterDeployment {holder} uses it")
            }
            Cause::UsedByAnother { gone } => {
                format!("names {gone}, which is gone, but ClusterDeployment {holder} uses it")
            }
            Cause::Contested { by } => {
                let by: Vec<&str> = by.iter().map(String::as_str).collect();
                format!("used by more than one: {}", listed(&by))
            }
            Cause::InUse(used) => format!("not freed: held by {holder}, {used}"),
            Cause::FinalizerLeft => "deleted, and waits only for the finalizer of its lease".to_owned(),
            Cause::RecordLeft => {
                format!("names {holder} as the holder of a customization that does not name it")
            }
            Cause::CopyLeft => format!("left in namespace {holder}, which has no ClusterDeployment"),
        }
    }

    /// `reserved for a`.
    fn held(&self, mark: Mark, is_in_inventory: bool) -> String {
        let holder = self.cluster_deployment.as_deref().unwrap_or("an unknown holder");
        let dropped = match (&self.pool, is_in_inventory) {
            (Some(pool), false) => format!("not in the inventory of {pool}; "),
            _ => String::new(),
        };
        match mark {
            Mark::Reserved => format!("{dropped}reserved for {holder}"),
            Mark::Available => format!("{dropped}marked available, but names {holder}"),
        }
    }

    /// Whether it is about this customization of the pool's namespace.
    pub fn is_about(&self, customization: &str) -> bool {
        matches!(&self.subject, Subject::Entry { name } if name == customization)
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
}

impl Subject {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Entry { .. } | Self::Copy { .. } => "ClusterDeploymentCustomization",
            Self::Record { .. } => "Lease",
            Self::Cluster { .. } => "ClusterDeployment",
        }
    }

    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Entry { name } | Self::Copy { name, .. } | Self::Cluster { name, .. } => name.into(),
            Self::Record { customization } => name_of(customization).into(),
        }
    }

    /// Its namespace, if it is not the pool's.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Entry { .. } | Self::Record { .. } => None,
            Self::Cluster { namespace, .. } | Self::Copy { namespace, .. } => Some(namespace),
        }
    }

    /// As kubectl writes it.
    pub fn resource_name(&self) -> String {
        let resource = match self {
            Self::Entry { .. } | Self::Copy { .. } => "clusterdeploymentcustomization.hive.openshift.io",
            Self::Record { .. } => "lease.coordination.k8s.io",
            Self::Cluster { .. } => "clusterdeployment.hive.openshift.io",
        };
        format!("{resource}/{}", self.name())
    }

    /// With kubectl's short names.
    pub fn short_name(&self) -> String {
        let resource = match self {
            Self::Entry { .. } | Self::Copy { .. } => "cdc",
            Self::Record { .. } => "lease",
            Self::Cluster { .. } => "cd",
        };
        format!("{resource}/{}", self.name())
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
