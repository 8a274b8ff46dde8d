//! Repairs in memory: what is written, in which order, and what an interrupted repair leaves.

use std::{cell::RefCell, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kcp_client::{Created, Error, Written};
use serde_json::{Value, json};

use crate::{
    creation::{Parts, make::Obstacle},
    install_config::InstallConfig,
    inventory::capacity::Full,
    objects::{
        cluster_deployment::{ClusterDeployment, Copy},
        entry::Entry,
        metadata::Metadata,
        record::{LeaseClaim, Record},
    },
    repair::{
        apply::{RepairOutcome, RepairStore, apply, record_sighting, recreate},
        decision::findings,
        finding::Finding,
        options::{Clock, Options},
        sightings::sightings,
    },
    snapshot::Snapshot,
    store::{Customizations, Records},
    testing::{
        fake::{Fake, Fault},
        objects::{LONG_AGO, NOW, Objects, cluster, creating, deleted, entry, pool_object, record, seen},
    },
};

const OURS: &str = "kubectl-kcp.dev/pool-lease";

/// Customizations and records in memory, and the rest of a namespace.
struct Scene {
    fake: Fake,
    rest: RefCell<Objects>,
    /// Is in the way of the next cluster that is made.
    obstacle: RefCell<Option<Obstacle>>,
    /// The record while a cluster was made.
    made_while: RefCell<Vec<Record>>,
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
            obstacle: RefCell::default(),
            made_while: RefCell::default(),
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

impl RepairStore for Scene {
    async fn snapshot(&self) -> Result<Snapshot, Error> {
        let (entries, records) = (self.list().await?, self.records().await?);
        let rest = self.rest.borrow().snapshot();
        Ok(Snapshot {
            entries,
            records,
            ..rest
        })
    }

    async fn patch_cluster(&self, cluster: &ClusterDeployment, patch: &Value) -> Result<Written, Error> {
        let mut rest = self.rest.borrow_mut();
        let mut clusters = rest.clusters.iter_mut();
        let found = clusters.find(|found| is_of(found, &cluster.metadata));
        Ok(match found {
            Some(found) if is_version(found, &patch["metadata"]["resourceVersion"]) => {
                json_patch::merge(found, patch);
                Written::Stored
            }
            _ => Written::Changed,
        })
    }

    async fn create_cluster(
        &self,
        parts: Parts<'_>,
        _: LeaseClaim<'_>,
    ) -> Result<Result<ClusterDeployment, Obstacle>, Error> {
        let (name, entry) = (parts.holder.cluster_deployment, parts.entry.name());
        if let Some(why) = self.obstacle.take() {
            return Ok(Err(why));
        }
        self.made_while
            .borrow_mut()
            .push(self.fake.recorded(entry).unwrap());
        let mut made = cluster(name, parts.holder.pool, Some(entry));
        made["metadata"]["resourceVersion"] = "5".into();
        made["spec"]["installConfig"] = parts.install_config.value().clone();
        self.rest.borrow_mut().clusters.push(made.clone());
        Ok(Ok(serde_json::from_value(made).unwrap()))
    }

    async fn delete_copy(&self, copy: &Copy) -> Result<Written, Error> {
        let mut rest = self.rest.borrow_mut();
        let found = rest.copies.iter().position(|found| is_of(found, &copy.metadata));
        Ok(match found {
            Some(index) if is_version(&rest.copies[index], &copy.metadata.resource_version) => {
                rest.copies.remove(index);
                Written::Stored
            }
            _ => Written::Changed,
        })
    }
}

fn is_of(object: &Value, metadata: &Metadata) -> bool {
    object["metadata"]["name"] == metadata.name && object["metadata"]["namespace"] == metadata.namespace
}

fn is_version<V>(object: &Value, version: &V) -> bool
where
    Value: PartialEq<V>,
{
    object["metadata"]["resourceVersion"] == *version
}

fn held() -> Value {
    entry("False", Some("us"), LONG_AGO)
}

fn expired() -> Value {
    record("us", LONG_AGO, Some(60))
}

const WANTED: Options<'static> = Options {
    pool: None,
    clock: Clock {
        now: Timestamp::UNIX_EPOCH,
        grace: SignedDuration::from_mins(10),
    },
    forced: &[],
    install_config: None,
};

fn options() -> Options<'static> {
    Options {
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

/// Finds, then repairs.
fn repaired(scene: &Scene) -> Vec<RepairOutcome> {
    let planned = run(async || findings(&scene.snapshot().await.unwrap(), &options()));
    repair_planned(scene, &planned)
}

/// Mends what was found before.
fn repair_planned(scene: &Scene, planned: &[Finding]) -> Vec<RepairOutcome> {
    run(async || {
        let mut outcomes = Vec::new();
        for finding in planned {
            outcomes.push(apply(scene, &options(), finding).await.unwrap());
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
    assert_eq!(repaired(&scene), [RepairOutcome::Repaired]);
    assert_eq!(scene.state(), free());
    assert_eq!(repaired(&scene), []);
}

#[test]
fn settles_a_write_without_an_answer() {
    for fault in [Fault::AnswerLost, Fault::RequestLost, Fault::Touched] {
        let scene = Scene::new(Fake::default().with_faults(&[Some(fault)]), &held()).record(expired());
        assert_eq!(repaired(&scene), [RepairOutcome::Repaired], "{fault:?}");
        assert_eq!(scene.state(), free(), "{fault:?}");
    }
    for fault in [Fault::AnswerLost, Fault::RequestLost] {
        let fake = Fake::default().with_record_faults(&[Some(fault)]);
        let scene = Scene::new(fake, &held()).record(expired());
        assert_eq!(repaired(&scene), [RepairOutcome::Repaired], "{fault:?}");
        assert_eq!(scene.state(), free(), "{fault:?}");
    }
}

#[test]
fn decides_anew_before_it_writes() {
    let scene = Scene::held().record(expired());
    let planned = run(async || findings(&scene.snapshot().await.unwrap(), &options()));
    let scene = scene.cluster(cluster("us", "pool", Some("a")));
    assert_eq!(repair_planned(&scene, &planned), [RepairOutcome::Settled]);
    assert_eq!(scene.fake.holder("a").as_deref(), Some("us"));
    assert!(scene.fake.writes.borrow().is_empty());
}

#[test]
fn a_name_that_is_forced_is_that_of_the_holder_who_was_shown() {
    let forced = ["a".to_owned()];
    let options = Options {
        forced: &forced,
        clock: Clock {
            grace: SignedDuration::ZERO,
            ..options().clock
        },
        ..options()
    };
    for (holder, outcome, left) in [
        ("us", RepairOutcome::Repaired, None),
        ("them", RepairOutcome::Settled, Some("them")),
    ] {
        let scene = Scene::held();
        let planned = run(async || findings(&scene.snapshot().await.unwrap(), &options));
        scene.fake.put("a", &entry("False", Some(holder), NOW)["status"]);
        let repaired = run(async || apply(&scene, &options, &planned[0]).await.unwrap());
        assert_eq!(repaired, outcome, "{holder}");
        assert_eq!(scene.fake.holder("a").as_deref(), left, "{holder}");
    }
}

#[test]
fn one_who_renews_meanwhile_keeps_it() {
    let scene = Scene::held().record(expired());
    let planned = run(async || findings(&scene.snapshot().await.unwrap(), &options()));
    let scene = scene.record(record("us", NOW, Some(60)));
    assert_eq!(repair_planned(&scene, &planned), [RepairOutcome::Settled]);
    assert_eq!(scene.fake.record_holder("a").as_deref(), Some("us"));
    assert_eq!(scene.fake.holder("a").as_deref(), Some("us"));
}

#[test]
fn what_another_takes_meanwhile_is_its() {
    let scene = Scene::new(Fake::default().with_faults(&[Some(Fault::Overtaken)]), &held()).record(expired());
    assert_eq!(repaired(&scene), [RepairOutcome::Settled]);
    assert_eq!(scene.fake.holder("a").as_deref(), Some("them"));
}

#[test]
fn gives_up_on_what_others_always_change() {
    let scene =
        Scene::new(Fake::default().with_faults(&[Some(Fault::Touched); 5]), &held()).record(expired());
    assert_eq!(repaired(&scene), [RepairOutcome::Contended]);
    assert_eq!(repaired(&scene), [RepairOutcome::Repaired]);
}

#[test]
fn a_cut_after_any_write_is_mended_by_the_next() {
    // The record is revoked and the entry not freed.
    let mut revoked = expired();
    revoked["spec"]["leaseDurationSeconds"] = Value::Null;
    revoked["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = NOW.into();
    let scene = Scene::held().record(revoked.clone());
    assert_eq!(repaired(&scene), [RepairOutcome::Repaired]);
    assert_eq!(scene.state(), free());
    // The entry is freed and the record left.
    let scene = Scene::new(Fake::default(), &entry("True", None, LONG_AGO)).record(revoked);
    assert_eq!(repaired(&scene), [RepairOutcome::Repaired]);
    assert_eq!(scene.state(), free());
}

#[test]
fn a_cluster_goes_after_its_customization() {
    let over = || deleted(cluster("us", "pool", Some("a")), &[OURS]);
    let scene = Scene::held().cluster(over());
    assert_eq!(
        repaired(&scene),
        [RepairOutcome::Repaired, RepairOutcome::Repaired]
    );
    assert_eq!(scene.state(), (json!("True"), None, None, vec![json!([])]));

    let scene = Scene::held().cluster(over());
    let planned = run(async || findings(&scene.snapshot().await.unwrap(), &options()));
    let finalizer: Vec<_> = planned.into_iter().skip(1).collect();
    assert_eq!(repair_planned(&scene, &finalizer), [RepairOutcome::Waits]);
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
        let planned = run(async || findings(&scene.snapshot().await.unwrap(), &options()));
        assert_eq!(
            repair_planned(&scene, &planned[..1]),
            [RepairOutcome::Repaired],
            "{case}"
        );
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
    assert_eq!(repaired(&scene), [RepairOutcome::Repaired]);
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
            let sightings = sightings(&scene.snapshot().await.unwrap(), &options());
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

/// Of a client that may still be about to create a cluster with it.
fn copy_that_stays() -> Value {
    let mut copy = copy();
    copy["metadata"]["namespace"] = "them".into();
    copy["metadata"]["creationTimestamp"] = NOW.into();
    copy
}

fn copy() -> Value {
    json!({"metadata": {
        "name": "a", "namespace": "us", "resourceVersion": "5", "creationTimestamp": LONG_AGO, "labels": {
            "hive.openshift.io/clusterpool-namespace": "d", "hive.openshift.io/clusterpool-name": "pool",
        },
    }})
}

#[test]
fn a_copy_goes_after_its_customization() {
    let scene = || {
        let scene = Scene::held().record(expired());
        scene.rest.borrow_mut().copies = vec![copy_that_stays(), copy()];
        scene
    };
    let at_once = scene();
    assert_eq!(
        repaired(&at_once),
        [RepairOutcome::Repaired, RepairOutcome::Repaired]
    );
    assert_eq!(at_once.state(), free());
    assert_eq!(at_once.rest.borrow().copies, [copy_that_stays()]);

    let scene = scene();
    let planned = run(async || findings(&scene.snapshot().await.unwrap(), &options()));
    let of_copy: Vec<_> = planned.into_iter().skip(1).collect();
    assert_eq!(repair_planned(&scene, &of_copy), [RepairOutcome::Waits]);
    assert_eq!(scene.rest.borrow().copies.len(), 2);
}

#[test]
fn deletes_what_is_left() {
    let scene =
        Scene::new(Fake::default(), &entry("True", None, LONG_AGO)).record(record("us", LONG_AGO, None));
    scene.rest.borrow_mut().copies = vec![copy()];
    assert_eq!(
        repaired(&scene),
        [RepairOutcome::Repaired, RepairOutcome::Repaired]
    );
    assert_eq!(scene.fake.record_holder("a"), None);
    assert!(scene.rest.borrow().copies.is_empty());
}

fn gone() -> Value {
    seen(record("us", LONG_AGO, None), "gone")
}

/// Finds, then repairs, with clusters created again.
fn recreated(scene: &Scene) -> Vec<RepairOutcome> {
    run(async || {
        let install_config = InstallConfig::parse(b"metadata: {name: x}", "f").unwrap();
        let options = Options {
            install_config: Some(&install_config),
            ..options()
        };
        let planned = findings(&scene.snapshot().await.unwrap(), &options);
        let mut outcomes = Vec::new();
        for finding in planned.iter().filter(|finding| finding.remedy.is_safe()) {
            outcomes.push(apply(scene, &options, finding).await.unwrap());
        }
        outcomes
    })
}

/// Whose the record is, how long it lasts, what was seen, whether the cluster is being made.
fn recorded(record: &Record) -> (Option<&str>, Option<u64>, Option<&str>, bool) {
    (
        record.cluster_deployment(),
        record.duration().map(|duration| duration.as_secs()),
        record.cluster_deployment_uid(),
        record.is_creating(),
    )
}

#[test]
fn a_cluster_is_made_anew_under_a_lease_that_ends_by_itself() {
    for faults in [
        vec![],
        vec![Some(Fault::AnswerLost)],
        vec![Some(Fault::RequestLost)],
        vec![None, Some(Fault::AnswerLost)],
    ] {
        let scene = Scene::new(Fake::default().with_record_faults(&faults), &held()).record(gone());
        scene.fake.put_spec(
            "a",
            &json!({"installConfigPatches": [{"op": "replace", "path": "/metadata/name", "value": "foo"}]}),
        );
        assert_eq!(recreated(&scene), [RepairOutcome::Repaired], "{faults:?}");
        let while_made = scene.made_while.borrow();
        let while_made: Vec<_> = while_made.iter().map(recorded).collect();
        assert_eq!(
            while_made,
            [(Some("us"), Some(600), Some("gone"), true)],
            "{faults:?}"
        );
        let record = scene.fake.recorded("a").unwrap();
        assert_eq!(
            recorded(&record),
            (Some("us"), None, Some("uid-of-us"), false),
            "{faults:?}"
        );
        let made = scene.rest.borrow().clusters.clone();
        assert_eq!(
            made[0]["spec"]["installConfig"],
            json!({"metadata": {"name": "foo"}})
        );
        assert_eq!(made.len(), 1);
        assert_eq!(scene.fake.holder("a").as_deref(), Some("us"));
        assert_eq!(recreated(&scene), [], "{faults:?}");
        assert_eq!(repaired(&scene), [], "{faults:?}");
    }
}

#[test]
fn what_is_in_the_way_is_told_and_the_record_says_what_it_said() {
    let scene = Scene::held().record(gone());
    let why = Obstacle::ForeignNamespace {
        name: "us".to_owned(),
    };
    *scene.obstacle.borrow_mut() = Some(why.clone());
    assert_eq!(recreated(&scene), [RepairOutcome::Blocked(why)]);
    let record = scene.fake.recorded("a").unwrap();
    assert_eq!(recorded(&record), (Some("us"), None, Some("gone"), false));
    assert_eq!(recreated(&scene), [RepairOutcome::Repaired]);
}

#[test]
fn what_is_no_longer_so_when_it_is_made_is_not_made() {
    let install_config = InstallConfig::parse(b"{}", "f").unwrap();
    let options = Options {
        install_config: Some(&install_config),
        ..options()
    };
    let planned = |scene: &Scene| run(async || findings(&scene.snapshot().await.unwrap(), &options));
    let repair_first =
        |scene: &Scene, planned: &[Finding]| run(async || apply(scene, &options, &planned[0]).await.unwrap());
    // Another cluster has taken the pool's last place.
    let scene = Scene::held().record(gone());
    scene.rest.borrow_mut().pools[0]["spec"]["maxSize"] = 1.into();
    let found = planned(&scene);
    let scene = scene.cluster(cluster("them", "pool", None));
    let full = Full::MaxSize {
        clusters: 1,
        limit: 1,
    };
    let why = Obstacle::PoolFull {
        pool: "pool".to_owned(),
        full,
    };
    assert_eq!(repair_first(&scene, &found), RepairOutcome::Blocked(why));
    assert_eq!(
        recorded(&scene.fake.recorded("a").unwrap()),
        (Some("us"), None, Some("gone"), false)
    );
    // The holder renews.
    let scene = Scene::held().record(gone());
    let found = planned(&scene);
    let scene = scene.record(record("us", NOW, Some(60)));
    assert_eq!(repair_first(&scene, &found), RepairOutcome::Settled);
    // The holder gives it back.
    let scene = Scene::held().record(gone());
    let found = planned(&scene);
    let snapshot = run(async || scene.snapshot().await.unwrap());
    scene.fake.put(
        "a",
        &json!({"conditions": [{"type": "Available", "status": "True"}]}),
    );
    let outcome = run(async || {
        recreate(&scene, &snapshot, &found[0], &install_config)
            .await
            .unwrap()
    });
    assert_eq!(outcome, Some(RepairOutcome::Settled));
    assert_eq!(scene.fake.record_holder("a"), None);
    assert_eq!(scene.rest.borrow().clusters.len(), 0);
    // Another repair takes it away.
    let scene = Scene::held().record(gone());
    let found = planned(&scene);
    let snapshot = run(async || scene.snapshot().await.unwrap());
    let mut revoked = gone();
    revoked["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = NOW.into();
    let scene = scene.record(revoked);
    let outcome = run(async || {
        recreate(&scene, &snapshot, &found[0], &install_config)
            .await
            .unwrap()
    });
    assert_eq!(outcome, None);
    assert!(scene.fake.recorded("a").unwrap().is_revoked());
}

#[test]
fn a_creation_that_was_broken_off_goes_on_or_is_cleaned_up() {
    let broken_off = || creating(record("us", LONG_AGO, Some(600)));
    let scene = Scene::held().record(broken_off());
    assert_eq!(recreated(&scene), [RepairOutcome::Repaired]);
    let scene = Scene::held().record(broken_off());
    assert_eq!(repaired(&scene), [RepairOutcome::Repaired]);
    assert_eq!(scene.state(), free());
}
