//! Cordons an entry: excludes it from new leases with an annotation. Hive ignores this annotation, and a write at the wrong
//! moment makes Hive wait for five minutes.

use std::time::Duration;

use kcp_api::{ClusterPool, metadata::Object as _, names::annotation::CORDONED};
use kcp_client::{Error, Written};
use serde_json::json;

use crate::{
    hive::{Hive, HiveConclusion, HiveMode},
    objects::entry::{Entry, EntryStatus as _},
    store::{LeaseStore, Store},
};

/// The maximum number of attempts to annotate an entry that other clients change at the same time.
const MAX_ATTEMPTS: usize = 8;

/// The pause before this program reads the entry again, after the response to a write is lost.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CordonResult {
    Changed,
    /// The entry already had the requested state: cordoned for this reason, or not cordoned.
    Unchanged,
    NoSuchEntry,
}

/// Reads the pools of the entry, and returns the first that Hive manages.
pub async fn read_hive_pool(
    store: &Store<'_>,
    entry: &str,
    mode: HiveMode,
) -> Result<Option<(ClusterPool, HiveConclusion)>, Error> {
    if mode == HiveMode::Absent {
        return Ok(None);
    }
    let hive = store.read_hive(mode).await?;
    let Some(entry) = store.get(entry).await? else {
        return Ok(None);
    };
    let pools = store.list_pools(Some(store.namespace())).await?;
    Ok(hive_pool(&entry, pools, hive))
}

/// The first pool that lists the entry, or for which the entry is reserved, and that Hive manages.
fn hive_pool(entry: &Entry, pools: Vec<ClusterPool>, hive: Hive) -> Option<(ClusterPool, HiveConclusion)> {
    let is_its = |pool: &ClusterPool| {
        pool.inventory().contains(&entry.name()) || entry.status.pool() == Some(pool.name())
    };
    let its = pools.into_iter().filter(is_its);
    let concluded = its.map(|pool| {
        let conclusion = hive.conclude(&pool);
        (pool, conclusion)
    });
    let mut managed = concluded.filter(|(_, conclusion)| conclusion.is_managed);
    managed.next()
}

/// Cordons an entry if there is a reason, and uncordons it if `reason` is `None`.
pub async fn set_cordon(
    store: &impl LeaseStore,
    entry: &str,
    reason: Option<&str>,
) -> Result<CordonResult, Error> {
    set_cordon_if(store, entry, reason, |_| true).await
}

/// Like [`set_cordon`], but changes nothing if the entry is another than the caller judged.
pub async fn set_cordon_if(
    store: &impl LeaseStore,
    entry: &str,
    reason: Option<&str>,
    is_as_judged: impl Fn(&Entry) -> bool,
) -> Result<CordonResult, Error> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(found) = store.get(entry).await? else {
            return Ok(CordonResult::NoSuchEntry);
        };
        if found.cordoned() == reason || !is_as_judged(&found) {
            return Ok(CordonResult::Unchanged);
        }
        let patch = json!({"metadata": {
            "resourceVersion": found.resource_version(),
            "annotations": {CORDONED: reason},
        }});
        match store.write_entry(entry, &patch).await? {
            Written::Stored => return Ok(CordonResult::Changed),
            Written::Changed => {}
            Written::Unknown(_) => store.pause(RETRY_PAUSE).await,
        }
    }
    Err(Error::Contended {
        goal: format!("cordon customization {entry}"),
        attempts: MAX_ATTEMPTS,
    })
}

#[cfg(test)]
mod tests {
    use kcp_api::{ClusterPool, metadata::Object as _};
    use serde_json::json;

    use super::hive_pool;
    use crate::{
        hive::{Hive, Presence},
        testing::objects::{entry, named, pool_object, read},
    };

    #[test]
    fn an_entry_belongs_to_hive_by_its_list_or_its_reservation() {
        let hive = |config| Hive {
            config,
            controllers: Presence::Absent,
            ..Hive::UNKNOWN
        };
        let listed = pool_object("pool", &json!({"inventory": [{"name": "a"}]}));
        let other = pool_object("other", &json!({"inventory": [{"name": "b"}]}));
        for (case, entry, config, expected) in [
            ("listed", entry("True", None), Presence::Found, Some("pool")),
            (
                "dropped while reserved",
                named("z", entry("False", Some("us"))),
                Presence::Found,
                Some("pool"),
            ),
            (
                "of no pool",
                named("z", entry("True", None)),
                Presence::Found,
                None,
            ),
            ("without Hive", entry("True", None), Presence::Absent, None),
        ] {
            let pools: Vec<ClusterPool> = [&other, &listed].map(read).into();
            let found = hive_pool(&read(&entry), pools, hive(config));
            let found = found.as_ref().map(|(pool, _)| pool.name());
            assert_eq!(found, expected, "{case}");
        }
    }
}
