//! The lease that `kubectl kcp pool` records in the status of a customization. `plugin/pool/MODEL.md` has the model.

use jiff::Timestamp;

use super::{ClusterDeploymentCustomizationStatus, Condition};
use crate::lease_record::{CLOCK_MARGIN, CONDITION, LeaseRecord};

/// A lease on a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The record can be parsed, and its holder is the `clusterDeploymentRef`.
    Recorded(LeaseRecord),
    /// The record has a newer version or cannot be parsed, so the lease never ends.
    Unreadable,
}

impl Lease {
    /// The lease in the status of a customization; `None` if it is not leased. A record is valid only if the
    /// `clusterDeploymentRef` refers to its holder, because Hive does not remove the condition when it revokes a lease.
    pub fn from_status(status: &ClusterDeploymentCustomizationStatus) -> Option<Self> {
        let mut conditions = status.conditions.iter().flatten();
        let record = conditions.find(|condition: &&Condition| condition.kind == CONDITION)?;
        match LeaseRecord::parse(&record.message) {
            Err(_) => Some(Self::Unreadable),
            Ok(record) => (status.holder() == Some(&record.holder)).then_some(Self::Recorded(record)),
        }
    }

    /// When the lease ends; `None` if it never ends.
    pub fn end(&self) -> Option<Timestamp> {
        match self {
            Self::Recorded(record) => record.end(),
            Self::Unreadable => None,
        }
    }

    /// Whether the lease has ended. If the current time is unknown, every lease with an end counts as ended,
    /// so that it causes no denial.
    pub fn has_ended(&self, now: Option<Timestamp>) -> bool {
        self.end().is_some_and(|end| has_passed(end, now))
    }
}

/// Whether other clients may free an entry whose lease ends at this time.
pub fn has_passed(end: Timestamp, now: Option<Timestamp>) -> bool {
    let freed = end.checked_add(CLOCK_MARGIN).unwrap_or(end);
    now.is_none_or(|now| freed <= now)
}

#[cfg(test)]
mod tests {
    use super::{ClusterDeploymentCustomizationStatus, Lease};

    const END: &str = "2026-06-01T12:00:00Z";

    fn status(holder: Option<&str>, message: &str) -> ClusterDeploymentCustomizationStatus {
        serde_json::from_value(serde_json::json!({
            "clusterDeploymentRef": holder.map(|name| serde_json::json!({"name": name})),
            "conditions": [{
                "type": "kubectl-kcp.dev/Lease", "status": "True", "reason": "Held", "message": message,
                "lastTransitionTime": "2026-05-01T00:00:00Z"
            }]
        }))
        .unwrap()
    }

    fn record(state: &str, uid: &str, deadline: &str) -> String {
        format!(
            "v1 state={state} uid={uid} holder=us id=a renewals=0 acquired=2026-05-01T00:00:00Z deadline={deadline} \
             cluster=us/us user=jane"
        )
    }

    #[test]
    fn a_record_that_cannot_be_parsed_is_unreadable() {
        let held = record("held", "-", END);
        for (message, is_recorded) in [
            (held.replace("v1", "v2"), false),
            (String::new(), false),
            (held, true),
        ] {
            let lease = Lease::from_status(&status(Some("us"), &message));
            assert_eq!(lease != Some(Lease::Unreadable), is_recorded, "{lease:?}");
        }
    }

    #[test]
    fn a_record_is_valid_with_a_reference_to_its_holder_only() {
        let message = record("held", "-", "-");
        assert!(Lease::from_status(&status(Some("us"), &message)).is_some());
        for holder in [None, Some(""), Some("them")] {
            assert_eq!(Lease::from_status(&status(holder, &message)), None, "{holder:?}");
        }
    }

    #[test]
    fn a_lease_ends_five_seconds_after_its_deadline_unless_a_cluster_uses_it() {
        let ended = |state: &str, uid: &str, deadline: &str, now: Option<&str>| {
            let lease = Lease::from_status(&status(Some("us"), &record(state, uid, deadline))).unwrap();
            lease.has_ended(now.map(|now| now.parse().unwrap()))
        };
        for state in ["held", "gone"] {
            assert!(!ended(state, "-", END, Some("2026-06-01T12:00:04Z")), "{state}");
            assert!(ended(state, "-", END, Some("2026-06-01T12:00:05Z")), "{state}");
            assert!(ended(state, "-", END, None), "{state}");
            assert!(!ended(state, "-", "-", None), "{state}");
        }
        assert!(!ended("in-use", "u", END, Some("2026-06-02T00:00:00Z")));
        assert!(!Lease::Unreadable.has_ended(None));
    }
}
