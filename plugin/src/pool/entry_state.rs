//! How things stand with the entries of an inventory, in JSON and in a sentence.

use std::fmt::Write as _;

use serde::Serialize;

use super::model::Standing;

/// How many entries a sentence names before it only counts.
const NAMED: usize = 10;

/// How things stand with one entry of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryState {
    name: String,
    /// `free`, `held`, `referenced`, `deleting` or `missing`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_deployment: Option<Name>,
    /// The pool that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<Name>,
}

/// A reference by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Name {
    pub(super) name: String,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct PoolName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl EntryState {
    pub(super) fn new(name: String, standing: Standing) -> Self {
        let (state, cluster_deployment, pool) = match standing {
            Standing::Ours | Standing::OursUnmarked | Standing::Free => ("free", None, None),
            Standing::Held {
                cluster_deployment,
                pool,
            } => ("held", cluster_deployment, pool),
            Standing::Referenced { by } => ("referenced", Some(by.name), Some(by.pool)),
            Standing::Deleting => ("deleting", None, None),
            Standing::Missing => ("missing", None, None),
        };
        let name_of = |name: Option<String>| name.map(|name| Name { name });
        Self {
            name,
            state,
            cluster_deployment: name_of(cluster_deployment),
            pool: name_of(pool),
        }
    }

    /// `a, which is held by x`.
    pub(super) fn described(&self, asked: &str) -> String {
        let state = match self.state {
            "held" => "held",
            "referenced" => "used",
            state => state,
        };
        let who = self.sentence(asked);
        let who = who.strip_prefix(&self.name).unwrap_or_default();
        format!("{}, which is {state}{who}", self.name)
    }

    /// `a by x`, with the pool where that is another than the one asked.
    fn sentence(&self, asked: &str) -> String {
        let mut text = self.name.clone();
        // Writing to a String cannot fail.
        if let Some(deployment) = &self.cluster_deployment {
            let _ = write!(text, " by {}", deployment.name);
        }
        if let Some(pool) = self.pool.as_ref().filter(|pool| pool.name != asked) {
            let _ = write!(text, " of pool {}", pool.name);
        }
        text
    }
}

/// `pool d/p has no free entry of 3: held: a by x, b by y; missing: c`.
pub(super) fn none_free(pool: &PoolName, entries: &[EntryState]) -> String {
    let mut text = format!(
        "pool {}/{} has no free entry of {}: ",
        pool.namespace,
        pool.name,
        entries.len()
    );
    let states = [
        ("held", "held"),
        ("referenced", "used by a cluster without a lease"),
        ("deleting", "being deleted"),
        ("missing", "missing"),
    ];
    let mut separator = "";
    for (state, title) in states {
        let such: Vec<_> = entries.iter().filter(|entry| entry.state == state).collect();
        if such.is_empty() {
            continue;
        }
        let names: Vec<_> = such
            .iter()
            .take(NAMED)
            .map(|entry| entry.sentence(&pool.name))
            .collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{} {title}: {}", such.len(), names.join(", "));
        if such.len() > NAMED {
            let _ = write!(text, " and {} more", such.len() - NAMED);
        }
        separator = "; ";
    }
    text
}
