//! Reads and writes the record of a cleaning, which is the message of condition `kubectl-kcp.dev/Cleaning` on a customization
//! that must be cleaned before its next lease. No I/O.
//!
//! The grammar is that of [`crate::lease_record`]. An entry whose record cannot be parsed is never free.
//!
//! ```text
//! v1 holder=paris since=2026-11-22T10:00:00Z janitor=k4x7... deadline=2026-11-22T10:15:00Z failures=0 user=jane
//! ```
//!
//! `-` means: the last holder is unknown, no janitor cleans the entry (both `janitor` and `deadline`), or the user is unknown.

use jiff::Timestamp;

use crate::lease_record::{
    Fields, LeaseRecord, Unreadable, cut_user, fields, line, next_value, parse_optional, seconds,
};

/// The type of the condition whose message is the record of a cleaning.
pub const CLEANING: &str = "kubectl-kcp.dev/Cleaning";

/// What the status of a customization says about its cleaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleaningRecord {
    /// The name of the ClusterDeployment that held the entry last; `None` if it is unknown.
    pub holder: Option<String>,
    /// When the last lease of the entry was released or ended for good.
    pub since: Timestamp,
    /// The janitor that cleans the entry; `None` if the entry waits for one.
    pub janitor: Option<Janitor>,
    /// How many janitors have failed to clean the entry.
    pub failures: u32,
    /// The user who acquired the last lease; `None` if unknown.
    pub user: Option<String>,
}

/// A process that cleans an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Janitor {
    /// The random id of the janitor's hold on the entry.
    pub id: String,
    /// When another janitor may take the entry, unless this one renews its hold.
    pub deadline: Timestamp,
}

impl CleaningRecord {
    /// The record of an entry whose lease ends now. It waits for a janitor.
    pub fn after_lease(lease: Option<&LeaseRecord>, holder: Option<&str>, now: Timestamp) -> Self {
        let of_lease = lease.map(|lease| lease.holder.as_str());
        Self {
            holder: holder.or(of_lease).map(str::to_owned),
            since: LeaseRecord::round_up_to_second(now),
            janitor: None,
            failures: 0,
            user: lease.and_then(|lease| lease.user.clone()),
        }
    }

    /// The condition's reason.
    pub const fn reason(&self) -> &'static str {
        match self.janitor {
            Some(_) => "Running",
            None => "Waiting",
        }
    }

    /// Parses the record of a cleaning from a condition's message. Fails if [`Self::message`] could not have written it.
    pub fn parse(message: &str) -> Result<Self, Unreadable> {
        let fields = fields(message).map_err(|_| Unreadable::Cleaning)?;
        Self::of_fields(fields)
            .filter(|record| record.message() == message)
            .ok_or(Unreadable::Cleaning)
    }

    fn of_fields(mut fields: Fields<'_>) -> Option<Self> {
        let mut next = |name: &str| next_value(&mut fields, name);
        let (holder, since) = (next("holder")?, next("since")??.parse().ok()?);
        let janitor = match (next("janitor")?, parse_optional(next("deadline")?)?) {
            (Some(id), Some(deadline)) => Some(Janitor { id, deadline }),
            (None, None) => None,
            _ => return None,
        };
        Some(Self {
            holder,
            since,
            janitor,
            failures: next("failures")??.parse().ok()?,
            user: next("user")?,
        })
    }

    /// The record as the message of the condition.
    pub fn message(&self) -> String {
        let since = seconds(self.since);
        let deadline = self.janitor.as_ref().map(|janitor| seconds(janitor.deadline));
        let failures = self.failures.to_string();
        let user = self.user.as_deref().map(cut_user);
        line(&[
            ("holder", self.holder.as_deref()),
            ("since", Some(&since)),
            (
                "janitor",
                self.janitor.as_ref().map(|janitor| janitor.id.as_str()),
            ),
            ("deadline", deadline.as_deref()),
            ("failures", Some(&failures)),
            ("user", user.as_deref()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{CleaningRecord, Janitor};
    use crate::lease_record::Unreadable;

    const MESSAGE: &str = "v1 holder=paris since=2026-11-21T04:00:00Z janitor=k4x7 deadline=2026-11-21T04:15:00Z \
                           failures=2 user=jane";

    #[test]
    fn a_record_is_one_line() {
        let mut record = CleaningRecord {
            holder: Some("paris".to_owned()),
            since: "2026-11-21T04:00:00Z".parse().unwrap(),
            janitor: Some(Janitor {
                id: "k4x7".to_owned(),
                deadline: "2026-11-21T04:15:00Z".parse().unwrap(),
            }),
            failures: 2,
            user: Some("jane".to_owned()),
        };
        assert_eq!((record.message().as_str(), record.reason()), (MESSAGE, "Running"));
        assert_eq!(CleaningRecord::parse(MESSAGE).as_ref(), Ok(&record));
        record.janitor = None;
        record.holder = None;
        record.user = Some("CN=Jane Doe".to_owned());
        let waiting =
            "v1 holder=- since=2026-11-21T04:00:00Z janitor=- deadline=- failures=2 user=CN=Jane%20Doe";
        assert_eq!((record.message().as_str(), record.reason()), (waiting, "Waiting"));
        assert_eq!(CleaningRecord::parse(waiting).as_ref(), Ok(&record));
    }

    #[test]
    fn rejects_records_that_it_does_not_write() {
        for (from, to) in [
            ("v1 ", ""),
            ("v1", "v2"),
            ("holder=paris ", ""),
            ("holder=paris", "holder=%70aris"),
            ("since=2026-11-21T04:00:00Z", "since=-"),
            ("janitor=k4x7", "janitor=-"),
            ("deadline=2026-11-21T04:15:00Z", "deadline=-"),
            ("deadline=2026-11-21T04:15:00Z", "deadline=soon"),
            ("failures=2", "failures=-"),
            ("failures=2", "failures=02"),
            ("failures=2", "failures=-1"),
            ("failures=2", "failures=4294967296"),
            ("user=jane", "user=jane more=1"),
            (" since", "  since"),
        ] {
            let message = MESSAGE.replacen(from, to, 1);
            assert_ne!(message, MESSAGE, "{from}");
            assert_eq!(
                CleaningRecord::parse(&message),
                Err(Unreadable::Cleaning),
                "{message}"
            );
        }
    }

    fn record() -> impl Strategy<Value = CleaningRecord> {
        let time = (0_i64..4_000_000_000).prop_map(|second| Timestamp::from_second(second).unwrap());
        let janitor = ("[a-z0-9]{1,12}", time.clone()).prop_map(|(id, deadline)| Janitor { id, deadline });
        (
            proptest::option::of("[a-z-]{1,20}"),
            time,
            proptest::option::of(janitor),
            any::<u32>(),
            proptest::option::of("\\PC{1,40}"),
        )
            .prop_map(|(holder, since, janitor, failures, user)| CleaningRecord {
                holder,
                since,
                janitor,
                failures,
                user,
            })
    }

    proptest! {
        #[test]
        fn every_record_is_read_back(record in record()) {
            prop_assert_eq!(CleaningRecord::parse(&record.message()), Ok(record));
        }

        #[test]
        fn any_message_is_read_or_rejected(message in "\\PC{0,80}") {
            drop(CleaningRecord::parse(&message));
        }
    }
}
