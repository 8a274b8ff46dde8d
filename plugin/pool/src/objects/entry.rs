//! Reads the lease from the status of an inventory's entry (a ClusterDeploymentCustomization), and builds patches of that
//! status. The server refuses a patch if the entry has changed since it was read. No I/O.

use jiff::Timestamp;
pub use kcp_api::{ClusterDeploymentCustomization as Entry, hive::Reservation};
use kcp_api::{
    hive::{
        AVAILABLE,
        conditions::{Conditions, DesiredCondition},
    },
    metadata::Object as _,
    names::annotation,
};
use serde_json::{Value, json};

use crate::objects::{
    CleaningRecord, Holder,
    cleaning::CLEANING,
    record::{CONDITION, LeaseRecord},
};

/// The type of the condition with the result of an entry's last use.
pub const APPLY_SUCCEEDED: &str = "ApplySucceeded";

/// The reason in `ApplySucceeded` if an entry's patches cannot be applied.
pub const BROKEN_BY_SYNTAX: &str = "BrokenBySyntax";

/// Hive's reason in `ApplySucceeded` while a cluster is being installed with the entry's patches.
pub const INSTALLATION_PENDING: &str = "InstallationPending";

/// Hive's reason in `ApplySucceeded` after the installation of a cluster has failed.
pub const BROKEN_BY_CLOUD: &str = "BrokenByCloud";

/// The reason in `ApplySucceeded` after a cluster has been installed.
pub const SUCCEEDED: &str = "Succeeded";

/// The maximum length of a condition's message, in bytes. The schema allows the same number of characters, which can
/// take more bytes.
const MAX_MESSAGE: usize = 32_768;

/// How the last use of an entry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LastResult {
    /// The last use succeeded. Contains the time when the cluster was created, or the current time for an entry that was
    /// never used.
    Succeeded(Timestamp),
    /// The cluster was not created, or its installation was not completed.
    Failed(Timestamp),
}

/// Reads the lease in an entry's status, and builds patches of the status.
pub trait EntryStatus {
    fn conditions(&self) -> &Conditions;

    /// When the entry was last reserved or freed, from the condition `Available`.
    fn since(&self) -> Option<Timestamp> {
        self.conditions().last_transition_time(AVAILABLE)
    }

    /// Whether the status refers to the holder. The condition `Available` may still be absent, because Hive writes it
    /// separately.
    fn refers_to(&self, holder: Holder<'_>) -> bool;

    /// Why the entry is cordoned; `None` if it is not cordoned.
    fn cordoned(&self) -> Option<&str>;

    fn last_result(&self, now: Timestamp) -> LastResult;

    /// The patch that leases the entry: it sets the condition `Available`, both references and the record. The
    /// condition has Hive's reason and message, because Hive overwrites a reservation with another reason or message.
    fn lease(&self, pool: &str, record: &LeaseRecord, now: Timestamp) -> Value;

    /// Like [`Self::lease`], for an entry whose patches can be applied to the holder's install-config. If `ApplySucceeded` says
    /// that the entry's patches are broken, the returned patch corrects this. Other values of `ApplySucceeded` stay: this crate
    /// does not watch the installation, and a cluster that is being installed would count as failed when the next entry is
    /// chosen.
    fn lease_patched(&self, pool: &str, record: &LeaseRecord, now: Timestamp) -> Value;

    /// The patch that reserves the entry without a record, as Hive does.
    fn reserve(&self, holder: Holder<'_>, now: Timestamp) -> Value;

    /// The patch that ends the lease of an entry that must be cleaned, or changes the record of the cleaning. The entry stays
    /// reserved for its pool, but has no holder.
    fn clean(&self, record: &CleaningRecord, now: Timestamp) -> Value;

    /// The patch that frees the entry.
    fn free(&self, now: Timestamp) -> Value;

    /// The patch that sets `ApplySucceeded` to false because the entry's patches cannot be applied.
    fn broken(&self, why: &str, now: Timestamp) -> Value;

    /// The patch that sets `ApplySucceeded` to true after the holder's cluster has been installed.
    fn succeeded(&self, now: Timestamp) -> Value;

    /// Whether `ApplySucceeded` already says that the patches are broken, with this message.
    fn already_reports_broken(&self, why: &str) -> bool;
}

impl EntryStatus for Entry {
    fn conditions(&self) -> &Conditions {
        &self.status.conditions
    }

    fn refers_to(&self, holder: Holder<'_>) -> bool {
        self.status.holder() == Some(holder.cluster_deployment) && self.status.pool() == Some(holder.pool)
    }

    fn cordoned(&self) -> Option<&str> {
        self.annotation(annotation::CORDONED)
    }

    fn last_result(&self, now: Timestamp) -> LastResult {
        let conditions = self.conditions();
        if !conditions.has(APPLY_SUCCEEDED) {
            return LastResult::Succeeded(now);
        }
        let time = conditions.last_transition_time(APPLY_SUCCEEDED).unwrap_or(now);
        if conditions.status(APPLY_SUCCEEDED) == Some("True") {
            LastResult::Succeeded(time)
        } else {
            LastResult::Failed(time)
        }
    }

    fn lease(&self, pool: &str, record: &LeaseRecord, now: Timestamp) -> Value {
        leased(self, &reserved(self, now), pool, record, now)
    }

    fn lease_patched(&self, pool: &str, record: &LeaseRecord, now: Timestamp) -> Value {
        let mut conditions = reserved(self, now);
        if self.conditions().reason(APPLY_SUCCEEDED) == Some(BROKEN_BY_SYNTAX) {
            let pending = DesiredCondition {
                type_: APPLY_SUCCEEDED,
                status: "False",
                reason: INSTALLATION_PENDING,
                message: "Patches applied; cluster is installing",
            };
            conditions = conditions.with_condition(pending, now);
        }
        leased(self, &conditions, pool, record, now)
    }

    fn reserve(&self, holder: Holder<'_>, now: Timestamp) -> Value {
        let conditions = reserved(self, now).without_condition(CLEANING);
        status(
            self,
            conditions,
            Some(holder.pool),
            Some(holder.cluster_deployment),
        )
    }

    fn clean(&self, record: &CleaningRecord, now: Timestamp) -> Value {
        let message = record.message();
        let recorded = DesiredCondition {
            type_: CLEANING,
            status: "True",
            reason: record.reason(),
            message: &message,
        };
        let conditions = reserved(self, now)
            .without_condition(CONDITION)
            .with_condition(recorded, now);
        status(self, conditions, self.status.pool(), None)
    }

    fn free(&self, now: Timestamp) -> Value {
        let available = DesiredCondition {
            type_: AVAILABLE,
            status: "True",
            reason: "Available",
            message: "available",
        };
        let conditions = self
            .conditions()
            .without_condition(CONDITION)
            .without_condition(CLEANING)
            .with_condition(available, now);
        status(self, conditions, None, None)
    }

    fn broken(&self, why: &str, now: Timestamp) -> Value {
        let condition = DesiredCondition {
            type_: APPLY_SUCCEEDED,
            status: "False",
            reason: BROKEN_BY_SYNTAX,
            message: within_limit(why),
        };
        only_conditions(self, self.conditions().with_condition(condition, now))
    }

    fn succeeded(&self, now: Timestamp) -> Value {
        let condition = DesiredCondition {
            type_: APPLY_SUCCEEDED,
            status: "True",
            reason: SUCCEEDED,
            message: "Patches applied; cluster is installed",
        };
        only_conditions(self, self.conditions().with_condition(condition, now))
    }

    fn already_reports_broken(&self, why: &str) -> bool {
        let conditions = self.conditions();
        conditions.reason(APPLY_SUCCEEDED) == Some(BROKEN_BY_SYNTAX)
            && conditions.message(APPLY_SUCCEEDED) == Some(within_limit(why))
    }
}

fn reserved(entry: &Entry, now: Timestamp) -> Conditions {
    let reserved = DesiredCondition {
        type_: AVAILABLE,
        status: "False",
        reason: "Reserved",
        message: "reserved",
    };
    entry.conditions().with_condition(reserved, now)
}

fn leased(entry: &Entry, conditions: &Conditions, pool: &str, record: &LeaseRecord, now: Timestamp) -> Value {
    let message = record.message();
    let recorded = DesiredCondition {
        type_: CONDITION,
        status: "True",
        reason: record.state.reason(),
        message: &message,
    };
    let conditions = conditions
        .without_condition(CLEANING)
        .with_condition(recorded, now);
    status(entry, conditions, Some(pool), Some(&record.holder))
}

fn status(
    entry: &Entry,
    conditions: Conditions,
    pool: Option<&str>,
    cluster_deployment: Option<&str>,
) -> Value {
    let name = |name: Option<&str>| name.map(|name| json!({ "name": name }));
    json!({
        "metadata": { "resourceVersion": entry.resource_version() },
        "status": {
            "conditions": conditions.into_value(),
            "clusterDeploymentRef": name(cluster_deployment),
            "clusterPoolRef": name(pool),
        },
    })
}

fn only_conditions(entry: &Entry, conditions: Conditions) -> Value {
    json!({
        "metadata": { "resourceVersion": entry.resource_version() },
        "status": { "conditions": conditions.into_value() },
    })
}

/// Cuts a condition's message to the maximum length.
fn within_limit(message: &str) -> &str {
    if message.len() <= MAX_MESSAGE {
        return message;
    }
    let starts = message.char_indices().map(|(start, _)| start);
    let end = starts.take_while(|start| *start <= MAX_MESSAGE).last();
    end.and_then(|end| message.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{Entry, EntryStatus as _, Reservation};
    use crate::objects::record::Unreadable;
    use crate::testing::objects::{NOW, being_cleaned, cleaning, entry, lease, leased};

    fn read(object: &Value) -> Entry {
        serde_json::from_value(object.clone()).unwrap()
    }

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    /// The entry after a patch, as the server stores it.
    fn after(object: &Value, patch: &Value) -> Value {
        assert_eq!(patch["metadata"]["resourceVersion"], "1");
        let mut after = object.clone();
        json_patch::merge(&mut after, patch);
        after
    }

    #[test]
    fn reads_the_lease_from_a_status() {
        let record = lease("paris", Some(NOW));
        let held = leased(&record);
        let mut revoked = held.clone();
        revoked["status"]["clusterDeploymentRef"] = Value::Null;
        revoked["status"]["clusterPoolRef"] = Value::Null;
        let mut revoked_and_available = revoked.clone();
        revoked_and_available["status"]["conditions"][0]["status"] = "True".into();
        let mut anothers = held.clone();
        anothers["status"]["clusterDeploymentRef"]["name"] = "rome".into();
        let mut marked_available = held.clone();
        marked_available["status"]["conditions"][0]["status"] = "True".into();
        let mut newer = held.clone();
        newer["status"]["conditions"][1]["message"] = "v2 anything".into();
        let record_of_cleaning = cleaning(None, 2);
        let dirty = being_cleaned(&record_of_cleaning);
        let mut dirty_and_available = dirty.clone();
        dirty_and_available["status"]["conditions"][0]["status"] = "True".into();
        let mut dirty_and_reserved = dirty.clone();
        dirty_and_reserved["status"]["clusterDeploymentRef"] = json!({"name": "paris"});
        let mut dirty_and_leased = held.clone();
        let condition = dirty["status"]["conditions"][1].clone();
        dirty_and_leased["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(condition);
        let mut unreadable_cleaning = dirty.clone();
        unreadable_cleaning["status"]["conditions"][1]["message"] = "v2".into();
        let mut broken = revoked_and_available.clone();
        broken["status"]["conditions"][1]["message"] = "v1".into();
        for (case, object, expected) in [
            ("free", entry("True", None), Reservation::Free),
            (
                "never used",
                json!({"metadata": {"name": "a"}}),
                Reservation::Free,
            ),
            ("leased", held, Reservation::Leased(record.clone())),
            ("its mark is lost", marked_available, Reservation::Leased(record)),
            (
                "without a record",
                entry("False", Some("paris")),
                Reservation::Unrecorded,
            ),
            ("without a holder", entry("False", None), Reservation::Unrecorded),
            (
                "references alone",
                entry("True", Some("paris")),
                Reservation::Unrecorded,
            ),
            (
                "must be cleaned",
                dirty.clone(),
                Reservation::Cleaning(record_of_cleaning.clone()),
            ),
            (
                "must be cleaned, and marked available",
                dirty_and_available,
                Reservation::Cleaning(record_of_cleaning),
            ),
            (
                "must be cleaned, and reserved by hand",
                dirty_and_reserved,
                Reservation::Unrecorded,
            ),
            (
                "must be cleaned, and leased by an older program",
                dirty_and_leased,
                Reservation::Leased(lease("paris", Some(NOW))),
            ),
            (
                "unreadable cleaning",
                unreadable_cleaning,
                Reservation::Unreadable(Unreadable::Cleaning),
            ),
            ("revoked and reserved", revoked, Reservation::Unrecorded),
            ("revoked", revoked_and_available, Reservation::Free),
            ("reserved for another", anothers, Reservation::Unrecorded),
            (
                "newer",
                newer,
                Reservation::Unreadable(Unreadable::Version("v2".to_owned())),
            ),
            (
                "unreadable, and marked available",
                broken,
                Reservation::Unreadable(Unreadable::Malformed),
            ),
        ] {
            assert_eq!(read(&object).status.reservation(), expected, "{case}");
        }
    }

    #[test]
    fn a_lease_is_one_write_that_keeps_other_conditions() {
        let mut object = entry("True", None);
        let other = json!({"type": "Other", "status": "True", "note": 1});
        object["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(other.clone());
        object["status"]["unknown"] = 1.into();
        let record = lease("paris", Some("2026-11-22T04:00:00Z"));
        let held = after(&object, &read(&object).lease("pool", &record, now()));
        let expected = json!({
            "conditions": [
                {"type": "Available", "status": "False", "reason": "Reserved", "message": "reserved", "lastTransitionTime": NOW},
                other,
                {"type": "kubectl-kcp.dev/Lease", "status": "True", "reason": "Held", "message": record.message(),
                 "lastTransitionTime": NOW},
            ],
            "clusterDeploymentRef": {"name": "paris"}, "clusterPoolRef": {"name": "pool"}, "unknown": 1,
        });
        assert_eq!(held["status"], expected);
        assert_eq!(read(&held).status.reservation(), Reservation::Leased(record));
        let freed = after(&held, &read(&held).free(now()));
        assert_eq!(read(&freed).status.reservation(), Reservation::Free);
        let kinds: Vec<_> = freed["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["type"])
            .collect();
        assert_eq!(kinds, ["Available", "Other"]);
        assert_eq!(freed["status"]["unknown"], 1);
    }

    #[test]
    fn a_cleaning_follows_a_lease_in_one_write() {
        let held = leased(&lease("us", Some("2026-11-22T04:00:00Z")));
        let mut object = held.clone();
        object["status"]["unknown"] = 1.into();
        let record = cleaning(None, 0);
        let dirty = after(&object, &read(&object).clean(&record, now()));
        let expected = json!({
            "conditions": [
                {"type": "Available", "status": "False", "reason": "Reserved", "message": "reserved",
                 "lastTransitionTime": "2026-11-21T04:00:00Z"},
                {"type": "kubectl-kcp.dev/Cleaning", "status": "True", "reason": "Waiting", "message": record.message(),
                 "lastTransitionTime": NOW},
            ],
            "clusterPoolRef": {"name": "pool"}, "unknown": 1,
        });
        assert_eq!(dirty["status"], expected);
        let entry = read(&dirty);
        for (patch, expected) in [
            (entry.free(now()), vec!["Available"]),
            (
                entry.clean(&cleaning(None, 1), now()),
                vec!["Available", "kubectl-kcp.dev/Cleaning"],
            ),
            (
                entry.lease("pool", &lease("us", None), now()),
                vec!["Available", "kubectl-kcp.dev/Lease"],
            ),
        ] {
            let conditions = patch["status"]["conditions"].as_array().unwrap().iter();
            let types: Vec<_> = conditions.map(|one| one["type"].as_str().unwrap()).collect();
            assert_eq!(types, expected);
        }
    }

    #[test]
    fn a_broken_entry_becomes_pending_once_its_patches_apply() {
        let record = lease("paris", None);
        for (before, expected) in [
            ("BrokenBySyntax", "InstallationPending"),
            ("BrokenByCloud", "BrokenByCloud"),
        ] {
            let mut object = entry("True", None);
            let condition = json!({"type": "ApplySucceeded", "status": "False", "reason": before});
            object["status"]["conditions"]
                .as_array_mut()
                .unwrap()
                .push(condition);
            let patch = read(&object).lease_patched("pool", &record, now());
            assert_eq!(patch["status"]["conditions"][1]["reason"], expected);
        }
        let fresh = read(&entry("True", None)).lease_patched("pool", &record, now());
        assert_eq!(fresh["status"]["conditions"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_message_is_cut_to_the_maximum_of_a_condition() {
        let why = "ä".repeat(33_000);
        let object = entry("True", None);
        let broken = after(&object, &read(&object).broken(&why, now()));
        assert_eq!(
            broken["status"]["conditions"][1]["message"]
                .as_str()
                .unwrap()
                .len(),
            32_768
        );
        assert!(read(&broken).already_reports_broken(&why) && !read(&broken).already_reports_broken("x"));
    }
}
