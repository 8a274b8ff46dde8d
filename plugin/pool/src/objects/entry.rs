//! An entry of an inventory: a ClusterDeploymentCustomization, and the patches that reserve and release it.

use jiff::{SignedDuration, Timestamp};
use kcp_rules::api::hive::LocalReference;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::objects::metadata::{Condition, Conditions, Metadata};

/// The condition that says whether an entry is free.
pub const AVAILABLE: &str = "Available";
/// The condition that says how the last use of an entry went.
pub const APPLY_SUCCEEDED: &str = "ApplySucceeded";

/// The reason for patches that cannot be applied.
pub const BROKEN_BY_SYNTAX: &str = "BrokenBySyntax";

/// Hive's reason and message while a cluster is being installed with the patches.
const INSTALLATION_PENDING: (&str, &str) = ("InstallationPending", "Patches applied; cluster is installing");
/// The longest message of a condition, in bytes: the server's error counts bytes, although the schema counts
/// characters.
const MAX_MESSAGE: usize = 32_768;

/// Who holds a lease. Two callers with the same name are the same holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'h> {
    /// The pool's name. A customization serves only pools of its own namespace.
    pub pool: &'h str,
    pub cluster_deployment: &'h str,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Entry {
    pub metadata: Metadata,
    /// As the server has it: a copy keeps unknown fields.
    #[serde(default)]
    pub spec: Value,
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

/// How the last use of an entry went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LastResult {
    /// The time when the cluster was created. An entry that was never used counts as used successfully now.
    Succeeded(Timestamp),
    /// The cluster was not created, or not completely.
    Failed(Timestamp),
}

impl Entry {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn cluster_deployment(&self) -> Option<&str> {
        name(self.status.cluster_deployment_ref.as_ref())
    }

    pub fn pool(&self) -> Option<&str> {
        name(self.status.cluster_pool_ref.as_ref())
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.is_deleting()
    }

    /// Absent and `Unknown` count as available, as for Hive.
    pub fn is_reserved(&self) -> bool {
        self.status.conditions.status(AVAILABLE) == Some("False")
    }

    /// Since when it is reserved, or available.
    pub fn since(&self) -> Option<Timestamp> {
        self.status.conditions.since(AVAILABLE)
    }

    pub fn conditions(&self) -> &Conditions {
        &self.status.conditions
    }

    /// Whether both references name the holder. The condition may be missing: Hive writes it separately.
    pub fn names(&self, holder: Holder<'_>) -> bool {
        self.cluster_deployment() == Some(holder.cluster_deployment) && self.pool() == Some(holder.pool)
    }

    /// Whether nothing has changed between two reads. A write with this resourceVersion may still be stored.
    pub fn is_unchanged_since(&self, earlier: &Self) -> bool {
        self.metadata.resource_version == earlier.metadata.resource_version
    }

    /// Whether the holder's lease is complete.
    pub fn is_held_by(&self, holder: Holder<'_>) -> bool {
        self.is_reserved() && self.names(holder)
    }

    pub fn last_result(&self, now: Timestamp) -> LastResult {
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

    /// Reserves the entry: the condition and both references in one write, which the server refuses if the entry has
    /// changed. The texts are Hive's: Hive overwrites others.
    pub fn reserve(&self, holder: Holder<'_>, now: Timestamp) -> Value {
        self.reserved(holder, self.with_available("False", "Reserved", "reserved", now))
    }

    /// Reserves an entry whose patches apply to the holder's install-config, and removes the condition that they do
    /// not. An entry without that condition keeps its ApplySucceeded: this crate does not follow the installation,
    /// and a cluster that is being installed would count as failed in the order of choice.
    pub fn reserve_patched(&self, holder: Holder<'_>, now: Timestamp) -> Value {
        let reserved = self.with_available("False", "Reserved", "reserved", now);
        if self.conditions().reason(APPLY_SUCCEEDED) != Some(BROKEN_BY_SYNTAX) {
            return self.reserved(holder, reserved);
        }
        let (reason, message) = INSTALLATION_PENDING;
        let pending = Condition {
            kind: APPLY_SUCCEEDED,
            status: "False",
            reason,
            message,
        };
        self.reserved(holder, reserved.with(pending, now))
    }

    fn reserved(&self, holder: Holder<'_>, conditions: Conditions) -> Value {
        json!({
            "metadata": { "resourceVersion": self.metadata.resource_version },
            "status": {
                "conditions": conditions.into_value(),
                "clusterDeploymentRef": { "name": holder.cluster_deployment },
                "clusterPoolRef": { "name": holder.pool },
            },
        })
    }

    /// Writes a lease again that the holder has. The server ignores a patch that changes nothing and keeps the
    /// resourceVersion, so the condition gets a new time: now, or one second earlier.
    pub fn reserve_again(&self, holder: Holder<'_>, now: Timestamp) -> Value {
        let has_it = self.since().map(Timestamp::as_second) == Some(now.as_second());
        let second = SignedDuration::from_secs(i64::from(has_it));
        let mut undated = self.clone();
        undated.status.conditions = self.status.conditions.undated(AVAILABLE);
        undated.reserve(holder, now.checked_sub(second).unwrap_or(now))
    }

    /// Releases the entry. In a merge patch, null removes a field.
    pub fn release(&self, now: Timestamp) -> Value {
        json!({
            "metadata": { "resourceVersion": self.metadata.resource_version },
            "status": {
                "conditions": self.with_available("True", "Available", "available", now).into_value(),
                "clusterDeploymentRef": null,
                "clusterPoolRef": null,
            },
        })
    }

    /// A patch that says that the entry's patches cannot be applied. The server refuses it if the entry has changed.
    pub fn broken(&self, why: &str, now: Timestamp) -> Value {
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

    /// A patch that says that the holder's cluster was installed with the patches. The server refuses it if the entry
    /// has changed.
    pub fn succeeded(&self, now: Timestamp) -> Value {
        let condition = Condition {
            kind: APPLY_SUCCEEDED,
            status: "True",
            reason: "Succeeded",
            message: "Patches applied; cluster is installed",
        };
        json!({
            "metadata": { "resourceVersion": self.metadata.resource_version },
            "status": { "conditions": self.status.conditions.with(condition, now).into_value() },
        })
    }

    pub fn says_succeeded(&self) -> bool {
        self.conditions().status(APPLY_SUCCEEDED) == Some("True")
    }

    /// Whether the condition already has this message.
    pub fn says_broken(&self, why: &str) -> bool {
        let conditions = self.conditions();
        conditions.reason(APPLY_SUCCEEDED) == Some(BROKEN_BY_SYNTAX)
            && conditions.message(APPLY_SUCCEEDED) == Some(within_limit(why))
    }

    fn with_available(&self, status: &str, reason: &str, message: &str, now: Timestamp) -> Conditions {
        let condition = Condition {
            kind: AVAILABLE,
            status,
            reason,
            message,
        };
        self.status.conditions.with(condition, now)
    }
}

/// Shortens a message to what a condition may hold.
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
    use jiff::Timestamp;
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
    fn patches_that_apply_are_no_longer_broken_and_nothing_else_is_said_of_them() {
        let now: Timestamp = NOW.parse().unwrap();
        let said = |reason: &str, status: &str, message: &str| {
            json!([{"type": "ApplySucceeded", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let pending = said(
            "InstallationPending",
            "False",
            "Patches applied; cluster is installing",
        );
        for (before, after) in [
            (
                said("BrokenBySyntax", "False", "it leads nowhere"),
                pending.clone(),
            ),
            (pending.clone(), pending),
            (
                said("BrokenByCloud", "False", "x"),
                said("BrokenByCloud", "False", "x"),
            ),
            (said("Succeeded", "True", "x"), said("Succeeded", "True", "x")),
            (json!([]), json!([])),
        ] {
            let read = entry(&json!({ "conditions": before }));
            let patch = read.reserve_patched(HOLDER, now);
            let mut conditions = patch["status"]["conditions"].as_array().unwrap().clone();
            conditions.retain(|condition| condition["type"] == "ApplySucceeded");
            assert_eq!(json!(conditions), after, "{before}");
            let patched = entry(&patch["status"]);
            assert_eq!(patched.last_result(now), read.last_result(now), "{before}");
            assert!(patched.is_held_by(HOLDER), "{before}");
        }
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
    fn a_lease_that_is_taken_anew_gets_another_time() {
        for (time, expected) in [
            ("2026-01-01T00:00:00Z", "2026-11-21T05:00:00Z"),
            ("2026-11-21T05:00:00Z", "2026-11-21T04:59:59Z"),
            ("2026-11-21T04:59:59Z", "2026-11-21T05:00:00Z"),
        ] {
            let status = json!({
                "conditions": [
                    {"type": "Available", "status": "False", "reason": "Reserved", "message": "reserved",
                     "lastTransitionTime": time, "observedGeneration": 3},
                    {"type": "Other", "status": "True", "lastTransitionTime": time},
                ],
                "clusterDeploymentRef": {"name": "a"}, "clusterPoolRef": {"name": "p"},
            });
            let patch = entry(&status).reserve_again(HOLDER, NOW.parse().unwrap());
            let mut anew = status.clone();
            anew["conditions"][0]["lastTransitionTime"] = expected.into();
            assert_eq!(
                patch,
                json!({"metadata": {"resourceVersion": "7"}, "status": anew})
            );
        }
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
