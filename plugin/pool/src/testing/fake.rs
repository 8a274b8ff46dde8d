//! An API server in memory that checks resourceVersions, for orders of events that no test can force on a real
//! server.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use kcp_client::{Action, CreateResult, Error, ServerTime, Written};
use serde_json::{Map, Value, json};

use crate::{
    lease::{
        queue::{Queue, queue_name},
        reuse::Reuse,
        usage::Clusters,
    },
    objects::{
        cluster_deployment::ClusterDeployments,
        entry::{Entry, Reservation},
        record::LeaseRecord,
    },
    store::{CUSTOMIZATION, LeaseStore},
    testing::objects::{NOW, lease, leased, read},
};

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The write is stored, but the response is lost.
    AnswerLost,
    /// The request is lost.
    RequestLost,
    /// The request is lost, and then another client leases the entry first.
    RequestLostThenOvertaken,
    /// The write arrives after the client has stopped waiting for the response, just before this number of
    /// further requests.
    ArrivesLate(usize),
    /// Another client is faster: the entry is reserved for `them` just before the write.
    Overtaken,
    /// Another client writes other fields just before the write.
    Touched,
    /// The entry is deleted just before the write.
    Deleted,
    Forbidden,
}

#[derive(Debug, Default)]
pub struct Fake {
    entries: RefCell<BTreeMap<String, Value>>,
    version: Cell<u64>,
    faults: RefCell<VecDeque<Option<Fault>>>,
    late: RefCell<Vec<Late>>,
    /// ClusterDeployments; they may change when an entry is written.
    clusters: RefCell<Vec<Value>>,
    /// A cluster that is created right after the next write of a status.
    next_cluster: RefCell<Option<Value>>,
    are_clusters_forbidden: Cell<bool>,
    /// Statuses that entries get at these times, measured from the first request.
    later: RefCell<Vec<(Duration, String, Value)>>,
    /// The period in which no request gets a response.
    outage: Cell<Option<(Duration, Duration)>>,
    begun: Cell<Option<tokio::time::Instant>>,
    /// The clock advances while a client pauses.
    paused: Cell<Duration>,
    is_time_uncertain: Cell<bool>,
    /// The metadata of the pool's queue.
    pub queue: RefCell<Value>,
    /// What becomes of entries when their leases end, by the name of their pool.
    pub reuse: RefCell<BTreeMap<String, Reuse>>,
    /// The seed of the order of events among tasks.
    random: Cell<u64>,
    /// The names of the written entries, in the order of the writes.
    pub writes: RefCell<Vec<String>>,
}

/// A delayed write.
#[derive(Debug)]
struct Late {
    name: String,
    patch: Value,
    /// How many requests are served before this write.
    before: usize,
}

impl Fake {
    /// Creates a server with free entries of these names.
    pub fn free(names: &[impl AsRef<str>]) -> Self {
        let fake = Self::default();
        for name in names {
            fake.put(name.as_ref(), &json!({}));
        }
        fake
    }

    /// Like [`Self::free`], with an order of tasks that depends on the seed.
    pub fn shuffled(names: &[impl AsRef<str>], seed: u64) -> Self {
        let fake = Self::free(names);
        fake.random.set(seed.wrapping_mul(2).wrapping_add(1));
        fake
    }

    /// Sets what happens to the next writes, in order.
    pub fn with_faults(self, faults: &[Option<Fault>]) -> Self {
        self.faults.borrow_mut().extend(faults);
        self
    }

    pub fn put(&self, name: &str, status: &Value) {
        let version = self.next_version();
        let mut entries = self.entries.borrow_mut();
        let before = entries.get(name);
        let spec = before.map_or(Value::Null, |entry| entry["spec"].clone());
        let annotations = before.map_or(Value::Null, |entry| entry["metadata"]["annotations"].clone());
        let metadata =
            json!({"name": name, "namespace": "d", "resourceVersion": version, "annotations": annotations});
        let entry = json!({"metadata": metadata, "spec": spec, "status": status});
        entries.insert(name.to_owned(), entry);
    }

    pub fn put_spec(&self, name: &str, spec: &Value) {
        self.entries.borrow_mut().get_mut(name).unwrap()["spec"] = spec.clone();
    }

    pub fn status(&self, name: &str) -> Value {
        self.entries.borrow()[name]["status"].clone()
    }

    /// A write that arrives now.
    pub fn arrive(&self, name: &str, patch: &Value) -> Written {
        self.store(name, patch)
    }

    /// Another client writes this status just before the request after the next `before` requests.
    pub fn put_late(&self, name: &str, status: &Value, before: usize) {
        self.late.borrow_mut().push(Late {
            name: name.to_owned(),
            patch: json!({"status": status}),
            before,
        });
    }

    /// The record of an entry's lease.
    pub fn record(&self, name: &str) -> LeaseRecord {
        match self.entry(name).status.reservation() {
            Reservation::Leased(record) => record,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn entry(&self, name: &str) -> Entry {
        read(&self.entries.borrow()[name])
    }

    pub fn put_cluster(&self, cluster: Value) {
        self.clusters.borrow_mut().push(cluster);
    }

    pub fn put_cluster_after_write(&self, cluster: Value) {
        *self.next_cluster.borrow_mut() = Some(cluster);
    }

    pub fn forbid_clusters(&self) {
        self.are_clusters_forbidden.set(true);
    }

    /// Makes the dates of the responses disagree.
    pub fn disagree(&self) {
        self.is_time_uncertain.set(true);
    }

    /// Advances the clock.
    pub fn pass(&self, time: Duration) {
        self.paused.set(self.paused.get() + time);
    }

    /// Gives an entry this status after this time.
    pub fn after(&self, time: Duration, name: &str, status: &Value) {
        self.later
            .borrow_mut()
            .push((time, name.to_owned(), status.clone()));
    }

    /// Leaves all requests between these times without a response.
    pub fn outage(&self, start: Duration, end: Duration) {
        self.outage.set(Some((start, end)));
    }

    fn elapsed(&self) -> Duration {
        let begun = self.begun.get().unwrap_or_else(tokio::time::Instant::now);
        self.begun.set(Some(begun));
        begun.elapsed() + self.paused.get()
    }

    /// Fails during an outage.
    fn answered(&self) -> Result<(), Error> {
        let now = self.elapsed();
        let (due, later) = self.later.take().into_iter().partition(|(time, ..)| *time <= now);
        *self.later.borrow_mut() = later;
        let due: Vec<(Duration, String, Value)> = due;
        for (_, name, status) in due {
            self.put(&name, &status);
        }
        match self.outage.get() {
            Some((start, end)) if (start..end).contains(&now) => Err(lost()),
            _ => Ok(()),
        }
    }

    /// The holder that an entry's status names.
    pub fn holder(&self, name: &str) -> Option<String> {
        self.status(name)["clusterDeploymentRef"]["name"]
            .as_str()
            .map(str::to_owned)
    }

    /// The entries that name this holder.
    pub fn held_by(&self, holder: &str) -> Vec<String> {
        let names: Vec<String> = self.entries.borrow().keys().cloned().collect();
        let held = |name: &String| self.holder(name).as_deref() == Some(holder);
        names.into_iter().filter(held).collect()
    }

    /// Makes all delayed writes arrive.
    pub fn settle(&self) {
        for Late { name, patch, .. } in self.late.take() {
            self.store(&name, &patch);
        }
    }

    /// Before a request is served, other tasks run, and delayed writes arrive.
    async fn before_request(&self) {
        self.let_others_go_first().await;
        let (due, waiting) = self.late.take().into_iter().partition(|late| late.before == 0);
        *self.late.borrow_mut() = waiting;
        self.late
            .borrow_mut()
            .iter_mut()
            .for_each(|late| late.before -= 1);
        let due: Vec<Late> = due;
        for Late { name, patch, .. } in due {
            self.store(&name, &patch);
        }
    }

    async fn let_others_go_first(&self) {
        let state = self.random.get();
        if state == 0 {
            return;
        }
        let state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random.set(state);
        for _ in 0..(state >> 60) % 4 {
            tokio::task::yield_now().await;
        }
    }

    fn store(&self, name: &str, patch: &Value) -> Written {
        let current = self.entries.borrow().get(name).cloned();
        let Some(current) = current else {
            return Written::Changed;
        };
        let version = &patch["metadata"]["resourceVersion"];
        if !version.is_null() && *version != current["metadata"]["resourceVersion"] {
            return Written::Changed;
        }
        let mut status = current["status"].clone();
        for (field, value) in patch["status"].as_object().unwrap() {
            match value {
                Value::Null => drop(status.as_object_mut().unwrap().remove(field)),
                value => status[field] = value.clone(),
            }
        }
        // A server does not store a patch that changes nothing.
        if status != current["status"] {
            self.put(name, &status);
        }
        self.clusters.borrow_mut().extend(self.next_cluster.take());
        Written::Stored
    }
}

/// Objects that have no status in this server.
impl Fake {
    /// The names of the entries and their versions.
    pub fn versions(&self) -> Vec<(String, String)> {
        let entries = self.entries.borrow();
        let version = |entry: &Value| entry["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        entries
            .iter()
            .map(|(name, entry)| (name.clone(), version(entry)))
            .collect()
    }

    /// The last version of any object.
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    pub fn stored_clusters(&self) -> ClusterDeployments {
        ClusterDeployments::new("d", self.clusters.borrow().iter().map(read).collect())
    }

    pub fn delete_cluster(&self, name: &str) {
        self.clusters
            .borrow_mut()
            .retain(|cluster| cluster["metadata"]["name"] != name);
    }

    pub fn stored_queue(&self, pool: &str) -> Queue {
        let mut queue = self.queue.borrow().clone();
        queue["name"] = queue_name(pool, 0).into();
        Queue::new(pool, [&read(&queue)])
    }

    /// Creates the only part of the queue, unless it exists.
    pub fn make_queue(&self, annotations: &Map<String, Value>) -> CreateResult {
        let mut queue = self.queue.borrow_mut();
        if !queue.is_null() {
            return CreateResult::AlreadyExists;
        }
        let mut annotations = annotations.clone();
        annotations.retain(|_, value| !value.is_null());
        *queue = json!({"annotations": annotations, "resourceVersion": self.next_version()});
        CreateResult::Created
    }

    /// Writes annotations of the only part of the queue.
    pub fn annotate_queue(&self, patch: &Value) -> Written {
        let mut queue = self.queue.borrow_mut();
        if queue.is_null() {
            return Written::Changed;
        }
        self.merge_metadata(&mut queue, patch)
    }

    /// Writes annotations of an entry.
    pub fn annotate(&self, name: &str, patch: &Value) -> Written {
        match self.entries.borrow_mut().get_mut(name) {
            Some(entry) => self.merge_metadata(&mut entry["metadata"], patch),
            None => Written::Changed,
        }
    }

    fn merge_metadata(&self, metadata: &mut Value, patch: &Value) -> Written {
        let version = &patch["metadata"]["resourceVersion"];
        if !version.is_null() && *version != metadata["resourceVersion"] {
            return Written::Changed;
        }
        let before = metadata["annotations"].clone();
        json_patch::merge(&mut metadata["annotations"], &patch["metadata"]["annotations"]);
        if metadata["annotations"] != before {
            metadata["resourceVersion"] = self.next_version().into();
        }
        Written::Stored
    }

    fn next_version(&self) -> String {
        self.version.set(self.version.get() + 1);
        self.version.get().to_string()
    }
}

fn action() -> Action {
    Action::new("patch", &CUSTOMIZATION.api_resource("v1"))
}

pub fn lost() -> Error {
    Error::NoResponse {
        action: Box::new(action()),
        server: "https://s".to_owned(),
        cause: "cut".to_owned(),
    }
}

/// The status of an entry that this ClusterDeployment of pool `pool` has leased until tomorrow.
pub fn reserved(holder: &str) -> Value {
    leased(&lease(holder, Some("2026-11-22T05:00:00Z")))["status"].clone()
}

impl LeaseStore for Fake {
    async fn list(&self) -> Result<Vec<Entry>, Error> {
        self.before_request().await;
        self.answered()?;
        Ok(self.entries.borrow().values().map(read).collect())
    }

    async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        self.before_request().await;
        self.answered()?;
        Ok(self
            .entries
            .borrow()
            .get(name)
            .map(|entry| serde_json::from_value(entry.clone()).unwrap()))
    }

    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.before_request().await;
        self.answered()?;
        self.writes.borrow_mut().push(name.to_owned());
        let fault = self.faults.borrow_mut().pop_front().flatten();
        let written = match fault {
            None => self.store(name, patch),
            Some(Fault::RequestLost) => Written::Unknown(lost()),
            Some(Fault::RequestLostThenOvertaken) => {
                self.put(name, &reserved("them"));
                Written::Unknown(lost())
            }
            Some(Fault::AnswerLost) => {
                self.store(name, patch);
                Written::Unknown(lost())
            }
            Some(Fault::ArrivesLate(before)) => {
                self.late.borrow_mut().push(Late {
                    name: name.to_owned(),
                    patch: patch.clone(),
                    before,
                });
                Written::Unknown(lost())
            }
            Some(Fault::Overtaken) => {
                self.put(name, &reserved("them"));
                self.store(name, patch)
            }
            Some(Fault::Touched) => {
                self.put(name, &self.status(name));
                self.store(name, patch)
            }
            Some(Fault::Deleted) => {
                self.entries.borrow_mut().remove(name);
                self.store(name, patch)
            }
            Some(Fault::Forbidden) => {
                return Err(Error::Forbidden {
                    kubectl: "kubectl".to_owned(),
                    action: Box::new(action()),
                    user: None,
                });
            }
        };
        self.let_others_go_first().await;
        Ok(written)
    }

    async fn reuse(&self, entry: &Entry) -> Result<Reuse, Error> {
        self.before_request().await;
        self.answered()?;
        let pool = entry.status.pool().unwrap_or_default();
        Ok(self.reuse.borrow().get(pool).copied().unwrap_or_default())
    }

    async fn write_entry(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.before_request().await;
        self.answered()?;
        Ok(self.annotate(name, patch))
    }

    async fn write_queue(&self, _: &str, _: usize, patch: &Value) -> Result<Written, Error> {
        self.before_request().await;
        self.answered()?;
        Ok(self.annotate_queue(patch))
    }

    async fn create_queue(
        &self,
        _: &str,
        _: usize,
        annotations: &Map<String, Value>,
    ) -> Result<CreateResult, Error> {
        self.before_request().await;
        self.answered()?;
        Ok(self.make_queue(annotations))
    }

    async fn queue(&self, pool: &str) -> Result<Queue, Error> {
        self.before_request().await;
        self.answered()?;
        Ok(self.stored_queue(pool))
    }

    async fn pause(&self, delay: Duration) {
        self.paused.set(self.paused.get() + delay);
        self.let_others_go_first().await;
    }

    async fn clusters(&self) -> Result<Clusters, Error> {
        self.before_request().await;
        self.answered()?;
        if self.are_clusters_forbidden.get() {
            return Ok(Clusters::Unknown(lost()));
        }
        Ok(Clusters::All(
            self.stored_clusters().with_request_time(self.now().earliest),
        ))
    }

    fn now(&self) -> ServerTime {
        let begin: Timestamp = NOW.parse().unwrap();
        let now = begin + self.elapsed();
        ServerTime {
            earliest: now,
            latest: now,
            is_certain: !self.is_time_uncertain.get(),
        }
    }
}
