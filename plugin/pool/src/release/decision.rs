//! Decides which entries and claims a release request frees. No I/O.

use std::fmt;

use jiff::Timestamp;
use kcp_api::metadata::Object as _;

use crate::{
    hive::HiveMode,
    lease::{
        reuse::Reuse,
        usage::{Clusters, clusters_using},
    },
    objects::{
        CleaningRecord, Holder,
        entry::{Entry, EntryStatus as _, Reservation},
        record::LeaseState,
    },
    release::in_use::UsingCluster,
};

/// What to release: a holder's leases in a pool, or one customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseTarget {
    /// All entries that the holder has leased from this pool.
    Pool(String),
    Customization(String),
}

#[derive(Clone, Copy, Debug)]
pub struct ReleaseRequest<'r> {
    pub target: &'r ReleaseTarget,
    pub cluster_deployment: &'r str,
    /// The id of the only lease or claim to release; `None` for all leases of the holder.
    pub id: Option<&'r str>,
    /// Whether to release an entry although a cluster uses it or may use it.
    pub force: bool,
    /// Whether to release a ClusterClaim, although this destroys its cluster.
    pub delete_cluster: bool,
    pub hive: HiveMode,
}

/// Why an entry or a ClusterClaim is not released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseRefusal {
    NoSuchEntry {
        customization: String,
    },
    NotHolder {
        customization: String,
        holder: String,
        cluster_deployment: String,
    },
    /// The customization is reserved, but its status does not say for which holder.
    UnclearHolder {
        customization: String,
        cluster_deployment: String,
    },
    /// The holder has a lease on the customization, but its id differs from the id in the request.
    OtherLease {
        customization: String,
        cluster_deployment: String,
        id: String,
    },
    /// The ClusterClaim is not the one that the id in the request identifies.
    OtherClaim {
        claim: String,
        id: String,
    },
    /// Clusters still use these customizations.
    InUse(Vec<EntryInUse>),
    /// The client is not allowed to list clusters, so it is unknown whether clusters use these customizations.
    MayBeInUse {
        customizations: Vec<String>,
    },
    /// The pools of these customizations cannot be read, so it is unknown whether the customizations must be cleaned.
    PoolUnknown {
        customizations: Vec<String>,
    },
    /// The release of the ClusterClaim would destroy its cluster, but `--delete-cluster` is not set.
    DestroysCluster {
        claim: String,
        cluster: Option<String>,
        customization: Option<String>,
    },
}

/// A customization that is not released, and the cluster that uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInUse {
    pub customization: String,
    pub cluster: UsingCluster,
}

/// Whether to release an entry, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryRelease {
    Free,
    InUse(UsingCluster),
    MayBeInUse,
    OtherLease,
}

impl ReleaseRequest<'_> {
    /// Whether the request includes the entry.
    pub fn includes(&self, entry: &Entry) -> bool {
        match self.target {
            ReleaseTarget::Pool(pool) => entry.refers_to(Holder {
                pool,
                cluster_deployment: self.cluster_deployment,
            }),
            ReleaseTarget::Customization(name) => {
                entry.name() == name && entry.status.holder() == Some(self.cluster_deployment)
            }
        }
    }

    /// Decides whether to free an entry that the request includes.
    pub fn decide(&self, entry: &Entry, clusters: &Clusters) -> EntryRelease {
        let record = match entry.status.reservation() {
            Reservation::Leased(record) => Some(record),
            _ => None,
        };
        if let Some(id) = self.id
            && record.as_ref().is_none_or(|record| record.id != id)
        {
            return EntryRelease::OtherLease;
        }
        if self.force {
            return EntryRelease::Free;
        }
        let Some(deployments) = clusters.cluster_deployments() else {
            // The holder declared that it creates no cluster, and no check has found one.
            let has_no_cluster =
                record.is_some_and(|record| record.cluster.is_none() && record.state == LeaseState::Held);
            return if has_no_cluster {
                EntryRelease::Free
            } else {
                EntryRelease::MayBeInUse
            };
        };
        let is_holders = |cluster: &UsingCluster| cluster.name == self.cluster_deployment;
        let mut users: Vec<UsingCluster> = clusters_using(deployments, entry)
            .map(UsingCluster::from)
            .collect();
        users.sort_by_key(|cluster| !is_holders(cluster));
        users
            .into_iter()
            .next()
            .map_or(EntryRelease::Free, EntryRelease::InUse)
    }
}

/// The record of the cleaning that follows a release; `None` if the entry is free at once.
pub fn cleaning_after(entry: &Entry, reuse: Reuse, now: Timestamp) -> Option<CleaningRecord> {
    let lease = match entry.status.reservation() {
        Reservation::Leased(record) => Some(record),
        _ => None,
    };
    (reuse == Reuse::Clean).then(|| CleaningRecord::after_lease(lease.as_ref(), entry.status.holder(), now))
}

/// Why the customization that the user named cannot be released; `None` if the holder holds it, or if it is free.
pub fn refusal_if_not_held(
    name: &str,
    entry: Option<&Entry>,
    cluster_deployment: &str,
) -> Option<ReleaseRefusal> {
    let customization = name.to_owned();
    let Some(entry) = entry else {
        return Some(ReleaseRefusal::NoSuchEntry { customization });
    };
    let cluster_deployment = cluster_deployment.to_owned();
    match entry.status.holder() {
        Some(holder) if holder == cluster_deployment => None,
        Some(holder) => Some(ReleaseRefusal::NotHolder {
            customization,
            holder: holder.to_owned(),
            cluster_deployment,
        }),
        // A repeated release finds that the entry is cleaned or free already.
        None if matches!(
            entry.status.reservation(),
            Reservation::Free | Reservation::Cleaning(_)
        ) =>
        {
            None
        }
        None => Some(ReleaseRefusal::UnclearHolder {
            customization,
            cluster_deployment,
        }),
    }
}

impl fmt::Display for ReleaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchEntry { customization } => write!(f, "customization {customization} does not exist"),
            Self::NotHolder {
                customization,
                holder,
                cluster_deployment,
            } => write!(
                f,
                "{customization} is held by {holder}, not by {cluster_deployment}"
            ),
            Self::UnclearHolder { customization, .. } => write!(
                f,
                "{customization} is reserved, but its holder is unknown; to see how to free it, run: kubectl kcp \
                pool repair"
            ),
            Self::OtherLease {
                customization,
                cluster_deployment,
                id,
            } => write!(
                f,
                "{cluster_deployment} no longer has lease {id}; it has another lease on {customization}"
            ),
            Self::OtherClaim { claim, id } => write!(
                f,
                "the claim with id {id} no longer exists; the current ClusterClaim {claim} has another id"
            ),
            Self::InUse(all) => {
                for (
                    index,
                    EntryInUse {
                        customization,
                        cluster,
                    },
                ) in all.iter().enumerate()
                {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{}", cluster.refusal(customization))?;
                }
                Ok(())
            }
            Self::MayBeInUse { customizations } => {
                let names = customizations.join(", ");
                write!(
                    f,
                    "a cluster may still use {names}, and you are not allowed to list clusterdeployments.hive.openshift.io \
                     to check this; if you use --force, the next holder may install over a cluster that is in use"
                )
            }
            Self::PoolUnknown { customizations } => {
                let names = customizations.join(", ");
                write!(
                    f,
                    "the pool of {names} may require cleaning before the next lease, and you are not allowed to get \
                     clusterpools.hive.openshift.io to check this; ask for this permission"
                )
            }
            Self::DestroysCluster {
                claim,
                cluster,
                customization,
            } => {
                let cluster = cluster.as_deref().map_or("its cluster".to_owned(), |cluster| {
                    format!("ClusterDeployment {cluster}")
                });
                let uses = customization
                    .as_deref()
                    .map(|name| format!(", which uses customization {name}"));
                write!(
                    f,
                    "releasing ClusterClaim {claim} destroys {cluster}{}; to release the claim anyway, add \
                     --delete-cluster",
                    uses.unwrap_or_default()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{EntryRelease, ReleaseRefusal, ReleaseRequest, ReleaseTarget, refusal_if_not_held};
    use crate::{
        hive::HiveMode,
        lease::usage::Clusters,
        objects::{cluster_deployment::ClusterDeployments, record::LeaseRecord},
        testing::{
            fake::lost,
            objects::{NOW, cluster, deleted, entry, in_use, lease, leased, read},
        },
    };

    fn decided(entry: &Value, clusters: &Clusters, id: Option<&str>, force: bool) -> String {
        let request = ReleaseRequest {
            target: &ReleaseTarget::Pool("pool".to_owned()),
            cluster_deployment: "us",
            id,
            force,
            delete_cluster: false,
            hive: HiveMode::Auto,
        };
        let entry = read(entry);
        assert!(request.includes(&entry));
        match request.decide(&entry, clusters) {
            EntryRelease::InUse(cluster) => format!("in use by {}", cluster.name),
            other => format!("{other:?}"),
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn a_release_frees_only_entries_that_no_cluster_may_use() {
        let known = |clusters: &[Value]| {
            Clusters::All(ClusterDeployments::new("d", clusters.iter().map(read).collect()))
        };
        let ours = cluster("us", "pool", Some("a"));
        let theirs = cluster("them", "other", Some("a"));
        let ended = deleted(ours.clone(), &["kubectl-kcp.dev/pool-lease"]);
        let held = leased(&lease("us", Some(NOW)));
        let seen = leased(&in_use("us", NOW, "u"));
        let without_cluster = LeaseRecord {
            cluster: None,
            ..lease("us", Some(NOW))
        };
        let without_cluster = leased(&without_cluster);
        let unrecorded = entry("False", Some("us"));
        for (case, entry, clusters, id, force, expected) in [
            ("not used", &held, known(&[]), None, false, "Free"),
            ("by its id", &held, known(&[]), Some("k4x7"), false, "Free"),
            (
                "by the id of an older lease",
                &held,
                known(&[]),
                Some("old"),
                false,
                "OtherLease",
            ),
            (
                "the same by force",
                &held,
                known(&[]),
                Some("old"),
                true,
                "OtherLease",
            ),
            (
                "without a record, by an id",
                &unrecorded,
                known(&[]),
                Some("old"),
                false,
                "OtherLease",
            ),
            (
                "its cluster",
                &held,
                known(&[theirs.clone(), ours.clone()]),
                None,
                false,
                "in use by us",
            ),
            (
                "another cluster",
                &held,
                known(&[theirs]),
                None,
                false,
                "in use by them",
            ),
            ("by force", &held, known(&[ours]), None, true, "Free"),
            ("its cluster is over", &held, known(&[ended]), None, false, "Free"),
            (
                "unknown",
                &held,
                Clusters::Unknown(lost()),
                None,
                false,
                "MayBeInUse",
            ),
            (
                "unknown, and seen",
                &seen,
                Clusters::Unknown(lost()),
                None,
                false,
                "MayBeInUse",
            ),
            (
                "unknown, without a record",
                &unrecorded,
                Clusters::Unknown(lost()),
                None,
                false,
                "MayBeInUse",
            ),
            (
                "unknown, by force",
                &held,
                Clusters::Unknown(lost()),
                None,
                true,
                "Free",
            ),
            (
                "unknown, creates none",
                &without_cluster,
                Clusters::Unknown(lost()),
                None,
                false,
                "Free",
            ),
        ] {
            assert_eq!(decided(entry, &clusters, id, force), expected, "{case}");
        }
    }

    #[test]
    fn a_refusal_names_the_holder_of_a_customization() {
        let refusal =
            |entry: Value| refusal_if_not_held("a", Some(&read(&entry)), "us").map(|why| why.to_string());
        assert_eq!(refusal(entry("False", Some("us"))), None);
        assert_eq!(refusal(entry("True", Some("us"))), None);
        assert_eq!(refusal(entry("True", None)), None);
        let anothers = "a is held by them, not by us".to_owned();
        assert_eq!(refusal(entry("False", Some("them"))), Some(anothers));
        let unclear =
            "a is reserved, but its holder is unknown; to see how to free it, run: kubectl kcp pool repair"
                .to_owned();
        assert_eq!(refusal(entry("False", None)), Some(unclear));
        let missing = ReleaseRefusal::NoSuchEntry {
            customization: "a".to_owned(),
        };
        assert_eq!(refusal_if_not_held("a", None, "us"), Some(missing));
    }
}
