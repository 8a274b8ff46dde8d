//! Describes a cluster that uses a customization. The customization is not released until the cluster is deleted. No I/O.

use kcp_api::{metadata::Object as _, names::finalizer};

use crate::objects::cluster_deployment::{ClusterDeployment, Deletion as _};

/// A ClusterDeployment that uses a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsingCluster {
    pub namespace: String,
    pub name: String,
    pub is_deleting: bool,
    /// The finalizers on the ClusterDeployment, without this program's.
    pub finalizers: Vec<String>,
    /// Whether this program, not Hive, created the ClusterDeployment. If so, the ClusterDeployment has this
    /// program's finalizer.
    pub is_created_by_plugin: bool,
}

impl From<&ClusterDeployment> for UsingCluster {
    fn from(cluster: &ClusterDeployment) -> Self {
        Self {
            namespace: cluster.namespace().to_owned(),
            name: cluster.name().to_owned(),
            is_deleting: cluster.is_deleting(),
            finalizers: cluster.finalizers_of_others(),
            is_created_by_plugin: cluster.has_finalizer(finalizer::POOL_LEASE),
        }
    }
}

impl UsingCluster {
    /// The message that says why the customization is not released, and what to do.
    pub fn refusal(&self, customization: &str) -> String {
        let Self { namespace, name, .. } = self;
        if !self.is_deleting {
            // This program's finalizer keeps a deleted ClusterDeployment until its lease is released, so `kubectl delete`
            // without --wait=false would never return.
            let wait = if self.is_created_by_plugin {
                " --wait=false"
            } else {
                ""
            };
            return format!(
                "ClusterDeployment {name} still uses {customization}, so {customization} was not released; \
                 delete the ClusterDeployment, and then run the command again: kubectl delete \
                 clusterdeployments.hive.openshift.io {name} -n {namespace}{wait}"
            );
        }
        let finalizers = self.finalizers.join(", ");
        let what_then = if self.is_created_by_plugin {
            "run the command again once other controllers have removed the finalizers".to_owned()
        } else {
            format!(
                "wait until the ClusterDeployment is deleted: kubectl wait --for=delete --timeout=1h \
                 clusterdeployments.hive.openshift.io/{name} -n \
                 {namespace}"
            )
        };
        format!(
            "ClusterDeployment {name} uses {customization} and is being deleted, with finalizers {finalizers}; {what_then}"
        )
    }

    /// The warning that a cluster still uses a customization that was released with `--force`.
    pub fn still_used_warning(&self, customization: &str) -> String {
        let Self { namespace, name, .. } = self;
        let deleting = if self.is_deleting {
            " is being deleted, but"
        } else {
            ""
        };
        format!(
            "ClusterDeployment {name} in namespace {namespace}{deleting} still uses {customization}; others \
             can lease {customization} once the ClusterDeployment no longer exists"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::UsingCluster;
    use crate::testing::objects::{cluster, deleted, read};

    #[test]
    fn no_advice_makes_kubectl_wait_for_our_own_finalizer() {
        let refusal = |object| UsingCluster::from(&read(&object)).refusal("a");
        let foreign = cluster("us", "pool", Some("a"));
        let mut ours = foreign.clone();
        ours["metadata"]["finalizers"] = serde_json::json!(["kubectl-kcp.dev/pool-lease"]);
        assert_eq!(
            refusal(ours),
            "ClusterDeployment us still uses a, so a was not released; delete the ClusterDeployment, and \
             then run the command again: kubectl delete clusterdeployments.hive.openshift.io us -n us \
             --wait=false"
        );
        assert_eq!(
            refusal(foreign.clone()),
            "ClusterDeployment us still uses a, so a was not released; delete the ClusterDeployment, and \
             then run the command again: kubectl delete clusterdeployments.hive.openshift.io us -n us"
        );
        assert_eq!(
            refusal(deleted(foreign.clone(), &["f", "kubectl-kcp.dev/pool-lease"])),
            "ClusterDeployment us uses a and is being deleted, with finalizers f; run the command again \
             once other controllers have removed the finalizers"
        );
        assert_eq!(
            refusal(deleted(foreign, &["f"])),
            "ClusterDeployment us uses a and is being deleted, with finalizers f; wait until the ClusterDeployment \
            is deleted: kubectl wait --for=delete --timeout=1h clusterdeployments.hive.openshift.io/us -n us"
        );
    }
}
