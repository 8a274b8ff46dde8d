//! Reads the format versions of the lease records in a namespace.

use std::collections::BTreeSet;

use kcp_api::{ClusterDeploymentCustomization, kind::CLUSTER_DEPLOYMENT_CUSTOMIZATION};
use kcp_client::{Connection, Error, ServedVersions};

use crate::objects::{
    entry::Reservation,
    record::{Unreadable, VERSION},
};

/// The versions of the lease records in the connection's namespace. Empty without leases.
pub async fn record_versions(
    connection: &Connection,
    served: &ServedVersions,
) -> Result<BTreeSet<String>, Error> {
    let resource = served.resource(&CLUSTER_DEPLOYMENT_CUSTOMIZATION)?;
    let entries: Vec<ClusterDeploymentCustomization> = connection
        .list(&resource, Some(&connection.namespace), None)
        .await?;
    let versions = entries
        .iter()
        .filter_map(|entry| version(&entry.status.reservation()));
    Ok(versions.collect())
}

fn version(reservation: &Reservation) -> Option<String> {
    match reservation {
        Reservation::Leased(_) => Some(VERSION.to_owned()),
        Reservation::Unreadable(Unreadable::Version(version)) => Some(version.clone()),
        Reservation::Free
        | Reservation::Unrecorded
        | Reservation::Cleaning(_)
        | Reservation::Unreadable(Unreadable::Malformed | Unreadable::Cleaning) => None,
    }
}
