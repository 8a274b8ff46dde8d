//! What a pool says of its inventory, where no Hive says it: which entries are missing or broken, and whether they are
//! as many as its size asks for. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    inventory::capacity::Capacity,
    objects::{
        cluster_pool::Pool,
        conditions::Condition,
        entry::{APPLY_SUCCEEDED, BROKEN_BY_SYNTAX, Entry},
    },
};

/// Hive's.
const VALID: &str = "InventoryValid";
/// The design document asks for it, and Hive has none: its name is ours.
const SUFFICIENT: &str = "InventorySufficient";
/// Hive's reason for a cluster that could not be made.
const BROKEN_BY_CLOUD: &str = "BrokenByCloud";

/// What is known of the entries.
#[derive(Clone, Copy, Debug)]
pub struct Findings<'f> {
    pub entries: &'f [Entry],
    /// Names of those that were found broken by syntax since they were read.
    pub broken: &'f BTreeSet<&'f str>,
}

/// The patch of the pool's status that says how its inventory is; none where it says so already. The server refuses it
/// once the pool has changed.
pub fn patch(pool: &Pool, findings: Findings<'_>, capacity: &Capacity, now: Timestamp) -> Option<Value> {
    let faults = faults(pool, findings);
    let shortage = capacity.shortage().map(|shortage| shortage.to_string());
    let valid = Condition {
        kind: VALID,
        status: if faults.is_some() { "False" } else { "True" },
        reason: if faults.is_some() { "Invalid" } else { "Valid" },
        message: faults.as_deref().unwrap_or_default(),
    };
    let sufficient = Condition {
        kind: SUFFICIENT,
        status: if shortage.is_some() { "False" } else { "True" },
        reason: if shortage.is_some() {
            "SizeAboveInventory"
        } else {
            "Sufficient"
        },
        message: shortage.as_deref().unwrap_or_default(),
    };
    let status = &pool.status;
    let says_so = status.conditions.says(valid) && status.conditions.says(sufficient);
    if says_so && status.size.is_some() && status.ready.is_some() {
        return None;
    }
    let conditions = status.conditions.with(valid, now).with(sufficient, now);
    let count = |there: Option<i32>, counted: usize| {
        there.unwrap_or_else(|| i32::try_from(counted).unwrap_or(i32::MAX))
    };
    Some(json!({
        "metadata": { "resourceVersion": pool.metadata.resource_version },
        "status": {
            "conditions": conditions.into_value(),
            "size": count(status.size, capacity.unclaimed),
            "ready": count(status.ready, capacity.ready),
        },
    }))
}

/// What is wrong with the inventory's entries, in Hive's words; none where nothing is.
fn faults(pool: &Pool, Findings { entries, broken }: Findings<'_>) -> Option<String> {
    let inventory = pool.inventory();
    let find = |name: &str| entries.iter().find(|entry| entry.name() == name);
    let named = |is: &dyn Fn(Option<&Entry>) -> bool| {
        let mut names: Vec<_> = inventory.iter().copied().filter(|name| is(find(name))).collect();
        names.sort_unstable();
        names
    };
    let is_broken_since = |entry: &Entry| broken.contains(entry.name());
    let by_cloud = named(&|entry| {
        entry.is_some_and(|entry| is_broken_by(entry, BROKEN_BY_CLOUD) && !is_broken_since(entry))
    });
    let by_syntax = named(&|entry| {
        entry.is_some_and(|entry| is_broken_by(entry, BROKEN_BY_SYNTAX) || is_broken_since(entry))
    });
    let missing = named(&|entry| entry.is_none());
    let is_valid = by_cloud.is_empty() && by_syntax.is_empty() && missing.is_empty();
    (!is_valid).then(|| {
        json!({"BrokenByCloud": by_cloud, "BrokenBySyntax": by_syntax, "Missing": missing}).to_string()
    })
}

fn is_broken_by(entry: &Entry, reason: &str) -> bool {
    let conditions = entry.conditions();
    conditions.status(APPLY_SUCCEEDED) == Some("False") && conditions.reason(APPLY_SUCCEEDED) == Some(reason)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::{Findings, patch};
    use crate::{
        inventory::capacity::Capacity,
        objects::{cluster_pool::Pool, entry::Entry},
        testing::objects::pool_object,
    };

    fn entry(name: &str, reason: Option<&str>) -> Entry {
        let condition =
            reason.map(|reason| json!({"type": "ApplySucceeded", "status": "False", "reason": reason}));
        let conditions: Vec<_> = condition.into_iter().collect();
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": conditions}}))
            .unwrap()
    }

    fn pool(size: i32, status: &Value) -> Pool {
        let names: Vec<_> = ["d", "c", "b", "a"].map(|name| json!({ "name": name })).into();
        let mut object = pool_object("pool", &json!({"inventory": names, "size": size}));
        object["status"] = status.clone();
        serde_json::from_value(object).unwrap()
    }

    fn said(pool: &Pool, entries: &[Entry]) -> Option<Value> {
        said_after(pool, entries, &[])
    }

    /// After a lease that found these broken.
    fn said_after(pool: &Pool, entries: &[Entry], broken: &[&str]) -> Option<Value> {
        let capacity = Capacity::of(pool, std::iter::empty());
        let findings = Findings {
            entries,
            broken: &broken.iter().copied().collect::<BTreeSet<_>>(),
        };
        patch(pool, findings, &capacity, "2026-11-21T05:00:00Z".parse().unwrap())
    }

    #[test]
    fn what_is_wrong_is_said_as_hive_says_it() {
        let entries = [
            entry("a", Some("BrokenBySyntax")),
            entry("b", Some("BrokenByCloud")),
            entry("c", Some("InstallationPending")),
        ];
        assert_eq!(
            said(&pool(5, &json!({})), &entries),
            Some(json!({
                "metadata": {"resourceVersion": "1"},
                "status": {
                    "conditions": [
                        {"type": "InventoryValid", "status": "False", "reason": "Invalid",
                         "message": r#"{"BrokenByCloud":["b"],"BrokenBySyntax":["a"],"Missing":["d"]}"#,
                         "lastTransitionTime": "2026-11-21T05:00:00Z"},
                        {"type": "InventorySufficient", "status": "False", "reason": "SizeAboveInventory",
                         "message": "size is 5, and the inventory has 4 entries",
                         "lastTransitionTime": "2026-11-21T05:00:00Z"},
                    ],
                    "size": 0, "ready": 0,
                },
            }))
        );
    }

    #[test]
    fn what_a_lease_finds_broken_is_said_at_once() {
        let entries = [
            entry("a", None),
            entry("b", Some("BrokenByCloud")),
            entry("c", Some("BrokenBySyntax")),
            entry("d", None),
        ];
        let said = said_after(&pool(4, &json!({})), &entries, &["a", "b", "elsewhere"]).unwrap();
        assert_eq!(
            said["status"]["conditions"][0]["message"],
            r#"{"BrokenByCloud":[],"BrokenBySyntax":["a","b","c"],"Missing":[]}"#
        );
    }

    #[test]
    fn nothing_is_said_twice() {
        let entries = ["a", "b", "c", "d"].map(|name| entry(name, None));
        let mut status = said(&pool(4, &json!({"size": 7})), &entries).unwrap()["status"].clone();
        assert_eq!((&status["size"], &status["ready"]), (&json!(7), &json!(0)));
        assert_eq!(status["conditions"][0]["status"], "True");
        assert_eq!(said(&pool(4, &status), &entries), None);
        assert!(said(&pool(5, &status), &entries).is_some());
        assert!(said(&pool(4, &status), &entries[1..]).is_some());
        status.as_object_mut().unwrap().remove("ready");
        assert!(said(&pool(4, &status), &entries).is_some());
    }
}
