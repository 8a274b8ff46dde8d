//! Leases a customization and creates its cluster as Hive would, in pools that Hive does not manage.

use kcp_api::metadata::Object as _;

use crate::{
    acquire::{
        LeaseRequest, acquire,
        answer::{Lease, LeaseOutcome, LeaseRefusal, LeaseResult},
        template,
    },
    creation::{
        ClusterInputs,
        intent::{add_intent, remove_intent},
        make::{CreationObstacle, check_foreign_namespace, check_names, create_missing_objects},
    },
    install_config::InstallConfig,
    lease::{
        LeaseError,
        attempt::LeasedEntry,
        renewal::LeaseName,
        reuse::Reuse,
        rule::{DEFAULT_GRACE, Rule, Transition},
        usage::Usage,
    },
    objects::{Holder, entry::EntryStatus as _, record::LeaseRecord},
    store::{LeaseStore as _, Store},
};

/// Leases a customization and creates its cluster. If the request has no install-config, uses the pool's template. If
/// an earlier call was interrupted, continues where it stopped.
pub async fn create(store: &Store<'_>, request: LeaseRequest<'_>) -> Result<LeaseResult, LeaseError> {
    let holder = request.holder;
    let refused = |refusal| LeaseResult::new(store.namespace(), holder, LeaseOutcome::Refused(refusal));
    let pool = store.read_pool(holder.pool).await?;
    let conclusion = store.read_hive(request.hive).await?.conclude(&pool);
    if conclusion.is_managed {
        return Ok(refused(LeaseRefusal::ManagedByHive {
            pool: holder.pool.to_owned(),
            because: conclusion.evidence,
        }));
    }
    let template = template(store, &pool, request.install_config.is_some()).await?;
    let Some(install_config) = request.install_config.or(template.as_ref()) else {
        return Ok(refused(LeaseRefusal::Creation(
            CreationObstacle::NoInstallConfig {
                pool: holder.pool.to_owned(),
            },
        )));
    };
    // Check this first, so that a creation that must fail leases no entry.
    let foreign = check_foreign_namespace(store, holder.cluster_deployment);
    let obstacle = match check_names(holder) {
        Some(why) => Some(why),
        None => match foreign.await? {
            Some(why) => Some(why),
            None => add_intent(store, holder).await?.err(),
        },
    };
    if let Some(why) = obstacle {
        return Ok(refused(LeaseRefusal::Creation(why)));
    }
    let created = with_intent(store, request, install_config).await;
    remove_intent(store, holder).await;
    created
}

async fn with_intent(
    store: &Store<'_>,
    request: LeaseRequest<'_>,
    install_config: &InstallConfig,
) -> Result<LeaseResult, LeaseError> {
    let wanted = LeaseRequest {
        install_config: Some(install_config),
        ..request
    };
    let answer = acquire(store, wanted).await?;
    let LeaseOutcome::Leased(lease) = &answer.outcome else {
        return Ok(answer);
    };
    let outcome = match create_for(store, request.holder, &lease.entry).await? {
        Ok(record) => LeaseOutcome::Leased(Lease {
            entry: LeasedEntry {
                record,
                ..lease.entry.clone()
            },
            has_cluster: true,
        }),
        Err(why) => LeaseOutcome::Refused(LeaseRefusal::ClusterNotCreated {
            customization: lease.entry.customization.clone(),
            cluster_deployment: request.holder.cluster_deployment.to_owned(),
            why,
        }),
    };
    Ok(LeaseResult { outcome, ..answer })
}

/// Creates the cluster of a lease, and records in the lease that the cluster uses the entry.
async fn create_for(
    store: &Store<'_>,
    holder: Holder<'_>,
    leased: &LeasedEntry,
) -> Result<Result<LeaseRecord, CreationObstacle>, LeaseError> {
    let customization = &leased.customization;
    let lost = || CreationObstacle::LeaseLost {
        customization: customization.clone(),
    };
    let name = LeaseName {
        holder,
        id: Some(&leased.record.id),
    };
    let unfinished = |source: kcp_client::Error| LeaseError::ClusterNotCreated {
        customization: customization.clone(),
        cluster_deployment: holder.cluster_deployment.to_owned(),
        source: source.into(),
    };
    let entry = store.get(customization).await.map_err(unfinished)?;
    let (Some(entry), Some(patched)) = (
        entry.filter(|entry| name.find_record(entry).is_some()),
        &leased.patched_install_config,
    ) else {
        return Ok(Err(lost()));
    };
    let parts = ClusterInputs {
        pool: &store.read_pool(holder.pool).await?,
        entry: &entry,
        holder,
        lease_id: &leased.record.id,
        install_config: &patched.install_config,
    };
    let cluster = match create_missing_objects(store, parts).await.map_err(unfinished)? {
        Ok(cluster) => cluster,
        Err(why) => return Ok(Err(why)),
    };
    // One attempt to record the cluster is enough: if another client changes the entry, the next check of the lease records
    // it.
    let entry = store.get(customization).await.map_err(unfinished)?;
    let Some((entry, record)) =
        entry.and_then(|entry| name.find_record(&entry).map(|record| (entry, record)))
    else {
        return Ok(Err(CreationObstacle::LostWhileCreating {
            customization: customization.clone(),
            name: cluster.name().to_owned(),
        }));
    };
    let now = store.now();
    let rule = Rule {
        now,
        grace: DEFAULT_GRACE,
        reuse: Reuse::Free,
    };
    let Transition::Write(after) = rule.transition(&record, Usage::Used(&cluster)) else {
        return Ok(Ok(record));
    };
    let patch = entry.lease(holder.pool, &after, now.latest);
    store
        .write_status(customization, &patch)
        .await
        .map_err(unfinished)?;
    Ok(Ok(after))
}
