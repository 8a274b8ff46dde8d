//! Customizations in memory, under resourceVersions, for the order of events that no test can force on a server.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    entry::Entry,
    store::{Customizations, Written},
};
use crate::cluster::{Action, Error};

/// What befalls a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Stored, and the answer lost.
    AnswerLost,
    /// Lost on its way.
    RequestLost,
    /// Another was faster: the entry is reserved for `them` just before.
    Overtaken,
    /// Somebody writes something else just before.
    Touched,
    /// The entry is deleted just before.
    Deleted,
    /// No permission.
    Forbidden,
}

#[derive(Debug, Default)]
pub(super) struct Fake {
    entries: RefCell<BTreeMap<String, Value>>,
    version: Cell<u64>,
    faults: RefCell<VecDeque<Option<Fault>>>,
    /// Seeds the order of events among tasks.
    random: Cell<u64>,
    /// Names, in the order of the writes.
    pub(super) writes: RefCell<Vec<String>>,
}

impl Fake {
    /// Free entries of these names.
    pub(super) fn free(names: &[&str]) -> Self {
        let fake = Self::default();
        for name in names {
            fake.put(name, &json!({}));
        }
        fake
    }

    /// The same, with tasks taking turns in an order of its own for each seed.
    pub(super) fn shuffled(names: &[&str], seed: u64) -> Self {
        let fake = Self::free(names);
        fake.random.set(seed.wrapping_mul(2).wrapping_add(1));
        fake
    }

    /// What befalls the next writes, in order.
    pub(super) fn with_faults(self, faults: &[Option<Fault>]) -> Self {
        self.faults.borrow_mut().extend(faults);
        self
    }

    pub(super) fn put(&self, name: &str, status: &Value) {
        self.version.set(self.version.get() + 1);
        let metadata = json!({"name": name, "resourceVersion": self.version.get().to_string()});
        self.entries
            .borrow_mut()
            .insert(name.to_owned(), json!({"metadata": metadata, "status": status}));
    }

    pub(super) fn status(&self, name: &str) -> Value {
        self.entries.borrow()[name]["status"].clone()
    }

    /// Who is recorded.
    pub(super) fn holder(&self, name: &str) -> Option<String> {
        self.status(name)["clusterDeploymentRef"]["name"]
            .as_str()
            .map(str::to_owned)
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
            return Written::Refused;
        };
        let version = &patch["metadata"]["resourceVersion"];
        if !version.is_null() && *version != current["metadata"]["resourceVersion"] {
            return Written::Refused;
        }
        let mut status = current["status"].clone();
        for (field, value) in patch["status"].as_object().unwrap() {
            match value {
                Value::Null => drop(status.as_object_mut().unwrap().remove(field)),
                value => status[field] = value.clone(),
            }
        }
        self.put(name, &status);
        Written::Stored
    }
}

pub(super) fn reserved(holder: &str) -> Value {
    json!({"conditions": [{"type": "Available", "status": "False"}],
        "clusterDeploymentRef": {"name": holder}, "clusterPoolRef": {"name": "pool"}})
}

impl Customizations for Fake {
    async fn list(&self) -> Result<Vec<Entry>, Error> {
        self.let_others_go_first().await;
        let entries = self.entries.borrow().values().cloned().collect();
        Ok(serde_json::from_value(Value::Array(entries)).unwrap())
    }

    async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        self.let_others_go_first().await;
        Ok(self
            .entries
            .borrow()
            .get(name)
            .map(|entry| serde_json::from_value(entry.clone()).unwrap()))
    }

    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        self.let_others_go_first().await;
        self.writes.borrow_mut().push(name.to_owned());
        let fault = self.faults.borrow_mut().pop_front().flatten();
        let written = match fault {
            None => self.store(name, patch),
            Some(Fault::RequestLost) => Written::Unknown,
            Some(Fault::AnswerLost) => {
                self.store(name, patch);
                Written::Unknown
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
                let action = Action::new("patch", &super::store::CUSTOMIZATION.at("v1"));
                return Err(Error::Forbidden { action, user: None });
            }
        };
        self.let_others_go_first().await;
        Ok(written)
    }

    fn now(&self) -> Timestamp {
        "2026-11-21T05:00:00Z".parse().unwrap()
    }
}
