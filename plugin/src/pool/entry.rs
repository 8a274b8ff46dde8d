//! A customization as a lease sees it, and the patches that take and give it back.

use jiff::Timestamp;
use kcp_rules::api::hive::LocalReference;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    conditions::{Condition, Conditions},
    metadata::Metadata,
};

/// The condition that says whether a customization is free.
pub(super) const AVAILABLE: &str = "Available";
/// The condition that says how its last use went.
pub(super) const APPLY_SUCCEEDED: &str = "ApplySucceeded";

/// The reason for patches that cannot be applied.
pub(super) const BROKEN_BY_SYNTAX: &str = "BrokenBySyntax";

/// The longest message of a condition, in bytes, as the server's refusal says; its schema counts characters.
const MAX_MESSAGE: usize = 32_768;

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
    /// As it stands: a copy of it keeps what we do not know.
    #[serde(default)]
    pub(super) spec: Value,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    cluster_deployment_ref: Option<LocalReference>,
    cluster_pool_ref: Option<LocalReference>,
    conditions: Conditions,
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
        self.metadata.is_deleting()
    }

    /// Absent and `Unknown` count as available: Hive judges so too.
    pub(super) fn is_reserved(&self) -> bool {
        self.status.conditions.status(AVAILABLE) == Some("False")
    }

    /// Since when it is reserved, or free.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.status.conditions.since(AVAILABLE)
    }

    pub(super) fn conditions(&self) -> &Conditions {
        &self.status.conditions
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
        let conditions = self.conditions();
        if !conditions.has(APPLY_SUCCEEDED) {
            return LastResult::Succeeded(now);
        }
        let time = conditions.since(APPLY_SUCCEEDED).unwrap_or(now);
        if conditions.status(APPLY_SUCCEEDED) == Some("True") {
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

    /// Says that the patches cannot be applied: a write that the server refuses once the entry has changed.
    pub(super) fn broken(&self, why: &str, now: Timestamp) -> Value {
        let condition = Condition {
            kind: APPLY_SUCCEEDED,
            status: "False",
            reason: BROKEN_BY_SYNTAX,
            message: within_limit(why),
        };
        json!({
            "metadata": { "resourceVersion": self.metadata.resource_version },
            "status": { "conditions": self.status.conditions.with(condition, now).into_value() },
        })
    }

    /// Whether it says so already.
    pub(super) fn says_broken(&self, why: &str) -> bool {
        let conditions = self.conditions();
        conditions.reason(APPLY_SUCCEEDED) == Some(BROKEN_BY_SYNTAX)
            && conditions.message(APPLY_SUCCEEDED) == Some(within_limit(why))
    }

    fn with_available(&self, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
        let condition = Condition {
            kind: AVAILABLE,
            status,
            reason,
            message,
        };
        self.status.conditions.with(condition, now).into_value()
    }
}

/// As much of a message as a condition takes.
fn within_limit(message: &str) -> &str {
    if message.len() <= MAX_MESSAGE {
        return message;
    }
    let starts = message.char_indices().map(|(start, _)| start);
    let end = starts.take_while(|start| *start <= MAX_MESSAGE).last();
    end.and_then(|end| message.get(..end)).unwrap_or_default()
}

fn name(reference: Option<&LocalReference>) -> Option<&str> {
    reference
        .map(|reference| reference.name.as_str())
        .filter(|name| !name.is_empty())
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
    fn a_message_is_as_long_as_the_server_takes() {
        // Of two bytes each, after one.
        let why = format!("a{}", "ä".repeat(33_000));
        let free = entry(&json!({}));
        let broken = free.broken(&why, NOW.parse().unwrap());
        let message = broken["status"]["conditions"][0]["message"].as_str().unwrap();
        assert_eq!(message, format!("a{}", "ä".repeat(16_383)));
        assert!(!free.says_broken(&why) && entry(&broken["status"]).says_broken(&why));
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
