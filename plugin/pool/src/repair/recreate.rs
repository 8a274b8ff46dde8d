//! Creates the missing cluster of a lease again. The record is written first, with an end: no other repair frees the
//! customization while the cluster is being created, and if this one is interrupted, the next repair does.

use kcp_client::Error;

use crate::{
    creation::{
        Parts,
        make::{Obstacle, while_creating},
    },
    install_config::{InstallConfig, patches::patched},
    lease::{
        record_keeping::{delete_ours, write_unchanged},
        renewal::hold,
    },
    objects::record::LeaseClaim,
    repair::{
        apply::{RepairOutcome, RepairStore},
        finding::{Finding, Subject},
        holder::recorded,
    },
    snapshot::Snapshot,
};

/// Creates the cluster of a finding. None if other clients have changed something and everything has to be read
/// again.
///
/// # Errors
/// If the API server cannot be asked, or refuses.
pub(super) async fn recreate(
    store: &impl RepairStore,
    snapshot: &Snapshot,
    finding: &Finding,
    install_config: &InstallConfig,
) -> Result<Option<RepairOutcome>, Error> {
    let (Some(holder), Subject::Entry { name }) = (finding.holder(), &finding.subject) else {
        return Ok(None);
    };
    let (Some(pool), Some(entry)) = (snapshot.pool(holder.pool), snapshot.entry(name)) else {
        return Ok(None);
    };
    let patched = match patched(install_config, &entry.spec) {
        Ok(patched) => patched,
        Err(why) => return Ok(Some(RepairOutcome::Blocked(Obstacle::Unfit(why)))),
    };
    let without_end = LeaseClaim {
        holder,
        duration: None,
        cluster_deployment_uid: None,
        is_creating: false,
    };
    let passing = LeaseClaim {
        duration: while_creating(recorded(snapshot, entry), false),
        is_creating: true,
        ..without_end
    };
    if !write_unchanged(store, name, snapshot.record(name), passing).await? {
        return Ok(None);
    }
    let current = store.get(name).await?;
    if !current.is_some_and(|current| current.is_held_by(holder)) {
        delete_ours(store, name, holder).await?;
        return Ok(Some(RepairOutcome::Settled));
    }
    let made = store
        .create_cluster(
            Parts {
                pool,
                entry,
                holder,
                install_config: &patched.install_config,
            },
            passing,
        )
        .await?;
    let uid = made.as_ref().ok().map(|cluster| cluster.metadata.uid.as_str());
    let lasting = LeaseClaim {
        cluster_deployment_uid: uid,
        ..without_end
    };
    if !hold(store, name, lasting).await? {
        return Ok(Some(RepairOutcome::Blocked(Obstacle::LeaseLost {
            customization: name.to_owned(),
        })));
    }
    Ok(Some(match made {
        Ok(_) => RepairOutcome::Repaired,
        Err(why) => RepairOutcome::Blocked(why),
    }))
}
