//! Reads what can stop a change of a control plane, other than its Machines.

use std::time::Duration;

use kcp_control_plane::snapshot::Snapshot;

use crate::{ReadLimit, reader::Reader, reads::planned::Reads};

/// Reads whether the infrastructure template of a control plane exists, and the Events about Machines that the controller could
/// not create or delete, and adds the results to the snapshot. `limit` applies to each read.
pub async fn add_obstacles(reader: &Reader<'_>, snapshot: &mut Snapshot, limit: Duration) {
    let reads = Reads {
        reader,
        namespace: &reader.connection.namespace,
        limit: ReadLimit::per_read(limit),
    };
    let template = snapshot.control_plane.spec.infrastructure_ref.clone();
    let (exists, failed_writes) = tokio::join!(
        Box::pin(reads.template_exists(&template)),
        Box::pin(reads.read_failed_writes(&snapshot.control_plane))
    );
    snapshot.templates.extend(exists.map(|exists| (template, exists)));
    snapshot.failed_writes = failed_writes;
}
