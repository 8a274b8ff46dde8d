//! Customizations whose cluster is installed, and that do not say so yet. Where Hive runs, it says it. Pure.

use crate::{
    objects::{cluster_pool::Pool, deployments::Life, entry::Entry},
    repair::{
        proof::{HolderState, holder_state},
        wanted::Wanted,
    },
    survey::Survey,
};

/// Those whose holder's living cluster was made with them and is installed.
pub fn installed<'s>(survey: &'s Survey, wanted: &Wanted<'_>) -> Vec<&'s Entry> {
    let is_installed = |entry: &&Entry| {
        let pool = entry.pool();
        let is_ours = !pool
            .and_then(|name| survey.pool(name))
            .is_none_or(Pool::is_run_by_hive);
        if !is_ours || !wanted.is_about(pool) || !entry.is_reserved() || entry.says_succeeded() {
            return false;
        }
        let Some(HolderState::Alive(cluster)) = holder_state(survey, entry, wanted.clock) else {
            return false;
        };
        cluster.is_installed && cluster.life() == Life::Alive && cluster.customization() == Some(entry.name())
    };
    survey.entries.iter().filter(is_installed).collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::installed;
    use crate::{
        repair::{proof::Clock, wanted::Wanted},
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
            let wanted = |pool| Wanted {
                pool,
                clock: Clock {
                    now: NOW.parse().unwrap(),
                    grace: SignedDuration::from_mins(10),
                },
                forced: &[],
                install_config: None,
            };
            let survey = objects.survey();
            assert_eq!(!installed(&survey, &wanted(None)).is_empty(), expected, "{case}");
            assert!(installed(&survey, &wanted(Some("other"))).is_empty(), "{case}");
            let patch = survey.entries[0].succeeded(NOW.parse().unwrap());
            let mut told = serde_json::to_value(&objects.entries[0]).unwrap();
            json_patch::merge(&mut told, &patch);
            let told: crate::objects::entry::Entry = serde_json::from_value(told).unwrap();
            assert!(told.says_succeeded(), "{case}");
            assert_eq!(told.is_reserved(), survey.entries[0].is_reserved(), "{case}");
        }
    }
}
