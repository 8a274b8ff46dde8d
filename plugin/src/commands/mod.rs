//! The commands of `kubectl kcp`, one module each.

pub mod anchor;
pub mod audit;
pub mod certificates;
pub mod completion;
pub mod debug;
pub mod discovery;
pub mod etcd;
pub mod genesis;
pub mod kubectl;
pub mod leader_migration;
pub mod lint;
pub mod machine;
pub mod man;
pub mod node;
pub mod plan;
pub mod pool;
pub mod reconcile;
pub mod rollout;
pub mod rules;
pub mod scale;
pub mod status;
pub mod upgrade;
pub mod validate;
pub mod version;
pub mod webhook;
pub mod why;

use kcp_client::{Error, ReadLimit, reader::Reader, reads};

use crate::arguments::ControlPlaneName;

/// The control plane's own name. Reads the Cluster if the user named that.
async fn own_name(reader: &Reader<'_>, name: &ControlPlaneName, limit: ReadLimit) -> Result<String, Error> {
    match name {
        ControlPlaneName::Own(name) => Ok(name.clone()),
        ControlPlaneName::OfCluster(cluster) => {
            let namespace = &reader.connection.namespace;
            reads::read_control_plane_name(reader, namespace, cluster, limit).await
        }
    }
}
