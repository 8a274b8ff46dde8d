//! What repair reads, and writes besides customizations and records.

use serde_json::Value;

use super::mend::Leases;
use crate::{
    cluster::{Error, Written},
    pool::{
        cluster_creation::{Obstacle, make},
        copies::Copy,
        creation::Parts,
        deployments::ClusterDeployment,
        record::LABEL,
        store::{CUSTOMIZATION, Customizations as _, Records as _, Store},
        survey::Survey,
    },
};

impl Leases for Store<'_> {
    async fn survey(&self) -> Result<Survey, Error> {
        // Clusters last: one that is made meanwhile is seen, and its customization, read before, has changed then.
        // Records after entries: a lease is recorded, then its entry written, then it is told. Read the other way, the
        // new entry could be judged by the old record.
        let entries = self.list().await?;
        let records = self.records().await?;
        let pools = self.pools(Some(self.namespace())).await?;
        let labelled = format!("{LABEL}=true");
        let copies: Vec<Copy> = self
            .connection()
            .list_metadata(&CUSTOMIZATION.at("v1"), None, Some(&labelled))
            .await?;
        Ok(Survey {
            namespace: self.namespace().to_owned(),
            pools,
            entries,
            records,
            deployments: self.deployments().await?,
            copies,
        })
    }

    async fn patch_cluster(&self, cluster: &ClusterDeployment, patch: &Value) -> Result<Written, Error> {
        self.write_cluster(&cluster.metadata.namespace, cluster.name(), patch)
            .await
    }

    async fn make_cluster(&self, parts: Parts<'_>) -> Result<Result<ClusterDeployment, Obstacle>, Error> {
        make(self, parts).await
    }

    async fn delete_copy(&self, copy: &Copy) -> Result<Written, Error> {
        self.delete_customization(&copy.metadata).await
    }
}
