//! Making the cluster of a lease, where no Hive makes it: what is there already stays, so that whoever was broken off goes
//! on where it was.

use std::{fmt, time::Duration};

use serde_json::Value;

use super::{
    capacity::Full,
    creation::Parts,
    deployments::ClusterDeployment,
    patching::Unfit,
    record::LABEL,
    store::{Customizations as _, Made, Store},
};
use crate::cluster::{Created, Error};

/// How often an object is made whose answers get lost.
const MAX_ATTEMPTS: usize = 5;

/// Before it is made once more.
const REST: Duration = Duration::from_millis(200);

/// How long a lease lasts until its cluster is there: who is killed before leaves one that ends by itself.
pub(super) const WHILE_CREATING: Duration = Duration::from_secs(600);

/// Why a cluster is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    PoolFull {
        pool: String,
        full: Full,
    },
    /// The customization's patches cannot be applied to the install-config.
    Unfit(Unfit),
    /// The patched install-config cannot be written as YAML.
    NotYaml,
    /// A namespace of that name is somebody else's.
    ForeignNamespace {
        name: String,
    },
    /// A cluster of that name is somebody else's.
    ForeignCluster {
        name: String,
    },
    DeletedMeanwhile {
        name: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolFull { pool, full } => write!(f, "pool {pool} is full: {full}"),
            Self::Unfit(why) => why.fmt(f),
            Self::NotYaml => f.write_str("the patched install-config cannot be written as YAML"),
            Self::ForeignNamespace { name } => {
                write!(f, "namespace {name} is there, and was not made for a lease")
            }
            Self::ForeignCluster { name } => {
                write!(f, "there is a ClusterDeployment {name} that was not made with it")
            }
            Self::DeletedMeanwhile { name } => write!(f, "ClusterDeployment {name} was deleted meanwhile"),
        }
    }
}

/// Makes what is not there yet, and returns the cluster; or why it is not made.
///
/// # Errors
/// When the API server cannot be asked, or refuses.
pub(super) async fn make(
    store: &Store<'_>,
    parts: Parts<'_>,
) -> Result<Result<ClusterDeployment, Obstacle>, Error> {
    let Ok(objects) = parts.objects() else {
        return Ok(Err(Obstacle::NotYaml));
    };
    let holder = parts.holder;
    let name = holder.cluster_deployment;
    ensure(store, Made::Namespace, &objects.namespace).await?;
    if !store.has_label(name, LABEL).await? {
        return Ok(Err(Obstacle::ForeignNamespace {
            name: name.to_owned(),
        }));
    }
    ensure(store, Made::Secret(name), &objects.install_config).await?;
    ensure(store, Made::Customization(name), &objects.customization).await?;
    ensure(store, Made::Deployment(name), &objects.deployment).await?;
    Ok(match store.cluster(name, name).await? {
        None => Err(Obstacle::DeletedMeanwhile {
            name: name.to_owned(),
        }),
        Some(cluster)
            if cluster.customization() == Some(parts.entry.name())
                && cluster.is_of(store.namespace(), holder.pool) =>
        {
            Ok(cluster)
        }
        Some(_) => Err(Obstacle::ForeignCluster {
            name: name.to_owned(),
        }),
    })
}

/// Makes an object, unless it is there.
async fn ensure(store: &Store<'_>, made: Made<'_>, object: &Value) -> Result<(), Error> {
    let mut attempt = 1;
    loop {
        match store.make(made, object).await? {
            Created::Stored | Created::Exists => return Ok(()),
            Created::Unknown(error) if attempt == MAX_ATTEMPTS => return Err(error),
            Created::Unknown(_) => {
                attempt += 1;
                store.rest(REST).await;
            }
        }
    }
}
