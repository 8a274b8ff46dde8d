//! Finds the ClusterDeployments that use an entry. No I/O.

use kcp_api::metadata::Object as _;
use kcp_client::{Error, ServerTime};

use crate::objects::{
    ClusterName, Holder,
    cluster_deployment::{ClusterDeployment, ClusterDeployments, DeletionState},
    entry::{Entry, Reservation},
    record::LeaseRecord,
};
use kcp_api::names::annotation;

/// The ClusterDeployments of all namespaces, if they could be listed.
#[derive(Debug)]
pub enum Clusters {
    All(ClusterDeployments),
    /// The list failed or is incomplete, so this program must not free an entry.
    Unknown(Error),
}

/// Whether a cluster uses an entry, and which.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Usage<'s> {
    Used(&'s ClusterDeployment),
    Unused,
    Unknown,
}

impl Clusters {
    pub const fn cluster_deployments(&self) -> Option<&ClusterDeployments> {
        match self {
            Self::All(deployments) => Some(deployments),
            Self::Unknown(_) => None,
        }
    }

    pub const fn error(&self) -> Option<&Error> {
        match self {
            Self::All(_) => None,
            Self::Unknown(error) => Some(error),
        }
    }

    /// The server's time when this list of clusters was requested. A check compares the end of a lease with this time. If the
    /// lease had ended by then, the list has every cluster that was created during the lease.
    pub fn time_of_check(&self, now: ServerTime) -> ServerTime {
        let requested = self
            .cluster_deployments()
            .and_then(ClusterDeployments::request_time);
        ServerTime {
            earliest: requested.map_or(now.earliest, |requested| requested.min(now.earliest)),
            ..now
        }
    }

    /// Whether a cluster uses the entry. If several do, the holder's own cluster is returned.
    pub fn usage(&self, entry: &Entry) -> Usage<'_> {
        let Some(deployments) = self.cluster_deployments() else {
            return Usage::Unknown;
        };
        let is_holders = |cluster: &&ClusterDeployment| Some(cluster.name()) == entry.status.holder();
        let all = || clusters_using(deployments, entry);
        all()
            .find(is_holders)
            .or_else(|| all().next())
            .map_or(Usage::Unused, Usage::Used)
    }
}

/// All clusters that use the entry.
pub fn clusters_using<'d>(
    deployments: &'d ClusterDeployments,
    entry: &Entry,
) -> impl Iterator<Item = &'d ClusterDeployment> {
    let record = match entry.status.reservation() {
        Reservation::Leased(record) => Some(record),
        _ => None,
    };
    let name = entry.name().to_owned();
    deployments
        .iter()
        .filter(move |cluster| uses(cluster, deployments.namespace(), &name, record.as_ref()))
}

/// Whether the cluster uses this entry, whose lease has this record.
pub fn uses(cluster: &ClusterDeployment, namespace: &str, entry: &str, record: Option<&LeaseRecord>) -> bool {
    if cluster.deletion_state() == DeletionState::Deprovisioned {
        return false;
    }
    let reference = cluster.spec.cluster_pool_ref.as_ref();
    let is_in_inventory = reference.is_some_and(|reference| reference.namespace == namespace)
        && cluster.customization() == Some(entry);
    is_in_inventory || record.is_some_and(|record| refers_to_lease(cluster, record))
}

/// Whether the cluster has the lease's id, or is the cluster that the lease's record names.
fn refers_to_lease(cluster: &ClusterDeployment, record: &LeaseRecord) -> bool {
    let has_id = cluster.annotation(annotation::LEASE_ID) == Some(&record.id);
    let is_at = |place: &ClusterName| {
        (cluster.namespace(), cluster.name()) == (place.namespace.as_str(), place.name.as_str())
    };
    has_id || (cluster.spec.cluster_pool_ref.is_none() && record.cluster.as_ref().is_some_and(is_at))
}

/// Whether a cluster that uses the lease's entry is the cluster for which the entry was leased. If not,
/// another holder's cluster uses the entry.
pub fn belongs_to_lease(cluster: &ClusterDeployment, record: &LeaseRecord) -> bool {
    cluster.name() == record.holder || refers_to_lease(cluster, record)
}

/// Whether the cluster is the one for which the holder leased an entry.
pub fn belongs_to_holder(cluster: &ClusterDeployment, namespace: &str, holder: Holder<'_>) -> bool {
    let is_of_pool =
        cluster.spec.cluster_pool_ref.is_none() || cluster.belongs_to_pool(namespace, holder.pool);
    cluster.name() == holder.cluster_deployment && is_of_pool
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Clusters, Usage, uses};
    use crate::{
        objects::cluster_deployment::{ClusterDeployment, ClusterDeployments},
        testing::objects::{NOW, cluster, deleted, entry, lease, leased, read},
    };

    #[test]
    fn which_clusters_use_an_entry() {
        let record = lease("paris", Some(NOW));
        let of_no_pool = |namespace: &str, name: &str| json!({"metadata": {"name": name, "namespace": namespace, "uid": "u"}, "spec": {}});
        let with_id = |id: &str| {
            let mut object = of_no_pool("x", "lima");
            object["metadata"]["annotations"] = json!({"kubectl-kcp.dev/lease-id": id});
            object
        };
        let mut elsewhere = cluster("lima", "pool", Some("a"));
        elsewhere["spec"]["clusterPoolRef"]["namespace"] = "other".into();
        let ours = ["kubectl-kcp.dev/pool-lease"];
        for (case, object, expected) in [
            ("its pool and the entry", cluster("lima", "pool", Some("a")), true),
            (
                "another pool and the entry",
                cluster("lima", "other", Some("a")),
                true,
            ),
            ("another entry", cluster("lima", "pool", Some("b")), false),
            ("an entry of another namespace", elsewhere, false),
            (
                "the holder's name, in another pool",
                cluster("paris", "other", None),
                false,
            ),
            ("the lease's id", with_id("k4x7"), true),
            ("another lease's id", with_id("k4x8"), false),
            ("where the lease says", of_no_pool("paris", "paris"), true),
            ("another namespace", of_no_pool("rome", "paris"), false),
            ("another name", of_no_pool("paris", "rome"), false),
            (
                "waits for our finalizer",
                deleted(cluster("lima", "pool", Some("a")), &ours),
                false,
            ),
            (
                "waits for another",
                deleted(cluster("lima", "pool", Some("a")), &["f", ours[0]]),
                true,
            ),
        ] {
            let cluster: ClusterDeployment = read(&object);
            assert_eq!(uses(&cluster, "d", "a", Some(&record)), expected, "{case}");
        }
        let at_name: ClusterDeployment = read(&of_no_pool("paris", "paris"));
        assert!(!uses(&at_name, "d", "a", None), "no lease says where");
    }

    #[test]
    fn usage_prefers_the_cluster_of_the_holder() {
        let deployments = |clusters: &[Value]| {
            Clusters::All(ClusterDeployments::new("d", clusters.iter().map(read).collect()))
        };
        let (lima, paris) = (
            cluster("lima", "pool", Some("a")),
            cluster("paris", "pool", Some("a")),
        );
        let held = read(&leased(&lease("paris", Some(NOW))));
        let name = |seen: Usage<'_>| match seen {
            Usage::Used(cluster) => cluster.metadata.name.clone(),
            _ => None,
        };
        assert_eq!(
            name(deployments(&[lima.clone(), paris]).usage(&held)),
            Some("paris".to_owned())
        );
        assert_eq!(name(deployments(&[lima]).usage(&held)), Some("lima".to_owned()));
        assert_eq!(deployments(&[]).usage(&held), Usage::Unused);
        let forbidden = Clusters::Unknown(crate::testing::fake::lost());
        assert_eq!(
            forbidden.usage(&read(&entry("False", Some("paris")))),
            Usage::Unknown
        );
    }
}
