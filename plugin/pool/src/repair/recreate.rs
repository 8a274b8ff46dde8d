//! Making the missing cluster of a lease anew. The record first: it says that the lease ends by itself, so that no other
//! repair frees the customization while the cluster is made, and the next one does should this one be broken off.

use kcp_client::Error;

use crate::{
    creation::{
        Parts,
        make::{Obstacle, while_creating},
    },
    install_config::{InstallConfig, patches::patched},
    lease::{
        record_keeping::{withdraw, write_unchanged},
        renewal::hold,
    },
    objects::record::LeaseClaim,
    repair::{
        apply::{Mending, RepairOutcome},
        finding::{Finding, Subject},
        holder::recorded,
    },
    snapshot::Snapshot,
};

/// Makes the cluster of a finding; none when everything has to be read anew, because others have changed it.
///
/// # Errors
/// When the API server cannot be asked, or refuses.
pub(super) async fn recreate(
    store: &impl Mending,
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
        withdraw(store, name, holder).await?;
        return Ok(Some(RepairOutcome::Settled));
    }
    let made = store
        .make_cluster(
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
        Ok(_) => RepairOutcome::Mended,
        Err(why) => RepairOutcome::Blocked(why),
    }))
}
