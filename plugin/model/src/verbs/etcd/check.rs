//! What `etcd check` finds: whether all members have the same data, and whether their disks are fast enough.
//!
//! - [`metrics`]: the numbers that a member counts
//!
//! Each member hashes its keys and values up to one revision (etcd's `HashKV`). A member deletes its history up to its compacted
//! revision, so only hashes with equal compacted revisions are comparable (`server/etcdserver/corrupt.go` in etcd).

pub mod metrics;

use std::collections::{BTreeMap, BTreeSet};

use kcp_etcd::{KeySpaceHash, Status};
use serde::Serialize;

use crate::{
    change::decision::Refusal,
    snapshot::Snapshot,
    verbs::etcd::{
        check::metrics::{EtcdMetrics, Latency},
        members::{ClusterMember, EtcdCluster},
    },
};

/// The limits of the 99th percentiles in milliseconds: <https://etcd.io/docs/v3.6/faq/>, "apply entries took too long" and "failed
/// to send out heartbeat on time".
const WAL_FSYNC_LIMIT: f64 = 10.0;
const BACKEND_COMMIT_LIMIT: f64 = 25.0;

/// The percentage of the quota from which `status` warns, too.
const QUOTA_WARNING_PERCENT: u64 = 80;

/// What was read from one member. An error says why it could not be read.
#[derive(Clone, Debug)]
pub struct MemberReading {
    /// The name of the member's node, or `host:port` of an external etcd.
    pub name: String,
    pub hash: Result<KeySpaceHash, String>,
    pub metrics: Result<EtcdMetrics, String>,
}

/// Whether a member has the same data as the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum KeySpace {
    /// Its hash is that of more than half of all members.
    Equal,
    /// Its hash differs from that of most members, or from that of another member while no hash is that of most members.
    Differs,
    /// It has no hash that could be compared.
    Unknown,
}

/// A member as the check has found it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CheckedMember {
    pub name: String,
    pub key_space: KeySpace,
    /// The hash of the member's keys and values. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<u32>,
    /// The revision up to which the member has deleted its history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compacted_revision: Option<i64>,
    /// Absent if the member did not report its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub is_leader: bool,
    /// The size of the database in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_size: Option<u64>,
    /// How many bytes of the database are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_size_in_use: Option<u64>,
    /// The size in bytes at which the member raises the alarm NOSPACE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_size_quota: Option<u64>,
    /// The numbers that the member has counted since it started. Absent if they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<EtcdMetrics>,
}

/// The members of an etcd cluster, and what is wrong with them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EtcdCheck {
    /// The revision up to which the keys and values were hashed.
    pub revision: i64,
    pub members: Vec<CheckedMember>,
    /// Why the members may not have the same data, or why this is unknown.
    pub failures: Vec<String>,
    /// What may slow etcd down or fill it.
    pub warnings: Vec<String>,
}

/// The revision that every member has stored, so that each can hash up to it. `None` without members.
pub fn common_revision<'s>(statuses: impl IntoIterator<Item = &'s Status>) -> Option<i64> {
    statuses.into_iter().map(|status| status.revision).min()
}

/// Whether hashes that were read at the same revision can be compared. If not, some members have just compacted.
pub fn are_comparable(hashes: impl IntoIterator<Item = KeySpaceHash>) -> bool {
    let compacted = hashes.into_iter().map(|hash| hash.compacted_revision);
    compacted.collect::<BTreeSet<_>>().len() <= 1
}

fn hashes(readings: &[MemberReading]) -> impl Iterator<Item = KeySpaceHash> {
    readings
        .iter()
        .filter_map(|reading| reading.hash.as_ref().ok().copied())
}

/// Compares the members. `readings` has what was read from each member that could be reached.
///
/// # Errors
/// The members are unknown.
pub fn check(observed: &Snapshot, revision: i64, readings: &[MemberReading]) -> Result<EtcdCheck, Refusal> {
    let cluster = EtcdCluster::new(observed)?;
    let mut failures: Vec<String> = cluster
        .refuse_corruption()
        .err()
        .map_or_else(Vec::new, |it| it.why);
    let mut warnings = Vec::new();
    let majority = majority(readings, cluster.members.len());
    let read = |name: &str| readings.iter().find(|reading| reading.name == name);
    let mut members = Vec::new();
    for member in &cluster.members {
        let name = &member.name;
        let reading = read(name);
        let hash = hash(member, reading);
        let key_space = match (&hash, majority) {
            (Err(why), _) => {
                failures.push(format!("the data of etcd member {name} is unknown: {why}"));
                KeySpace::Unknown
            }
            (Ok(hash), Some(most)) if *hash == most => KeySpace::Equal,
            (Ok(hash), Some(most)) if hash.compacted_revision != most.compacted_revision => {
                failures.push(format!(
                    "the data of etcd member {name} is unknown: it has deleted its history up to revision {}, and most \
                     members up to revision {}; run the command again when the compaction has ended",
                    hash.compacted_revision, most.compacted_revision
                ));
                KeySpace::Unknown
            }
            (Ok(_), Some(_)) => {
                failures.push(format!(
                    "the data of etcd member {name} differs from that of most members"
                ));
                KeySpace::Differs
            }
            // Only one of the members that have this compacted revision can be right.
            (Ok(hash), None) if is_contradicted(readings, *hash) => KeySpace::Differs,
            (Ok(_), None) => KeySpace::Unknown,
        };
        let status = member.health.as_ref().ok().map(|healthy| healthy.status);
        let metrics = reading.map(|reading| &reading.metrics);
        match metrics {
            Some(Ok(metrics)) => warnings.extend(slow_disk(name, metrics)),
            Some(Err(why)) => failures.push(format!("the metrics of etcd member {name} are unknown: {why}")),
            // Its data is unknown, too.
            None => {}
        }
        let metrics = metrics.and_then(|metrics| metrics.as_ref().ok().copied());
        let quota = status
            .and_then(|status| status.db_size_quota)
            .or_else(|| metrics?.quota_bytes);
        let size = status.map(|status| status.db_size);
        warnings.extend(full_database(name, size, quota));
        members.push(CheckedMember {
            name: name.clone(),
            key_space,
            hash: hash.as_ref().ok().map(|hash| hash.hash),
            compacted_revision: hash.as_ref().ok().map(|hash| hash.compacted_revision),
            version: status.map(|status| status.version.clone()),
            is_leader: member.is_leader,
            db_size: size,
            db_size_in_use: status.map(|status| status.db_size_in_use),
            db_size_quota: quota,
            metrics,
        });
    }
    failures.extend(without_majority(&members, majority));
    let versions: BTreeSet<&str> = members
        .iter()
        .filter_map(|member| member.version.as_deref())
        .collect();
    if versions.len() > 1 {
        let versions: Vec<&str> = versions.into_iter().collect();
        warnings.push(format!(
            "the members run different versions: {}",
            versions.join(", ")
        ));
    }
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(EtcdCheck {
        revision,
        members,
        failures,
        warnings,
    })
}

/// # Errors
/// The member has no hash. The error says why.
fn hash(member: &ClusterMember<'_>, reading: Option<&MemberReading>) -> Result<KeySpaceHash, String> {
    match reading {
        Some(reading) => reading.hash.clone(),
        None => Err(match &member.health {
            Err(why) => format!("it {why}"),
            Ok(_) => "it was not asked".to_owned(),
        }),
    }
}

/// The hash of more than half of all members.
fn majority(readings: &[MemberReading], members: usize) -> Option<KeySpaceHash> {
    let mut votes: BTreeMap<(u32, i64), usize> = BTreeMap::new();
    for hash in hashes(readings) {
        *votes.entry((hash.hash, hash.compacted_revision)).or_default() += 1;
    }
    let found = votes.into_iter().find(|(_, count)| count * 2 > members);
    found.map(|((hash, compacted_revision), _)| KeySpaceHash {
        hash,
        compacted_revision,
    })
}

fn is_contradicted(readings: &[MemberReading], hash: KeySpaceHash) -> bool {
    hashes(readings)
        .any(|other| other.compacted_revision == hash.compacted_revision && other.hash != hash.hash)
}

/// What to say if no hash is that of most members.
fn without_majority(members: &[CheckedMember], majority: Option<KeySpaceHash>) -> Option<String> {
    let hashed: Vec<&str> = members
        .iter()
        .filter(|member| member.hash.is_some())
        .map(|member| member.name.as_str())
        .collect();
    if majority.is_some() || hashed.is_empty() {
        return None;
    }
    Some(format!(
        "no hash is that of most members, so it is unknown whose data is right: {}",
        hashed.join(", ")
    ))
}

fn slow_disk(name: &str, metrics: &EtcdMetrics) -> Vec<String> {
    let slow = |what: &str, latency: Option<Latency>, limit: f64| match latency {
        None => Some(format!(
            "etcd member {name} has measured no {what}, so the speed of its disk is unknown"
        )),
        Some(Latency { p99_milliseconds, .. }) if p99_milliseconds >= limit => Some(format!(
            "the disk of etcd member {name} is slow: 99 % of the {what} took up to {p99_milliseconds:.1} ms, \
             and etcd needs less than {limit} ms"
        )),
        Some(_) => None,
    };
    let all = [
        slow(
            "fsyncs of the write-ahead log",
            metrics.wal_fsync,
            WAL_FSYNC_LIMIT,
        ),
        slow(
            "commits of the database",
            metrics.backend_commit,
            BACKEND_COMMIT_LIMIT,
        ),
    ];
    all.into_iter().flatten().collect()
}

fn full_database(name: &str, size: Option<u64>, quota: Option<u64>) -> Option<String> {
    let (size, quota) = (size?, quota?);
    let is_nearly_full = size.saturating_mul(100) >= quota.saturating_mul(QUOTA_WARNING_PERCENT);
    is_nearly_full.then(|| {
        format!(
            "the database of etcd member {name} has {} MiB on disk, and its quota is {} MiB",
            size >> 20,
            quota >> 20
        )
    })
}

#[cfg(test)]
mod tests {
    use kcp_etcd::{Alarm, AlarmKind, KeySpaceHash};

    use super::{KeySpace, MemberReading, are_comparable, check, common_revision};
    use crate::{
        snapshot::{Snapshot, etcd::Alarms},
        testing::snapshot::observed,
        verbs::etcd::check::metrics::{EtcdMetrics, Latency},
    };

    const fn hash(hash: u32, compacted_revision: i64) -> KeySpaceHash {
        KeySpaceHash {
            hash,
            compacted_revision,
        }
    }

    const fn latency(p99_milliseconds: f64) -> Latency {
        Latency {
            p50_milliseconds: 1.0,
            p99_milliseconds,
        }
    }

    fn fast() -> EtcdMetrics {
        EtcdMetrics {
            wal_fsync: Some(latency(9.9)),
            backend_commit: Some(latency(24.9)),
            ..EtcdMetrics::default()
        }
    }

    /// What was read from the first members of the example.
    fn readings(hashes: &[KeySpaceHash]) -> Vec<MemberReading> {
        let reading = |(index, hash): (usize, &KeySpaceHash)| MemberReading {
            name: format!("node-m{}", index + 1),
            hash: Ok(*hash),
            metrics: Ok(fast()),
        };
        hashes.iter().enumerate().map(reading).collect()
    }

    /// Of each member, whether its data is that of the others; then the failures and the warnings.
    fn checked(observed: &Snapshot, readings: &[MemberReading]) -> (Vec<KeySpace>, Vec<String>, Vec<String>) {
        let found = check(observed, 100_000, readings).expect("the members are known");
        let key_spaces = found.members.iter().map(|member| member.key_space);
        (key_spaces.collect(), found.failures, found.warnings)
    }

    #[test]
    fn a_member_that_differs_is_named() {
        use KeySpace::{Differs, Equal, Unknown};
        type Case<'c> = (&'c str, &'c [KeySpaceHash], &'c [KeySpace], &'c [&'c str]);
        let (right, wrong, other) = (hash(1, 90), hash(2, 90), hash(3, 90));
        let cases: &[Case<'_>] = &[
            ("equal", &[right, right, right], &[Equal, Equal, Equal], &[]),
            (
                "one differs",
                &[right, wrong, right],
                &[Equal, Differs, Equal],
                &["the data of etcd member node-m2 differs from that of most members"],
            ),
            (
                "all differ",
                &[right, wrong, other],
                &[Differs, Differs, Differs],
                &[
                    "no hash is that of most members, so it is unknown whose data is right: node-m1, node-m2, node-m3",
                ],
            ),
            (
                "one is compacted further",
                &[right, right, hash(4, 95)],
                &[Equal, Equal, Unknown],
                &[
                    "the data of etcd member node-m3 is unknown: it has deleted its history up to revision 95, and most \
                     members up to revision 90; run the command again when the compaction has ended",
                ],
            ),
            (
                "each is compacted differently",
                &[hash(1, 1), hash(1, 2), hash(1, 3)],
                &[Unknown, Unknown, Unknown],
                &[
                    "no hash is that of most members, so it is unknown whose data is right: node-m1, node-m2, node-m3",
                ],
            ),
            (
                "one was not asked",
                &[right, right],
                &[Equal, Equal, Unknown],
                &["the data of etcd member node-m3 is unknown: it was not asked"],
            ),
            (
                "two were not asked",
                &[right],
                &[Unknown, Unknown, Unknown],
                &[
                    "the data of etcd member node-m2 is unknown: it was not asked",
                    "the data of etcd member node-m3 is unknown: it was not asked",
                    "no hash is that of most members, so it is unknown whose data is right: node-m1",
                ],
            ),
        ];
        for (name, hashes, key_spaces, failures) in cases {
            let (found, why, warnings) = checked(&observed(), &readings(hashes));
            assert_eq!(found, *key_spaces, "{name}");
            assert_eq!(why, *failures, "{name}");
            assert_eq!(warnings, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn what_could_not_be_read_is_a_failure() {
        let equal = [hash(1, 90); 3];
        let mut dead = observed();
        dead.kill(3);
        let (_, failures, _) = checked(&dead, &readings(&equal[..2]));
        let why = "it does not respond: cannot connect: connection refused";
        assert_eq!(
            failures,
            [format!("the data of etcd member node-m3 is unknown: {why}")]
        );

        let mut failed = readings(&equal);
        failed[0].hash = Err("HashKV: no response within 60 s".to_owned());
        failed[1].metrics = Err("Metrics: more than 4194304 bytes".to_owned());
        let (_, failures, _) = checked(&observed(), &failed);
        assert_eq!(
            failures,
            [
                "the data of etcd member node-m1 is unknown: HashKV: no response within 60 s",
                "the metrics of etcd member node-m2 are unknown: Metrics: more than 4194304 bytes",
            ]
        );

        let mut alarmed = observed();
        alarmed.survey().alarms = Alarms::Listed(vec![Alarm {
            member_id: 3,
            kind: AlarmKind::Corrupt,
        }]);
        let (_, failures, _) = checked(&alarmed, &readings(&equal));
        assert_eq!(
            failures,
            [
                "etcd member node-m3 has raised the alarm CORRUPT: its data differs from that of the other members"
            ]
        );
    }

    #[test]
    fn a_slow_disk_a_full_database_and_other_versions_are_warnings() {
        let mut observed = observed();
        observed.status(3).db_size = 1_639 << 20;
        observed.status(3).db_size_quota = None;
        observed.status(2).version = "3.5.21".to_owned();
        let mut read = readings(&[hash(1, 90); 3]);
        read[0].metrics = Ok(EtcdMetrics {
            wal_fsync: Some(latency(10.0)),
            backend_commit: Some(latency(25.04)),
            ..EtcdMetrics::default()
        });
        read[1].metrics = Ok(EtcdMetrics {
            wal_fsync: None,
            ..fast()
        });
        read[2].metrics = Ok(EtcdMetrics {
            quota_bytes: Some(2_048 << 20),
            ..fast()
        });
        let newest = observed.status(1).version.clone();
        let (key_spaces, failures, warnings) = checked(&observed, &read);
        assert_eq!(key_spaces, [KeySpace::Equal; 3]);
        assert_eq!(failures, Vec::<String>::new());
        let expected = [
            "the disk of etcd member node-m1 is slow: 99 % of the fsyncs of the write-ahead log took up to 10.0 ms, and etcd needs less than 10 ms"
                .to_owned(),
            "the disk of etcd member node-m1 is slow: 99 % of the commits of the database took up to 25.0 ms, and etcd needs less than 25 ms"
                .to_owned(),
            "etcd member node-m2 has measured no fsyncs of the write-ahead log, so the speed of its disk is unknown"
                .to_owned(),
            "the database of etcd member node-m3 has 1639 MiB on disk, and its quota is 2048 MiB".to_owned(),
            format!("the members run different versions: 3.5.21, {newest}"),
        ];
        assert_eq!(warnings, expected);
    }

    #[test]
    fn hashes_are_read_at_a_revision_that_every_member_has() {
        let mut observed = observed();
        observed.status(2).revision = 99_990;
        let statuses = [1, 2, 3].map(|number| observed.status(number).clone());
        assert_eq!(common_revision(&statuses), Some(99_990));
        assert_eq!(common_revision([]), None);
        assert!(are_comparable([hash(1, 90), hash(2, 90)]));
        assert!(!are_comparable([hash(1, 90), hash(1, 91)]));
    }
}
