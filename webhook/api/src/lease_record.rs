//! Reads and writes the record of a lease, which is the message of condition `kubectl-kcp.dev/Lease` on the
//! customization. No I/O.
//!
//! The grammar is strict: no other message can be parsed, and a lease whose record cannot be parsed never ends. The
//! message contains the times because Hive keeps a condition's message unchanged, but not its lastTransitionTime.
//!
//! ```text
//! v1 state=held uid=- holder=paris id=k4x7... renewals=0 acquired=2026-11-22T10:00:00Z deadline=2026-11-23T10:00:00Z
//!    cluster=paris/paris user=jane
//! ```
//!
//! The message is one line with single spaces and all fields in this order. `-` means none: no uid (unless the state is
//! `in-use`), no deadline (the lease never ends), no cluster (the lease ends at the deadline), or an unknown user. `%`,
//! and bytes outside `!` to `~`, are written as `%XX`; a value that consists of `-` only is written as `%2D`.

use std::fmt::{self, Write as _};

use jiff::{SignedDuration, Timestamp};

/// The type of the condition whose message is the record of a lease.
pub const CONDITION: &str = "kubectl-kcp.dev/Lease";

/// The version of the grammar.
pub const VERSION: &str = "v1";

/// The maximum length of the user's name in a record, in characters. A longer name is cut.
const MAX_USER: usize = 200;

/// Other clients free an entry this long after the deadline of its lease, because the holder's estimate of the server's time may
/// lag by this much.
pub const CLOCK_MARGIN: SignedDuration = SignedDuration::from_secs(5);

/// Whether other clients may free an entry whose lease ends at this time. If the current time is unknown, every end counts as
/// passed.
pub fn has_passed(end: Timestamp, now: Option<Timestamp>) -> bool {
    let freed = end.checked_add(CLOCK_MARGIN).unwrap_or(end);
    now.is_none_or(|now| freed <= now)
}

/// The state of a lease, as its record says. An entry that is free has no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The entry is leased, and no check has seen a cluster that uses it.
    Held,
    /// A cluster with this uid uses the entry, so the lease does not end.
    InUse { uid: String },
    /// The cluster no longer exists, or the lease has ended and may have had a cluster. After the deadline, a check frees
    /// the entry.
    ClusterGone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    pub state: LeaseState,
    /// The name of the ClusterDeployment that holds the entry.
    pub holder: String,
    /// The random id of the lease. The next lease of the same holder has another id.
    pub id: String,
    /// How many times the holder has confirmed the lease. Each confirmation changes the entry's
    /// resourceVersion, so that the server rejects the writes of clients that read the entry before the
    /// confirmation.
    pub renewals: u32,
    pub acquired: Timestamp,
    /// When the lease ends; `None` if it never ends.
    pub deadline: Option<Timestamp>,
    /// The holder's cluster, which uses the entry even if the cluster names no pool. `None` if the holder creates no
    /// cluster.
    pub cluster: Option<ClusterName>,
    /// The user who acquired the lease; `None` if the server did not report the user's name.
    pub user: Option<String>,
}

/// The namespace and the name of a ClusterDeployment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterName {
    pub namespace: String,
    pub name: String,
}

impl ClusterName {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why the record of a lease, or of a cleaning, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The record has this version of the grammar, which this program does not know.
    Version(String),
    Malformed,
    /// The record of a cleaning cannot be read, because it is damaged or has another version.
    Cleaning,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(
                f,
                "the lease record has version {version}; upgrade kubectl-kcp to read it"
            ),
            Self::Malformed => f.write_str("the lease record cannot be parsed"),
            Self::Cleaning => f.write_str(
                "the cleaning record cannot be parsed; it is damaged, or a newer kubectl-kcp wrote it",
            ),
        }
    }
}

impl LeaseState {
    /// The name of the state in a record, and in JSON.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::InUse { .. } => "in-use",
            Self::ClusterGone => "gone",
        }
    }

    /// The state as the condition's reason, in which `-`, `.` and `/` are not allowed.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::InUse { .. } => "InUse",
            Self::ClusterGone => "Gone",
        }
    }
}

impl LeaseRecord {
    /// When the lease ends; `None` if it does not end, for example while a cluster uses its entry.
    pub fn end(&self) -> Option<Timestamp> {
        self.deadline
            .filter(|_| !matches!(self.state, LeaseState::InUse { .. }))
    }

    /// Parses the record of a lease from a condition's message. Fails if the message is not a record that [`Self::message`] could
    /// have written.
    pub fn parse(message: &str) -> Result<Self, Unreadable> {
        let fields = fields(message)?;
        Self::of_fields(fields)
            .filter(|record| record.message() == message)
            .ok_or(Unreadable::Malformed)
    }

    fn of_fields(mut fields: Fields<'_>) -> Option<Self> {
        let mut next = |name: &str| next_value(&mut fields, name);
        let (state, uid) = (next("state")??, next("uid")?);
        let state = match (state.as_str(), uid) {
            ("held", None) => LeaseState::Held,
            ("in-use", Some(uid)) => LeaseState::InUse { uid },
            ("gone", None) => LeaseState::ClusterGone,
            _ => return None,
        };
        Some(Self {
            state,
            holder: next("holder")??,
            id: next("id")??,
            renewals: next("renewals")??.parse().ok()?,
            acquired: next("acquired")??.parse().ok()?,
            deadline: parse_optional(next("deadline")?)?,
            cluster: match next("cluster")? {
                Some(cluster) => {
                    let (namespace, name) = cluster.split_once('/')?;
                    Some(ClusterName::new(namespace, name))
                }
                None => None,
            },
            user: next("user")?,
        })
    }

    /// The record as the message of the condition.
    pub fn message(&self) -> String {
        let uid = match &self.state {
            LeaseState::InUse { uid } => Some(uid.as_str()),
            LeaseState::Held | LeaseState::ClusterGone => None,
        };
        let renewals = self.renewals.to_string();
        let acquired = seconds(self.acquired);
        let deadline = self.deadline.map(seconds);
        let cluster = self.cluster.as_ref().map(ToString::to_string);
        let user = self.user.as_deref().map(cut_user);
        line(&[
            ("state", Some(self.state.as_str())),
            ("uid", uid),
            ("holder", Some(&self.holder)),
            ("id", Some(&self.id)),
            ("renewals", Some(&renewals)),
            ("acquired", Some(&acquired)),
            ("deadline", deadline.as_deref()),
            ("cluster", cluster.as_deref()),
            ("user", user.as_deref()),
        ])
    }

    /// Rounds a time up to a whole second, because records contain whole seconds. If times were rounded down, a lease would
    /// end early.
    pub fn round_up_to_second(time: Timestamp) -> Timestamp {
        let whole = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
        Timestamp::from_second(whole).unwrap_or(time)
    }

    /// The record after the holder confirmed the lease once more.
    pub fn after_confirmation(&self) -> Self {
        Self {
            renewals: self.renewals.wrapping_add(1),
            ..self.clone()
        }
    }
}

/// The fields of a record that follow its version.
pub(crate) type Fields<'m> = std::str::Split<'m, char>;

/// The fields of a record in this version of the grammar.
pub(crate) fn fields(message: &str) -> Result<Fields<'_>, Unreadable> {
    let (version, fields) = message.split_once(' ').unwrap_or((message, ""));
    let is_version = |version: &str| {
        version
            .strip_prefix('v')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    if version == VERSION {
        Ok(fields.split(' '))
    } else if is_version(version) {
        Err(Unreadable::Version(version.to_owned()))
    } else {
        Err(Unreadable::Malformed)
    }
}

/// The value of the next field, which must have this name: `None` if the field is invalid, `Some(None)` for `-`.
#[expect(clippy::option_option, reason = "an invalid value differs from the value -")]
pub(crate) fn next_value(fields: &mut Fields<'_>, name: &str) -> Option<Option<String>> {
    let field = fields.next()?;
    decode_value(field.strip_prefix(name)?.strip_prefix('=')?)
}

/// Parses a value that may be `-`: `None` if it is invalid.
#[expect(clippy::option_option, reason = "an invalid value differs from the value -")]
pub(crate) fn parse_optional(value: Option<String>) -> Option<Option<Timestamp>> {
    match value {
        Some(time) => Some(Some(time.parse().ok()?)),
        None => Some(None),
    }
}

/// A record with these fields, as one line.
pub(crate) fn line(fields: &[(&str, Option<&str>)]) -> String {
    let mut message = VERSION.to_owned();
    for (name, value) in fields {
        message.push(' ');
        message.push_str(name);
        message.push('=');
        encode(*value, &mut message);
    }
    message
}

/// A user's name, cut to the maximum length in a record.
pub(crate) fn cut_user(user: &str) -> String {
    user.chars().take(MAX_USER).collect()
}

pub(crate) fn seconds(time: Timestamp) -> String {
    LeaseRecord::round_up_to_second(time).to_string()
}

fn encode(value: Option<&str>, message: &mut String) {
    match value {
        None => message.push('-'),
        Some("-") => message.push_str("%2D"),
        Some(value) => {
            for byte in value.bytes() {
                match byte {
                    b'%' => message.push_str("%25"),
                    b'!'..=b'~' => message.push(byte.into()),
                    // Writing to a String cannot fail.
                    _ => drop(write!(message, "%{byte:02X}")),
                }
            }
        }
    }
}

/// Decodes a value of the record: `None` if the text is invalid, `Some(None)` for `-`.
#[expect(clippy::option_option, reason = "an invalid value differs from the value -")]
fn decode_value(text: &str) -> Option<Option<String>> {
    if text == "-" {
        return Some(None);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().map(Some)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{ClusterName, LeaseRecord, LeaseState, Unreadable};

    const MESSAGE: &str = "v1 state=held uid=- holder=paris id=k4x7 renewals=0 acquired=2026-11-21T04:00:00Z \
                           deadline=2026-11-22T04:00:00Z cluster=paris/paris user=jane";

    #[test]
    fn a_record_is_one_line() {
        let mut record = LeaseRecord {
            state: LeaseState::Held,
            holder: "paris".to_owned(),
            id: "k4x7".to_owned(),
            renewals: 0,
            acquired: "2026-11-21T04:00:00Z".parse().unwrap(),
            deadline: "2026-11-22T04:00:00Z".parse().ok(),
            cluster: Some(ClusterName::new("paris", "paris")),
            user: Some("jane".to_owned()),
        };
        assert_eq!(record.message(), MESSAGE);
        assert_eq!(LeaseRecord::parse(MESSAGE).as_ref(), Ok(&record));
        record.state = LeaseState::InUse {
            uid: "u-1".to_owned(),
        };
        record.deadline = None;
        record.cluster = None;
        record.user = Some("CN=Jane Doe, 100% -".to_owned());
        let message = "v1 state=in-use uid=u-1 holder=paris id=k4x7 renewals=0 acquired=2026-11-21T04:00:00Z \
                       deadline=- cluster=- user=CN=Jane%20Doe,%20100%25%20-";
        assert_eq!(record.message(), message);
        assert_eq!(LeaseRecord::parse(message).as_ref(), Ok(&record));
        record.user = Some("-".to_owned());
        assert_eq!(LeaseRecord::parse(&record.message()).as_ref(), Ok(&record));
    }

    #[test]
    fn rejects_records_that_it_does_not_write() {
        let long = format!("user={}", "j".repeat(201));
        for (from, to) in [
            ("v1 ", ""),
            ("v1", "V1"),
            ("v1", "v01x"),
            ("uid=-", "uid=u"),
            ("state=held", "state=in-use"),
            ("state=held", "state=lost"),
            ("holder=paris", "holder=-"),
            ("holder=paris", "holder=%70aris"),
            ("id=k4x7", "id=-"),
            ("id=k4x7", "id=%"),
            ("uid=- ", ""),
            (" holder=paris", "  holder=paris"),
            ("renewals=0", "renewals=00"),
            ("renewals=0", "renewals=-1"),
            ("renewals=0", "renewals=-"),
            ("renewals=0", "renewals=4294967296"),
            ("acquired=2026-11-21T04:00:00Z", "acquired=-"),
            ("04:00:00Z deadline", "04:00:00+00:00 deadline"),
            ("04:00:00Z deadline", "04:00:00.5Z deadline"),
            ("deadline=2026", "deadline=soon"),
            ("cluster=paris/paris", "cluster=paris"),
            ("user=jane", "user=jane "),
            ("user=jane", "user=jane more=1"),
            ("user=jane", "user=jan\u{e9}"),
            ("user=jane", "user=%6aane"),
            ("user=jane", "user=%6Aane"),
            ("user=jane", "user=%c3%a9"),
            ("user=jane", long.as_str()),
            ("user=jane", "user=%4"),
            ("user=jane", "user=%FF"),
        ] {
            let message = MESSAGE.replacen(from, to, 1);
            assert_ne!(message, MESSAGE, "{from}");
            assert_eq!(
                LeaseRecord::parse(&message),
                Err(Unreadable::Malformed),
                "{message}"
            );
        }
        for version in ["v2", "v10"] {
            let message = MESSAGE.replacen("v1", version, 1);
            let newer = Unreadable::Version(version.to_owned());
            assert_eq!(LeaseRecord::parse(&message), Err(newer));
        }
    }

    fn record() -> impl Strategy<Value = LeaseRecord> {
        let state = prop_oneof![
            Just(LeaseState::Held),
            "[ -~]{1,9}".prop_map(|uid| LeaseState::InUse { uid }),
            Just(LeaseState::ClusterGone),
        ];
        let time = (0_i64..4_000_000_000).prop_map(|second| Timestamp::from_second(second).unwrap());
        let cluster =
            ("[a-z-]{1,9}", "[a-z.-]{1,9}").prop_map(|(namespace, name)| ClusterName { namespace, name });
        (
            (state, "[a-z-]{1,20}", "[a-z0-9]{1,12}", any::<u32>()),
            (
                time.clone(),
                proptest::option::of(time),
                proptest::option::of(cluster),
            ),
            proptest::option::of("\\PC{1,40}"),
        )
            .prop_map(
                |((state, holder, id, renewals), (acquired, deadline, cluster), user)| LeaseRecord {
                    state,
                    holder,
                    id,
                    renewals,
                    acquired,
                    deadline,
                    cluster,
                    user,
                },
            )
    }

    proptest! {
        #[test]
        fn a_written_record_is_read_back(record in record()) {
            let message = record.message();
            prop_assert!(message.is_ascii());
            prop_assert_eq!(LeaseRecord::parse(&message), Ok(record));
        }

        #[test]
        fn a_parsed_record_is_written_as_the_same_text(text in "\\PC{0,200}", at in 0_usize..160, with in "\\PC{0,3}") {
            let _ = LeaseRecord::parse(&text);
            if let (Some(before), Some(after)) = (MESSAGE.get(..at), MESSAGE.get(at + 1..))
                && let Ok(read) = LeaseRecord::parse(&format!("{before}{with}{after}"))
            {
                prop_assert_eq!(read.message(), format!("{before}{with}{after}"));
            }
        }
    }
}
