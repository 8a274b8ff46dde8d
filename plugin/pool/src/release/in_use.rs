//! What clusters need: a customization that one was made with is not given back before that one is gone. Pure.

use std::collections::BTreeMap;

use crate::objects::{
    cluster_deployment::{Deployments, LEASE_FINALIZER, Life},
    entry::Holder,
};

/// The clusters that were made with customizations and still need them, by customization.
pub type Needs = BTreeMap<String, Cluster>;

/// A `ClusterDeployment` that needs a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub namespace: String,
    pub name: String,
    /// Of others than us, where it is being taken down; none while it is alive.
    pub finalizers: Vec<String>,
    /// Whether our finalizer keeps it too: it was made by us and not by Hive.
    pub is_ours: bool,
}

impl Cluster {
    /// Why the customization is kept, and what to do.
    pub fn refusal(&self, customization: &str) -> String {
        let Self { namespace, name, .. } = self;
        if self.finalizers.is_empty() {
            return format!(
                "ClusterDeployment {name} was made with {customization} and is there; delete it first: \
                 kubectl delete clusterdeployments.hive.openshift.io {name} -n {namespace}"
            );
        }
        let finalizers = self.finalizers.join(", ");
        let what_then = if self.is_ours {
            "release it again when they are gone".to_owned()
        } else {
            format!(
                "Hive gives it back when that is done: kubectl wait --for=delete --timeout=1h \
                 clusterdeployments.hive.openshift.io/{name} -n {namespace}"
            )
        };
        format!(
            "ClusterDeployment {name} was made with {customization} and is being taken down, with finalizers \
             {finalizers}; {what_then}"
        )
    }

    /// What is left to run when the customization is given back all the same.
    pub fn left(&self, customization: &str) -> String {
        let Self { namespace, name, .. } = self;
        let state = if self.finalizers.is_empty() {
            "still runs"
        } else {
            "is still being taken down"
        };
        format!(
            "ClusterDeployment {name} in namespace {namespace} {state} with {customization}, which another may get now"
        )
    }
}

/// What clusters were made with and still need, whosever name they have. Of several with one customization the
/// holder's own is told.
pub fn needs(deployments: &Deployments, holder: Holder<'_>) -> Needs {
    let mut needs = Needs::new();
    let of_others = deployments
        .of_namespace()
        .filter(|cluster| cluster.name() != holder.cluster_deployment);
    for cluster in deployments.made_for(holder).chain(of_others) {
        let finalizers = match cluster.life() {
            Life::Alive => Vec::new(),
            Life::Deprovisioning => cluster.finalizers_of_others(),
            Life::Over => continue,
        };
        if let Some(customization) = cluster.customization() {
            needs.entry(customization.to_owned()).or_insert_with(|| Cluster {
                namespace: cluster.metadata.namespace.clone(),
                name: cluster.name().to_owned(),
                finalizers,
                is_ours: cluster.metadata.has_finalizer(LEASE_FINALIZER),
            });
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::needs;
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
        let needs = needs(
            &Deployments::of("d", all.into()),
            Holder {
                pool: "p",
                cluster_deployment: "us",
            },
        );
        let needs: Vec<_> = needs
            .iter()
            .map(|(customization, cluster)| (customization.as_str(), cluster.name.as_str()))
            .collect();
        assert_eq!(needs, [("a", "us"), ("b", "another")]);
    }
}
