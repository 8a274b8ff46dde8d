//! Customizations that clusters use: they are not released before the cluster is gone. Pure.

use std::collections::BTreeMap;

use crate::objects::{
    cluster_deployment::{Deployments, LEASE_FINALIZER, Life},
    entry::Holder,
};

/// The clusters that use customizations, by customization.
pub type Users = BTreeMap<String, Cluster>;

/// A ClusterDeployment that uses a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub namespace: String,
    pub name: String,
    /// The finalizers of other controllers while it is being deleted; none while it is alive.
    pub finalizers: Vec<String>,
    /// Whether it has our finalizer too: then this crate created it, not Hive.
    pub is_ours: bool,
}

impl Cluster {
    /// Why the customization is not released, and what to do.
    pub fn refusal(&self, customization: &str) -> String {
        let Self { namespace, name, .. } = self;
        if self.finalizers.is_empty() {
            return format!(
                "ClusterDeployment {name} still uses {customization}; delete it first: \
                 kubectl delete clusterdeployments.hive.openshift.io {name} -n {namespace}"
            );
        }
        let finalizers = self.finalizers.join(", ");
        let what_then = if self.is_ours {
            "release it again when they are removed".to_owned()
        } else {
            format!(
                "Hive releases it when that is done: kubectl wait --for=delete --timeout=1h \
                 clusterdeployments.hive.openshift.io/{name} -n {namespace}"
            )
        };
        format!(
            "ClusterDeployment {name} uses {customization} and is being deleted, with finalizers {finalizers}; {what_then}"
        )
    }

    /// What still runs after a forced release.
    pub fn left(&self, customization: &str) -> String {
        let Self { namespace, name, .. } = self;
        let state = if self.finalizers.is_empty() {
            "still uses"
        } else {
            "is being deleted and still uses"
        };
        format!(
            "ClusterDeployment {name} in namespace {namespace} {state} {customization}, which others can lease now"
        )
    }
}

/// The clusters that use customizations, whatever their names. The holder's own comes first.
pub fn users(deployments: &Deployments, holder: Holder<'_>) -> Users {
    let mut users = Users::new();
    let of_others = deployments
        .of_namespace()
        .filter(|cluster| cluster.name() != holder.cluster_deployment);
    for cluster in deployments.of_holder(holder).chain(of_others) {
        let finalizers = match cluster.life() {
            Life::Alive => Vec::new(),
            Life::Deprovisioning => cluster.finalizers_of_others(),
            Life::Over => continue,
        };
        if let Some(customization) = cluster.customization() {
            users.entry(customization.to_owned()).or_insert_with(|| Cluster {
                namespace: cluster.metadata.namespace.clone(),
                name: cluster.name().to_owned(),
                finalizers,
                is_ours: cluster.metadata.has_finalizer(LEASE_FINALIZER),
            });
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::users;
    use crate::{
        objects::{cluster_deployment::Deployments, entry::Holder},
        testing::objects::cluster,
    };

    #[test]
    fn what_any_cluster_needs() {
        let mut over = cluster("over", "p", Some("c"));
        over["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z".into();
        let mut elsewhere = cluster("elsewhere", "p", Some("d"));
        elsewhere["spec"]["clusterPoolRef"]["namespace"] = "other".into();
        let all = [
            cluster("another", "p", Some("a")),
            cluster("us", "p", Some("a")),
            cluster("another", "q", Some("b")),
            over,
            elsewhere,
        ];
        let all = all.map(|object| serde_json::from_value(object).unwrap());
        let users = users(
            &Deployments::of("d", all.into()),
            Holder {
                pool: "p",
                cluster_deployment: "us",
            },
        );
        let users: Vec<_> = users
            .iter()
            .map(|(customization, cluster)| (customization.as_str(), cluster.name.as_str()))
            .collect();
        assert_eq!(users, [("a", "us"), ("b", "another")]);
    }
}
