//! What is wrong with the leases of a namespace, and what mends it.

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

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub subject: Subject,
    /// The pool that it is about, where it says so.
    pub pool: Option<String>,
    /// The `ClusterDeployment` that it is about, where it says so.
    pub cluster_deployment: Option<String>,
    pub cause: Cause,
    pub remedy: Remedy,
}

/// What something is wrong with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A customization of the pool's namespace.
    Entry {
        name: String,
    },
    /// The record of who holds that customization.
    Record {
        customization: String,
    },
    Cluster {
        namespace: String,
        name: String,
    },
    /// The copy of a customization in the namespace of a cluster.
    Copy {
        namespace: String,
        name: String,
    },
}

/// Why something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Held by one who is gone.
    HolderGone {
        proof: Proof,
        mark: Mark,
        /// Whether the pool still names it.
        is_in_inventory: bool,
    },
    /// Held by one of whom nobody can tell whether it is gone.
    Unverifiable { mark: Mark, is_in_inventory: bool },
    /// Its holder's cluster was not made to the end.
    CreationBrokenOff,
    /// Reserved, or taken for a pool, and names nobody.
    HolderUnknown { mark: Mark },
    /// Marked available, and the living cluster that has it was made with it or is its holder.
    MarkedAvailable,
    /// Reserved, and does not say for whom; a living cluster was made with it.
    ReferencesMissing,
    /// It names one who is gone; another's living cluster was made with it.
    UsedByAnother { gone: String },
    /// More than one has it.
    Contested { by: Vec<String> },
    /// Nothing: it was to be mended by its name, and somebody may still use it.
    InUse(Use),
    /// Our finalizer alone keeps a cluster that is deleted.
    FinalizerLeft,
    /// A record of one who does not have the customization.
    RecordLeft,
    /// A copy in a namespace whose cluster is gone.
    CopyLeft,
}

/// How an entry is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Reserved,
    Available,
}

/// Who may still use a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Its holder's cluster is there.
    Cluster { namespace: String },
    /// Its holder's lease has not ended.
    Lease { until: Option<Timestamp> },
    /// It was taken within the grace time.
    Recent,
    /// It is of a pool that is not asked about.
    OtherPool,
}

/// What mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nobody has it any more.
    Free,
    /// The cluster has it that was made with it.
    Reserve {
        pool: String,
        cluster_deployment: String,
    },
    /// Its holder gets the cluster that is missing.
    Recreate,
    /// The same, once this is no longer in the way.
    Blocked(Obstacle),
    RemoveFinalizer,
    Delete,
    /// Free it, should somebody who knows that its holder is gone name it.
    FreeByName,
    /// None: it stays as it is, although it was named.
    Keep,
    /// None that could be right.
    Unknown,
}

/// Of an entry, and whom it names.
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

/// After who holds it.
impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { namespace } => {
                write!(f, "whose ClusterDeployment is there, in namespace {namespace}")
            }
            Self::Lease { until: Some(until) } => {
                write!(f, "whose lease ends at {}", until.strftime("%Y-%m-%dT%H:%M:%SZ"))
            }
            Self::Lease { until: None } => f.write_str("whose lease has not ended"),
            Self::Recent => f.write_str("which has it for less than the grace time"),
            Self::OtherPool => f.write_str("and not from this pool"),
        }
    }
}

impl Remedy {
    /// Whether it is done without being asked for by name.
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
    /// The cause in a sentence, and what is in the way of the remedy.
    pub fn sentence(&self) -> String {
        match &self.remedy {
            Remedy::Blocked(why) => format!("{}; not made anew: {why}", self.cause_sentence()),
            _ => self.cause_sentence(),
        }
    }

    fn cause_sentence(&self) -> String {
        let holder = self.cluster_deployment.as_deref().unwrap_or("nobody");
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
                "{}, and nothing tells whether that one is gone: its lease has no end, and no ClusterDeployment of it \
                 was seen",
                self.held(*mark, *is_in_inventory)
            ),
            Cause::CreationBrokenOff => {
                format!("reserved for {holder}, and whoever made its ClusterDeployment did not end")
            }
            Cause::HolderUnknown { mark } => match (mark, &self.pool) {
                (Mark::Reserved, _) => "reserved, and names no ClusterDeployment".to_owned(),
                (Mark::Available, pool) => format!(
                    "marked available, and names pool {} without a ClusterDeployment",
                    pool.as_deref().unwrap_or("nobody")
                ),
            },
            Cause::MarkedAvailable => {
                format!("marked available, while ClusterDeployment {holder} has it")
            }
            Cause::ReferencesMissing => {
                format!("does not say whose it is, while ClusterDeployment {holder} was made with it")
            }
            Cause::UsedByAnother { gone } => {
                format!("names {gone}, which is gone, while ClusterDeployment {holder} was made with it")
            }
            Cause::Contested { by } => {
                let by: Vec<&str> = by.iter().map(String::as_str).collect();
                format!("had by more than one: {}", listed(&by))
            }
            Cause::InUse(used) => format!("not freed: held by {holder}, {used}"),
            Cause::FinalizerLeft => "deleted, and kept by the finalizer of its lease alone".to_owned(),
            Cause::RecordLeft => format!("says that {holder} holds a customization that does not name it"),
            Cause::CopyLeft => format!("left in namespace {holder}, where no ClusterDeployment is"),
        }
    }

    /// `reserved for a`.
    fn held(&self, mark: Mark, is_in_inventory: bool) -> String {
        let holder = self.cluster_deployment.as_deref().unwrap_or("nobody");
        let dropped = match (&self.pool, is_in_inventory) {
            (Some(pool), false) => format!("not in the inventory of {pool}; "),
            _ => String::new(),
        };
        match mark {
            Mark::Reserved => format!("{dropped}reserved for {holder}"),
            Mark::Available => format!("{dropped}marked available, and names {holder}"),
        }
    }

    /// Whether it is about this customization of the pool's namespace.
    pub fn is_about(&self, customization: &str) -> bool {
        matches!(&self.subject, Subject::Entry { name } if name == customization)
    }

    /// Whether it is of a cluster, and goes when its holder has no customization any more.
    pub const fn goes_after_its_entry(&self) -> bool {
        matches!(self.subject, Subject::Cluster { .. } | Subject::Copy { .. })
    }

    /// Whose lease it is about.
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

    /// Its namespace, where that is not the pool's.
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
