//! A customization as a lease sees it, and the patches that take and give it back.

use jiff::Timestamp;
use kcp_rules::api::hive::LocalReference;
use serde::Deserialize;
use serde_json::{Value, json};

/// The condition that says whether a customization is free.
const AVAILABLE: &str = "Available";
/// The condition that says how its last use went.
const APPLY_SUCCEEDED: &str = "ApplySucceeded";

/// Who takes a lease. Two lessees with the same name are the same holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder<'h> {
    /// The pool's name. A customization serves only pools of its own namespace.
    pub(super) pool: &'h str,
    /// The `ClusterDeployment`'s name.
    pub(super) cluster_deployment: &'h str,
}

/// A `ClusterDeploymentCustomization`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Entry {
    pub(super) metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    resource_version: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    cluster_deployment_ref: Option<LocalReference>,
    #[serde(default)]
    cluster_pool_ref: Option<LocalReference>,
    /// As they stand: a patch replaces the whole list, and must not lose what it does not know.
    #[serde(default)]
    conditions: Option<Vec<Value>>,
}

/// How the last use of a customization went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LastResult {
    /// The cluster was made, at this time. Never used counts as made now.
    Succeeded(Timestamp),
    /// It was not, or not to the end.
    Failed(Timestamp),
}

impl Entry {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The recorded `ClusterDeployment`.
    pub(super) fn cluster_deployment(&self) -> Option<&str> {
        name(self.status.cluster_deployment_ref.as_ref())
    }

    /// The recorded pool.
    pub(super) fn pool(&self) -> Option<&str> {
        name(self.status.cluster_pool_ref.as_ref())
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Absent and `Unknown` count as available: Hive judges so too.
    pub(super) fn is_reserved(&self) -> bool {
        self.condition(AVAILABLE)
            .is_some_and(|condition| status_of(condition) == Some("False"))
    }

    /// Whether both references name the holder. The condition may be missing: Hive writes it apart from them.
    pub(super) fn names(&self, holder: Holder<'_>) -> bool {
        self.cluster_deployment() == Some(holder.cluster_deployment) && self.pool() == Some(holder.pool)
    }

    /// Whether nothing has been written to the entry between two reads. A write under its resourceVersion may then
    /// still be stored.
    pub(super) fn is_unchanged_since(&self, earlier: &Self) -> bool {
        self.metadata.resource_version == earlier.metadata.resource_version
    }

    /// Whether the holder's lease is complete.
    pub(super) fn is_held_by(&self, holder: Holder<'_>) -> bool {
        self.is_reserved() && self.names(holder)
    }

    pub(super) fn last_result(&self, now: Timestamp) -> LastResult {
        let Some(condition) = self.condition(APPLY_SUCCEEDED) else {
            return LastResult::Succeeded(now);
        };
        let time = condition.get("lastTransitionTime").and_then(Value::as_str);
        let time = time.and_then(|time| time.parse().ok()).unwrap_or(now);
        if status_of(condition) == Some("True") {
            LastResult::Succeeded(time)
        } else {
            LastResult::Failed(time)
        }
    }

    /// Takes the lease: condition and both references in one write, which the server refuses once the entry has
    /// changed. Exactly Hive's words: it overwrites a lease that is told otherwise.
    pub(super) fn reserve(&self, holder: Holder<'_>, now: Timestamp) -> Value {
        json!({
            "metadata": { "resourceVersion": self.metadata.resource_version },
            "status": {
                "conditions": self.with_available("False", "Reserved", "reserved", now),
                "clusterDeploymentRef": { "name": holder.cluster_deployment },
                "clusterPoolRef": { "name": holder.pool },
            },
        })
    }

    /// Gives the lease back. In a merge patch null removes a field.
    pub(super) fn release(&self, now: Timestamp) -> Value {
        json!({
            "metadata": { "resourceVersion": self.metadata.resource_version },
            "status": {
                "conditions": self.with_available("True", "Available", "available", now),
                "clusterDeploymentRef": null,
                "clusterPoolRef": null,
            },
        })
    }

    fn condition(&self, kind: &str) -> Option<&Value> {
        self.status
            .conditions
            .iter()
            .flatten()
            .find(|condition| is_kind(condition, kind))
    }

    /// All conditions, with this one as it is to be. Fields that we do not know stay.
    fn with_available(&self, status: &str, reason: &str, message: &str, now: Timestamp) -> Vec<Value> {
        let mut conditions = self.status.conditions.clone().unwrap_or_default();
        if self.condition(AVAILABLE).is_none() {
            conditions.push(json!({ "type": AVAILABLE }));
        }
        for condition in conditions
            .iter_mut()
            .filter(|condition| is_kind(condition, AVAILABLE))
        {
            let changes = status_of(condition) != Some(status);
            let Value::Object(fields) = condition else {
                continue;
            };
            if changes || !fields.contains_key("lastTransitionTime") {
                fields.insert("lastTransitionTime".to_owned(), seconds(now).into());
            }
            for (field, text) in [("status", status), ("reason", reason), ("message", message)] {
                fields.insert(field.to_owned(), text.into());
            }
        }
        conditions
    }
}

/// Kubernetes' times have no fractions of a second.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

fn name(reference: Option<&LocalReference>) -> Option<&str> {
    reference
        .map(|reference| reference.name.as_str())
        .filter(|name| !name.is_empty())
}

fn is_kind(condition: &Value, kind: &str) -> bool {
    condition.get("type").and_then(Value::as_str) == Some(kind)
}

fn status_of(condition: &Value) -> Option<&str> {
    condition.get("status").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Entry, Holder};

    const HOLDER: Holder<'_> = Holder {
        pool: "p",
        cluster_deployment: "a",
    };
    const NOW: &str = "2026-11-21T05:00:00.75Z";

    fn entry(status: &Value) -> Entry {
        let object = json!({"metadata": {"name": "c", "resourceVersion": "7"}, "spec": {}, "status": status});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_first_lease_writes_exactly_what_hive_writes() {
        assert_eq!(
            entry(&json!({})).reserve(HOLDER, NOW.parse().unwrap()),
            json!({
                "metadata": {"resourceVersion": "7"},
                "status": {
                    "conditions": [{"type": "Available", "status": "False", "reason": "Reserved",
                        "message": "reserved", "lastTransitionTime": "2026-11-21T05:00:00Z"}],
                    "clusterDeploymentRef": {"name": "a"},
                    "clusterPoolRef": {"name": "p"},
                }
            })
        );
    }

    #[test]
    fn other_conditions_and_unknown_fields_stay() {
        let status = json!({"conditions": [
            {"type": "Other", "status": "True", "note": 1},
            {"type": "Available", "status": "True", "reason": "Available", "message": "available",
             "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3},
            {"type": "ApplySucceeded", "status": "True"},
        ]});
        let patch = entry(&status).reserve(HOLDER, NOW.parse().unwrap());
        assert_eq!(
            patch["status"]["conditions"],
            json!([
                {"type": "Other", "status": "True", "note": 1},
                {"type": "Available", "status": "False", "reason": "Reserved", "message": "reserved",
                 "lastTransitionTime": "2026-11-21T05:00:00Z", "observedGeneration": 3},
                {"type": "ApplySucceeded", "status": "True"},
            ])
        );
    }

    #[test]
    fn a_release_removes_both_references() {
        let status = json!({
            "conditions": [{"type": "Available", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "clusterDeploymentRef": {"name": "a"}, "clusterPoolRef": {"name": "p"},
        });
        assert_eq!(
            entry(&status).release(NOW.parse().unwrap())["status"],
            json!({
                "conditions": [{"type": "Available", "status": "True", "reason": "Available",
                    "message": "available", "lastTransitionTime": "2026-11-21T05:00:00Z"}],
                "clusterDeploymentRef": null,
                "clusterPoolRef": null,
            })
        );
    }

    #[test]
    fn the_time_of_a_status_that_does_not_change_stays() {
        let status = json!({"conditions": [
            {"type": "Available", "status": "False", "reason": "X", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let patch = entry(&status).reserve(HOLDER, NOW.parse().unwrap());
        assert_eq!(
            patch["status"]["conditions"][0]["lastTransitionTime"],
            "2026-01-01T00:00:00Z"
        );
    }
}
