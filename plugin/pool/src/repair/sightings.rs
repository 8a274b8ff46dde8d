//! What a repair records of living clusters: that they were seen, and that they are installed. Pure.

use crate::{
    objects::{cluster_deployment::Life, cluster_pool::Pool, entry::Entry, record::Record},
    repair::{
        holder::{HolderState, holder_state, recorded},
        options::Options,
    },
    snapshot::Snapshot,
};

/// A living cluster whose UID is not in its record yet. The UID proves later that the cluster existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub customization: String,
    pub pool: String,
    pub cluster_deployment: String,
    pub uid: String,
}

/// The living clusters that are not recorded yet. Hive's own clusters need no record: Hive frees their entries.
pub(super) fn sightings(snapshot: &Snapshot, options: &Options<'_>) -> Vec<Sighting> {
    let sighting = |entry: &Entry| {
        let (pool, name) = (entry.pool()?, entry.cluster_deployment()?);
        let is_run_by_hive = snapshot.pool(pool).is_some_and(Pool::is_run_by_hive);
        if !options.is_about(Some(pool)) || is_run_by_hive {
            return None;
        }
        let Some(HolderState::Alive(cluster)) = holder_state(snapshot, entry, options.clock) else {
            return None;
        };
        let record = snapshot.record(entry.name());
        let of_holder = recorded(snapshot, entry);
        let is_known =
            of_holder.and_then(Record::cluster_deployment_uid) == Some(cluster.metadata.uid.as_str());
        let is_anothers = record.is_some() && of_holder.is_none();
        (!is_known && !is_anothers).then(|| Sighting {
            customization: entry.name().to_owned(),
            pool: pool.to_owned(),
            cluster_deployment: name.to_owned(),
            uid: cluster.metadata.uid.clone(),
        })
    };
    snapshot.entries.iter().filter_map(sighting).collect()
}

/// Entries whose holder's cluster is installed with them, and that do not say so yet. Hive writes that itself.
pub(super) fn installed<'s>(snapshot: &'s Snapshot, options: &Options<'_>) -> Vec<&'s Entry> {
    let is_installed = |entry: &&Entry| {
        let pool = entry.pool();
        let is_ours = !pool
            .and_then(|name| snapshot.pool(name))
            .is_none_or(Pool::is_run_by_hive);
        if !is_ours || !options.is_about(pool) || !entry.is_reserved() || entry.says_succeeded() {
            return false;
        }
        let Some(HolderState::Alive(cluster)) = holder_state(snapshot, entry, options.clock) else {
            return false;
        };
        cluster.is_installed && cluster.life() == Life::Alive && cluster.customization() == Some(entry.name())
    };
    snapshot.entries.iter().filter(is_installed).collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::installed;
    use crate::{
        repair::options::{Clock, Options},
        testing::objects::{LONG_AGO, NOW, Objects, cluster, deleted, entry},
    };

    #[test]
    fn who_is_installed_is_told_once() {
        let held = || entry("False", Some("us"), LONG_AGO);
        let made = |is_installed: bool| {
            let mut made = cluster("us", "pool", Some("a"));
            made["spec"]["installed"] = is_installed.into();
            made
        };
        let saying = |status: &str, reason: &str| {
            let mut held = held();
            let said = json!({"type": "ApplySucceeded", "status": status, "reason": reason});
            held["status"]["conditions"].as_array_mut().unwrap().push(said);
            held
        };
        let mut with_another = made(true);
        with_another["spec"]["clusterPoolRef"]["clusterDeploymentCustomization"]["name"] = "b".into();
        let of = |entry: Value, cluster: Value| Objects::entry(entry).cluster(cluster);
        let mut run_by_hive = of(held(), made(true));
        run_by_hive.pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
        for (case, objects, expected) in [
            ("says nothing", of(held(), made(true)), true),
            (
                "is being installed",
                of(saying("False", "InstallationPending"), made(true)),
                true,
            ),
            ("says it", of(saying("True", "Succeeded"), made(true)), false),
            ("not installed", of(held(), made(false)), false),
            ("not there", Objects::entry(held()), false),
            ("taken down", of(held(), deleted(made(true), &["other"])), false),
            ("made with another", of(held(), with_another), false),
            (
                "marked available",
                of(entry("True", Some("us"), LONG_AGO), made(true)),
                false,
            ),
            ("Hive says it", run_by_hive, false),
        ] {
            let options = |pool| Options {
                pool,
                clock: Clock {
                    now: NOW.parse().unwrap(),
                    grace: SignedDuration::from_mins(10),
                },
                forced: &[],
                install_config: None,
            };
            let snapshot = objects.snapshot();
            assert_eq!(
                !installed(&snapshot, &options(None)).is_empty(),
                expected,
                "{case}"
            );
            assert!(installed(&snapshot, &options(Some("other"))).is_empty(), "{case}");
            let patch = snapshot.entries[0].succeeded(NOW.parse().unwrap());
            let mut told = serde_json::to_value(&objects.entries[0]).unwrap();
            json_patch::merge(&mut told, &patch);
            let told: crate::objects::entry::Entry = serde_json::from_value(told).unwrap();
            assert!(told.says_succeeded(), "{case}");
            assert_eq!(told.is_reserved(), snapshot.entries[0].is_reserved(), "{case}");
        }
    }
}
