//! The lease that `kubectl kcp pool` records in the status of a customization. `plugin/pool/MODEL.md` has the model.

use jiff::{SignedDuration, Timestamp};

use super::{ClusterDeploymentCustomizationStatus, Condition};

/// The type of the status condition whose message is the lease record.
const CONDITION: &str = "kubectl-kcp.dev/Lease";

/// The fields of a lease record, in their order.
const FIELDS: [&str; 9] = [
    "state", "uid", "holder", "id", "renewals", "acquired", "deadline", "cluster", "user",
];

/// The maximum length of a user's name in a record, in characters.
const MAX_USER: usize = 200;

/// How long after the deadline `kubectl kcp pool` frees an entry. This delay allows for clocks that differ.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// A lease on a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The record can be parsed, and its holder is the `clusterDeploymentRef`.
    Recorded(LeaseRecord),
    /// The record has a newer version or cannot be parsed, so the lease never ends.
    Unreadable,
}

/// The part of a lease record that rules and metrics read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    pub state: LeaseState,
    /// The name of the `ClusterDeployment` that holds the lease.
    pub holder: String,
    /// The id of the lease, different for each lease of the same holder.
    pub id: String,
    /// When the lease ends; `None` if it never ends.
    pub deadline: Option<Timestamp>,
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// No check has found a cluster that uses the customization.
    Held,
    /// A cluster uses the customization.
    InUse,
    /// The cluster no longer exists, and the customization stays reserved for its holder until the deadline.
    Gone,
}

impl Lease {
    /// The lease in the status of a customization; `None` if it is not leased. A record is valid only if the
    /// `clusterDeploymentRef` refers to its holder, because Hive does not remove the condition when it revokes a lease.
    pub fn from_status(status: &ClusterDeploymentCustomizationStatus) -> Option<Self> {
        let mut conditions = status.conditions.iter().flatten();
        let record = conditions.find(|condition: &&Condition| condition.kind == CONDITION)?;
        match LeaseRecord::parse(&record.message) {
            None => Some(Self::Unreadable),
            Some(record) => (status.holder() == Some(&record.holder)).then_some(Self::Recorded(record)),
        }
    }

    /// When the lease ends; `None` if it never ends. A lease in use never ends.
    pub fn end(&self) -> Option<Timestamp> {
        match self {
            Self::Recorded(record) if record.state != LeaseState::InUse => record.deadline,
            Self::Recorded(_) | Self::Unreadable => None,
        }
    }

    /// Whether the lease has ended. If the current time is unknown, every lease with an end counts as ended,
    /// so that it causes no denial.
    pub fn has_ended(&self, now: Option<Timestamp>) -> bool {
        let freed = |end: Timestamp| end.checked_add(CLOCK_TOLERANCE).unwrap_or(end);
        self.end()
            .is_some_and(|end| now.is_none_or(|now| freed(end) <= now))
    }
}

impl LeaseRecord {
    fn parse(message: &str) -> Option<Self> {
        let mut words = message.split(' ');
        if words.next() != Some("v1") {
            return None;
        }
        let mut values = [""; FIELDS.len()];
        for (value, field) in values.iter_mut().zip(FIELDS) {
            *value = words.next()?.strip_prefix(field)?.strip_prefix('=')?;
        }
        let [
            state,
            uid,
            holder,
            id,
            renewals,
            acquired,
            deadline,
            cluster,
            user,
        ] = values;
        let is_number = renewals
            .parse::<u32>()
            .is_ok_and(|number| number.to_string() == renewals);
        let is_cluster = cluster == "-" || cluster.split_once('/').is_some();
        let is_user = decoded(user).is_some_and(|user| user.chars().count() <= MAX_USER);
        let is_intact = values.iter().all(|value| decoded(value).is_some())
            && ![holder, id].contains(&"-")
            && is_number
            && parse_time(acquired).is_some()
            && is_cluster
            && is_user;
        if !is_intact {
            return None;
        }
        let state = match (state, uid) {
            ("held", "-") => LeaseState::Held,
            ("gone", "-") => LeaseState::Gone,
            ("in-use", uid) if uid != "-" => LeaseState::InUse,
            _ => return None,
        };
        let deadline = match deadline {
            "-" => None,
            deadline => Some(parse_time(deadline)?),
        };
        words.next().is_none().then(|| Self {
            state,
            holder: holder.to_owned(),
            id: id.to_owned(),
            deadline,
        })
    }
}

/// Parses a time in whole seconds in UTC, the only form that records contain.
fn parse_time(text: &str) -> Option<Timestamp> {
    let time: Timestamp = text.parse().ok()?;
    (time.subsec_nanosecond() == 0 && time.to_string() == text).then_some(time)
}

/// Decodes a value of a record. In it, `%XX` stands for `%` or for a byte outside `!` to `~`, and `%2D` for
/// the value `-`. Returns `None` if the plugin would write the value differently.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let is_upper = |digit: &u8| matches!(digit, b'0'..=b'9' | b'A'..=b'F');
                let text = std::str::from_utf8(&digits).ok()?;
                let decoded = u8::from_str_radix(text, 16).ok()?;
                let is_needed = !matches!(decoded, b'!'..=b'~') || decoded == b'%' || value == "%2D";
                (digits.iter().all(is_upper) && is_needed).then_some(decoded)?
            }
            b'!'..=b'~' => byte,
            _ => return None,
        };
        bytes.push(decoded);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{ClusterDeploymentCustomizationStatus, Lease, LeaseRecord, LeaseState};

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
    fn reads_records_of_the_known_version_only() {
        let recorded = |state, deadline: Option<&str>| {
            Some(Lease::Recorded(LeaseRecord {
                state,
                holder: "us".to_owned(),
                id: "a".to_owned(),
                deadline: deadline.map(|time| time.parse().unwrap()),
            }))
        };
        let held = record("held", "-", END);
        for (case, message, expected) in [
            ("held", held.clone(), recorded(LeaseState::Held, Some(END))),
            (
                "gone",
                record("gone", "-", END),
                recorded(LeaseState::Gone, Some(END)),
            ),
            (
                "in use",
                record("in-use", "u", "-"),
                recorded(LeaseState::InUse, None),
            ),
            (
                "held with a uid",
                record("held", "u", END),
                Some(Lease::Unreadable),
            ),
            (
                "in use without a uid",
                record("in-use", "-", END),
                Some(Lease::Unreadable),
            ),
            (
                "an unknown state",
                record("lost", "-", END),
                Some(Lease::Unreadable),
            ),
            (
                "a deadline that is no time",
                record("held", "-", "soon"),
                Some(Lease::Unreadable),
            ),
            (
                "a newer version",
                held.replace("v1", "v2"),
                Some(Lease::Unreadable),
            ),
            (
                "a missing field",
                held.replace(" renewals=0", ""),
                Some(Lease::Unreadable),
            ),
            (
                "an additional field",
                format!("{held} more=1"),
                Some(Lease::Unreadable),
            ),
            ("no text", String::new(), Some(Lease::Unreadable)),
        ] {
            assert_eq!(
                Lease::from_status(&status(Some("us"), &message)),
                expected,
                "{case}"
            );
        }
    }

    /// The same changes as in the plugin's test `rejects_what_it_would_not_write`: what `pool status` calls unreadable is
    /// also unreadable here.
    #[test]
    fn a_record_with_any_damaged_field_is_unreadable() {
        let held = record("held", "-", END);
        assert!(matches!(
            Lease::from_status(&status(Some("us"), &held)),
            Some(Lease::Recorded(_))
        ));
        let long = format!("user={}", "j".repeat(201));
        for (from, to) in [
            ("holder=us", "holder=-"),
            ("holder=us", "holder=%75s"),
            ("id=a", "id=-"),
            ("id=a", "id=%"),
            ("renewals=0", "renewals=00"),
            ("renewals=0", "renewals=-1"),
            ("renewals=0", "renewals=-"),
            ("renewals=0", "renewals=4294967296"),
            ("acquired=2026-05-01T00:00:00Z", "acquired=-"),
            (
                "acquired=2026-05-01T00:00:00Z",
                "acquired=2026-05-01T00:00:00+00:00",
            ),
            ("acquired=2026-05-01T00:00:00Z", "acquired=2026-05-01T00:00:00.5Z"),
            ("12:00:00Z", "12:00:00+00:00"),
            ("12:00:00Z", "12:00:00.5Z"),
            ("cluster=us/us", "cluster=us"),
            ("user=jane", "user=jan\u{e9}"),
            ("user=jane", "user=%6Aane"),
            ("user=jane", "user=%c3%a9"),
            ("user=jane", "user=%4"),
            ("user=jane", "user=%FF"),
            ("user=jane", long.as_str()),
        ] {
            let damaged = held.replace(from, to);
            assert_ne!(damaged, held, "{from}");
            let lease = Lease::from_status(&status(Some("us"), &damaged));
            assert_eq!(lease, Some(Lease::Unreadable), "{to}");
        }
        for (from, to) in [
            ("user=jane", "user=%2D"),
            ("user=jane", "user=-"),
            ("user=jane", "user=CN=Jane%20Doe,%20100%25%20-"),
            ("user=jane", "user=jan%C3%A9"),
            ("cluster=us/us", "cluster=-"),
            ("renewals=0", "renewals=4294967295"),
        ] {
            let lease = Lease::from_status(&status(Some("us"), &held.replace(from, to)));
            assert!(matches!(lease, Some(Lease::Recorded(_))), "{to}: {lease:?}");
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
