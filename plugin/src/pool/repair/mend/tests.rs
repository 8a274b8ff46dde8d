//! Mending in memory: what is written, in which order, and what a cut leaves.

use std::{cell::RefCell, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Leases, Outcome, mend, record_sighting};
use crate::{
    cluster::{Created, Error, Written},
    pool::{
        cluster_pool::tests::pool_object,
        copies::Copy,
        deployments::{ClusterDeployment, tests::cluster},
        entry::Entry,
        fake::{Fake, Fault},
        record::Record,
        repair::{
            decision::{Wanted, findings, sightings},
            finding::Finding,
            proof::Clock,
        },
        store::{Customizations, Records},
        survey::Survey,
        survey_example::{LONG_AGO, NOW, Objects, deleted, entry, record, seen},
    },
};

const OURS: &str = "kubectl-kcp.dev/pool-lease";

/// Customizations and records in memory, and the rest of a namespace.
struct Scene {
    fake: Fake,
    rest: RefCell<Objects>,
}

impl Scene {
    /// Entry `a` with this status.
    fn new(fake: Fake, a: &Value) -> Self {
        fake.put("a", &a["status"]);
        let rest = Objects {
            pools: vec![pool_object("pool", &json!({"inventory": [{"name": "a"}]}))],
            ..Objects::default()
        };
        Self {
            fake,
            rest: RefCell::new(rest),
        }
    }

    fn held() -> Self {
        Self::new(Fake::default(), &held())
    }

    fn record(self, record: Value) -> Self {
        self.fake.put_record(record);
        self
    }

    fn cluster(self, mut cluster: Value) -> Self {
        cluster["metadata"]["resourceVersion"] = "5".into();
        self.rest.borrow_mut().clusters.push(cluster);
        self
    }

    /// What there is: the mark, the holder, the holder in the record, finalizers of clusters.
    fn state(&self) -> (Value, Option<String>, Option<String>, Vec<Value>) {
        let clusters = self.rest.borrow().clusters.clone();
        (
            self.fake.status("a")["conditions"][0]["status"].clone(),
            self.fake.holder("a"),
            self.fake.record_holder("a"),
            clusters
                .iter()
                .map(|cluster| cluster["metadata"]["finalizers"].clone())
                .collect(),
        )
    }
}

impl Customizations for Scene {
    async fn list(&self) -> Result<Vec<Entry>, Error> {
        self.fake.list().await
    }

    async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        self.fake.get(name).await
    }

    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.fake.write_status(name, patch).await
    }

    async fn rest(&self, delay: Duration) {
        self.fake.rest(delay).await;
    }

    fn now(&self) -> Timestamp {
        self.fake.now()
    }
}

impl Records for Scene {
    async fn records(&self) -> Result<Vec<Record>, Error> {
        self.fake.records().await
    }

    async fn record(&self, customization: &str) -> Result<Option<Record>, Error> {
        self.fake.record(customization).await
    }

    async fn create_record(&self, record: &Value) -> Result<Created, Error> {
        self.fake.create_record(record).await
    }

    async fn write_record(&self, customization: &str, patch: &Value) -> Result<Written, Error> {
        self.fake.write_record(customization, patch).await
    }

    async fn delete_record(&self, record: &Record) -> Result<Written, Error> {
        self.fake.delete_record(record).await
    }
}

impl Leases for Scene {
    async fn survey(&self) -> Result<Survey, Error> {
        let (entries, records) = (self.list().await?, self.records().await?);
        let rest = self.rest.borrow().survey();
        Ok(Survey {
            entries,
            records,
            ..rest
        })
    }

    async fn patch_cluster(&self, cluster: &ClusterDeployment, patch: &Value) -> Result<Written, Error> {
        let mut rest = self.rest.borrow_mut();
        let mut clusters = rest.clusters.iter_mut();
        let found = clusters.find(|found| found["metadata"]["name"] == cluster.name());
        Ok(match found {
            Some(found) if found["metadata"]["resourceVersion"] == patch["metadata"]["resourceVersion"] => {
                json_patch::merge(found, patch);
                Written::Stored
            }
            _ => Written::Changed,
        })
    }

    async fn delete_copy(&self, _: &Copy) -> Result<Written, Error> {
        self.rest.borrow_mut().copies.clear();
        Ok(Written::Stored)
    }
}

fn held() -> Value {
    entry("False", Some("us"), LONG_AGO)
}

fn expired() -> Value {
    record("us", LONG_AGO, Some(60))
}

const WANTED: Wanted<'static> = Wanted {
    pool: None,
    clock: Clock {
        now: Timestamp::UNIX_EPOCH,
        grace: SignedDuration::from_mins(10),
    },
    forced: &[],
};

fn wanted() -> Wanted<'static> {
    Wanted {
        clock: Clock {
            now: NOW.parse().unwrap(),
            ..WANTED.clock
        },
        ..WANTED
    }
}

fn run<T>(work: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work())
}

/// Finds, then mends.
fn repaired(scene: &Scene) -> Vec<Outcome> {
    let planned = run(async || findings(&scene.survey().await.unwrap(), &wanted()));
    mended(scene, &planned)
}

/// Mends what was found before.
fn mended(scene: &Scene, planned: &[Finding]) -> Vec<Outcome> {
    run(async || {
        let mut outcomes = Vec::new();
        for finding in planned {
            outcomes.push(mend(scene, &wanted(), finding).await.unwrap());
        }
        outcomes
    })
}

fn free() -> (Value, Option<String>, Option<String>, Vec<Value>) {
    (json!("True"), None, None, vec![])
}

#[test]
fn frees_an_entry_and_its_record_after_it() {
    let scene = Scene::held().record(expired());
    assert_eq!(repaired(&scene), [Outcome::Mended]);
    assert_eq!(scene.state(), free());
    assert_eq!(repaired(&scene), []);
}

#[test]
fn settles_a_write_without_an_answer() {
    for fault in [Fault::AnswerLost, Fault::RequestLost, Fault::Touched] {
        let scene = Scene::new(Fake::default().with_faults(&[Some(fault)]), &held()).record(expired());
        assert_eq!(repaired(&scene), [Outcome::Mended], "{fault:?}");
        assert_eq!(scene.state(), free(), "{fault:?}");
    }
    for fault in [Fault::AnswerLost, Fault::RequestLost] {
        let fake = Fake::default().with_record_faults(&[Some(fault)]);
        let scene = Scene::new(fake, &held()).record(expired());
        assert_eq!(repaired(&scene), [Outcome::Mended], "{fault:?}");
        assert_eq!(scene.state(), free(), "{fault:?}");
    }
}

#[test]
fn decides_anew_before_it_writes() {
    let scene = Scene::held().record(expired());
    let planned = run(async || findings(&scene.survey().await.unwrap(), &wanted()));
    let scene = scene.cluster(cluster("us", "pool", Some("a")));
    assert_eq!(mended(&scene, &planned), [Outcome::Settled]);
    assert_eq!(scene.fake.holder("a").as_deref(), Some("us"));
    assert!(scene.fake.writes.borrow().is_empty());
}

#[test]
fn one_who_renews_meanwhile_keeps_it() {
    let scene = Scene::held().record(expired());
    let planned = run(async || findings(&scene.survey().await.unwrap(), &wanted()));
    let scene = scene.record(record("us", NOW, Some(60)));
    assert_eq!(mended(&scene, &planned), [Outcome::Settled]);
    assert_eq!(scene.fake.record_holder("a").as_deref(), Some("us"));
    assert_eq!(scene.fake.holder("a").as_deref(), Some("us"));
}

#[test]
fn what_another_takes_meanwhile_is_its() {
    let scene = Scene::new(Fake::default().with_faults(&[Some(Fault::Overtaken)]), &held()).record(expired());
    assert_eq!(repaired(&scene), [Outcome::Settled]);
    assert_eq!(scene.fake.holder("a").as_deref(), Some("them"));
}

#[test]
fn gives_up_on_what_others_always_change() {
    let scene =
        Scene::new(Fake::default().with_faults(&[Some(Fault::Touched); 5]), &held()).record(expired());
    assert_eq!(repaired(&scene), [Outcome::Contended]);
    assert_eq!(repaired(&scene), [Outcome::Mended]);
}

#[test]
fn a_cut_after_any_write_is_mended_by_the_next() {
    // The record is revoked and the entry not freed.
    let mut revoked = expired();
    revoked["spec"]["leaseDurationSeconds"] = Value::Null;
    revoked["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = NOW.into();
    let scene = Scene::held().record(revoked.clone());
    assert_eq!(repaired(&scene), [Outcome::Mended]);
    assert_eq!(scene.state(), free());
    // The entry is freed and the record left.
    let scene = Scene::new(Fake::default(), &entry("True", None, LONG_AGO)).record(revoked);
    assert_eq!(repaired(&scene), [Outcome::Mended]);
    assert_eq!(scene.state(), free());
}

#[test]
fn a_cluster_goes_after_its_customization() {
    let over = || deleted(cluster("us", "pool", Some("a")), &[OURS]);
    let scene = Scene::held().cluster(over());
    assert_eq!(repaired(&scene), [Outcome::Mended, Outcome::Mended]);
    assert_eq!(scene.state(), (json!("True"), None, None, vec![json!([])]));

    let scene = Scene::held().cluster(over());
    let planned = run(async || findings(&scene.survey().await.unwrap(), &wanted()));
    let finalizer: Vec<_> = planned.into_iter().skip(1).collect();
    assert_eq!(mended(&scene, &finalizer), [Outcome::Waits]);
    assert_eq!(scene.state().3, [json!([OURS])]);
}

#[test]
fn reserves_again_and_records_the_cluster() {
    let cluster = || cluster("us", "pool", Some("a"));
    let stale = || entry("True", None, LONG_AGO);
    for (case, scene) in [
        ("without a record", Scene::new(Fake::default(), &stale())),
        (
            "with another's",
            Scene::new(Fake::default(), &stale()).record(record("them", LONG_AGO, Some(60))),
        ),
    ] {
        let scene = scene.cluster(cluster());
        let planned = run(async || findings(&scene.survey().await.unwrap(), &wanted()));
        assert_eq!(mended(&scene, &planned[..1]), [Outcome::Mended], "{case}");
        let us = Some("us".to_owned());
        assert_eq!(
            scene.state(),
            (json!("False"), us.clone(), us, vec![Value::Null]),
            "{case}"
        );
        let record = scene.fake.recorded("a").unwrap();
        assert_eq!(record.cluster_deployment_uid(), Some("uid-of-us"), "{case}");
        assert_eq!(record.duration(), None, "{case}");
        assert_eq!(repaired(&scene), [], "{case}");
    }
}

#[test]
fn where_hive_runs_no_record_is_made() {
    let scene =
        Scene::new(Fake::default(), &entry("True", None, LONG_AGO)).cluster(cluster("us", "pool", Some("a")));
    scene.rest.borrow_mut().pools[0]["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
    assert_eq!(repaired(&scene), [Outcome::Mended]);
    assert_eq!(scene.fake.record_holder("a"), None);
}

#[test]
fn a_cluster_that_is_seen_is_recorded() {
    for known in [
        None,
        Some(record("us", LONG_AGO, Some(600))),
        Some(seen(record("us", LONG_AGO, None), "old")),
    ] {
        let scene = Scene::held().cluster(cluster("us", "pool", Some("a")));
        let duration = known
            .as_ref()
            .and_then(|known| known["spec"]["leaseDurationSeconds"].as_u64());
        let scene = known.into_iter().fold(scene, Scene::record);
        run(async || {
            let sightings = sightings(&scene.survey().await.unwrap(), &wanted());
            for sighting in &sightings {
                record_sighting(&scene, sighting).await.unwrap();
            }
            assert_eq!(sightings.len(), 1);
        });
        let record = scene.fake.recorded("a").unwrap();
        assert_eq!(record.cluster_deployment_uid(), Some("uid-of-us"));
        assert_eq!(record.duration().map(|duration| duration.as_secs()), duration);
    }
}

fn copy() -> Value {
    json!({"metadata": {
        "name": "a", "namespace": "us", "creationTimestamp": LONG_AGO, "labels": {
            "hive.openshift.io/clusterpool-namespace": "d", "hive.openshift.io/clusterpool-name": "pool",
        },
    }})
}

#[test]
fn a_copy_goes_after_its_customization() {
    let scene = || {
        let scene = Scene::held().record(expired());
        scene.rest.borrow_mut().copies = vec![copy()];
        scene
    };
    let at_once = scene();
    assert_eq!(repaired(&at_once), [Outcome::Mended, Outcome::Mended]);
    assert_eq!(at_once.state(), free());
    assert!(at_once.rest.borrow().copies.is_empty());

    let scene = scene();
    let planned = run(async || findings(&scene.survey().await.unwrap(), &wanted()));
    let of_copy: Vec<_> = planned.into_iter().skip(1).collect();
    assert_eq!(mended(&scene, &of_copy), [Outcome::Waits]);
    assert_eq!(scene.rest.borrow().copies.len(), 1);
}

#[test]
fn deletes_what_is_left() {
    let scene =
        Scene::new(Fake::default(), &entry("True", None, LONG_AGO)).record(record("us", LONG_AGO, None));
    scene.rest.borrow_mut().copies = vec![copy()];
    assert_eq!(repaired(&scene), [Outcome::Mended, Outcome::Mended]);
    assert_eq!(scene.fake.record_holder("a"), None);
    assert!(scene.rest.borrow().copies.is_empty());
}
