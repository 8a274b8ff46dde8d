//! What repair reads, and writes besides customizations and records, on the API server.

use kcp_client::{Error, Written};
use serde_json::Value;

use crate::{
    creation::{
        Parts,
        making::{Obstacle, make},
    },
    objects::{copies::Copy, deployments::ClusterDeployment, record::LeaseClaim},
    repair::mend::Mending,
    store::Store,
    survey::Survey,
};

impl Mending for Store<'_> {
    async fn survey(&self) -> Result<Survey, Error> {
        self.survey().await
    }

    async fn patch_cluster(&self, cluster: &ClusterDeployment, patch: &Value) -> Result<Written, Error> {
        self.write_cluster(&cluster.metadata.namespace, cluster.name(), patch)
            .await
    }

    async fn make_cluster(
        &self,
        parts: Parts<'_>,
        claim: LeaseClaim<'_>,
    ) -> Result<Result<ClusterDeployment, Obstacle>, Error> {
        make(self, parts, claim).await
    }

    async fn delete_copy(&self, copy: &Copy) -> Result<Written, Error> {
        self.delete_customization(&copy.metadata).await
    }
}
