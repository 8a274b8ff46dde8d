//! An API server in memory that checks resourceVersions, for orders of events that no test can force on a real
//! server.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use kcp_client::{Action, Created, Error, Written};
use serde_json::{Value, json};

use crate::{
    objects::{
        entry::Entry,
        record::{Record, name_of},
    },
    store::{CUSTOMIZATION, Customizations, Records},
};

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Stored, and the answer is lost.
    AnswerLost,
    /// The request is lost.
    RequestLost,
    /// The request is lost, and then another client is faster.
    RequestLostThenOvertaken,
    /// Arrives after its answer was given up, just before this many further requests.
    ArrivesLate(usize),
    /// Another client is faster: the entry is reserved for `them` just before.
    Overtaken,
    /// Another client writes something else just before.
    Touched,
    /// The entry is deleted just before.
    Deleted,
    Forbidden,
}

#[derive(Debug, Default)]
pub struct Fake {
    entries: RefCell<BTreeMap<String, Value>>,
    version: Cell<u64>,
    faults: RefCell<VecDeque<Option<Fault>>>,
    late: RefCell<Vec<Late>>,
    records: RefCell<BTreeMap<String, Value>>,
    /// What happens to the next writes of records that are not refused: the request or the answer is lost.
    record_faults: RefCell<VecDeque<Option<Fault>>>,
    /// The clock advances while a client pauses.
    rested: Cell<Duration>,
    /// The seed of the order of events among tasks.
    random: Cell<u64>,
    /// Names, in the order of the writes.
    pub writes: RefCell<Vec<String>>,
}

/// A delayed write.
#[derive(Debug)]
struct Late {
    name: String,
    patch: Value,
    /// How many requests are served before it.
    before: usize,
}

impl Fake {
    /// With free entries of these names.
    pub fn free(names: &[impl AsRef<str>]) -> Self {
        let fake = Self::default();
        for name in names {
            fake.put(name.as_ref(), &json!({}));
        }
        fake
    }

    /// The same, with an order of tasks that depends on the seed.
    pub fn shuffled(names: &[impl AsRef<str>], seed: u64) -> Self {
        let fake = Self::free(names);
        fake.random.set(seed.wrapping_mul(2).wrapping_add(1));
        fake
    }

    /// What happens to the next writes, in order.
    pub fn with_faults(self, faults: &[Option<Fault>]) -> Self {
        self.faults.borrow_mut().extend(faults);
        self
    }

    pub fn put(&self, name: &str, status: &Value) {
        self.version.set(self.version.get() + 1);
        let metadata = json!({"name": name, "resourceVersion": self.version.get().to_string()});
        let mut entries = self.entries.borrow_mut();
        let spec = entries
            .get(name)
            .map_or(Value::Null, |entry| entry["spec"].clone());
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

    /// What happens to the next writes of records, in order.
    pub fn with_record_faults(self, faults: &[Option<Fault>]) -> Self {
        self.record_faults.borrow_mut().extend(faults);
        self
    }

    pub fn put_record(&self, record: Value) {
        self.version.set(self.version.get() + 1);
        let mut record = record;
        record["metadata"]["resourceVersion"] = self.version.get().to_string().into();
        let name = record["metadata"]["name"].as_str().unwrap().to_owned();
        self.records.borrow_mut().insert(name, record);
    }

    pub fn recorded(&self, customization: &str) -> Option<Record> {
        let record = self.records.borrow().get(&name_of(customization)).cloned();
        record.map(|record| serde_json::from_value(record).unwrap())
    }

    /// The recorded holder of a customization.
    pub fn record_holder(&self, customization: &str) -> Option<String> {
        Some(self.recorded(customization)?.cluster_deployment()?.to_owned())
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

    /// All delayed writes arrive.
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
        Written::Stored
    }
}

fn action() -> Action {
    Action::new("patch", &CUSTOMIZATION.at("v1"))
}

fn lost() -> Error {
    Error::NoAnswer {
        action: Box::new(action()),
        server: "https://s".to_owned(),
        cause: "cut".to_owned(),
    }
}

pub fn reserved(holder: &str) -> Value {
    json!({"conditions": [{"type": "Available", "status": "False"}],
        "clusterDeploymentRef": {"name": holder}, "clusterPoolRef": {"name": "pool"}})
}

impl Customizations for Fake {
    async fn list(&self) -> Result<Vec<Entry>, Error> {
        self.before_request().await;
        let entries = self.entries.borrow().values().cloned().collect();
        Ok(serde_json::from_value(Value::Array(entries)).unwrap())
    }

    async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        self.before_request().await;
        Ok(self
            .entries
            .borrow()
            .get(name)
            .map(|entry| serde_json::from_value(entry.clone()).unwrap()))
    }

    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.before_request().await;
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
                    action: action(),
                    user: None,
                });
            }
        };
        self.let_others_go_first().await;
        Ok(written)
    }

    async fn rest(&self, delay: Duration) {
        self.rested.set(self.rested.get() + delay);
        self.let_others_go_first().await;
    }

    fn now(&self) -> Timestamp {
        let begin: Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
        begin + self.rested.get()
    }
}

impl Records for Fake {
    async fn records(&self) -> Result<Vec<Record>, Error> {
        self.before_request().await;
        let records = self.records.borrow().values().cloned().collect();
        Ok(serde_json::from_value(Value::Array(records)).unwrap())
    }

    async fn record(&self, customization: &str) -> Result<Option<Record>, Error> {
        self.before_request().await;
        Ok(self.recorded(customization))
    }

    async fn create_record(&self, record: &Value) -> Result<Created, Error> {
        self.before_request().await;
        let name = record["metadata"]["name"].as_str().unwrap();
        if self.records.borrow().contains_key(name) {
            return Ok(Created::Exists);
        }
        let fault = self.record_faults.borrow_mut().pop_front().flatten();
        if fault != Some(Fault::RequestLost) {
            self.put_record(record.clone());
        }
        self.let_others_go_first().await;
        Ok(if fault.is_some() {
            Created::Unknown(lost())
        } else {
            Created::Stored
        })
    }

    async fn write_record(&self, customization: &str, patch: &Value) -> Result<Written, Error> {
        self.before_request().await;
        let current = self.records.borrow().get(&name_of(customization)).cloned();
        let Some(mut record) = current else {
            return Ok(Written::Changed);
        };
        if patch["metadata"]["resourceVersion"] != record["metadata"]["resourceVersion"] {
            return Ok(Written::Changed);
        }
        let fault = self.record_faults.borrow_mut().pop_front().flatten();
        if fault != Some(Fault::RequestLost) {
            json_patch::merge(&mut record, patch);
            self.put_record(record);
        }
        self.let_others_go_first().await;
        Ok(if fault.is_some() {
            Written::Unknown(lost())
        } else {
            Written::Stored
        })
    }

    async fn delete_record(&self, record: &Record) -> Result<Written, Error> {
        self.before_request().await;
        let mut records = self.records.borrow_mut();
        let name = &record.metadata.name;
        let current = records
            .get(name)
            .map(|record| record["metadata"]["resourceVersion"].clone());
        Ok(match current {
            Some(version) if version != record.metadata.resource_version => Written::Changed,
            _ => {
                records.remove(name);
                Written::Stored
            }
        })
    }
}
