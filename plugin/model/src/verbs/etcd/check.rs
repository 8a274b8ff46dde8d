//! What `etcd check` finds: whether all members have the same data, and whether their disks are fast enough.
//!
//! Each voter hashes its keys and values up to one revision (etcd's `HashKV`). A member deletes its history up to its compacted
//! revision, so only hashes with equal compacted revisions are comparable (`server/etcdserver/corrupt.go` in etcd). etcd does not
//! let a learner compute a hash (`isRPCSupportedForLearner` in `server/etcdserver/api/v3rpc/util.go`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kcp_etcd::{KeySpaceHash, Status};
use serde::Serialize;

use crate::{
    change::decision::Refusal,
    checks::{
        etcd_storage::{DISK, MIN_OPERATIONS},
        find,
        finding::{CheckOutcome, Finding},
    },
    snapshot::{Failure, Reading, Snapshot, etcd::metrics::EtcdMetrics},
    verbs::etcd::{
        listing::MemberRole,
        members::{ClusterMember, EtcdCluster},
    },
};

/// The checks of `status` whose findings are warnings here, too.
const CHECKS: [&str; 3] = ["etcd-disk-slow", "etcd-space-low", "etcd-versions-differ"];

/// What was read from one member. An error says why it could not be read.
#[derive(Clone, Debug)]
pub struct MemberReading {
    /// The name of the member's node, or `host:port` of an external etcd.
    pub name: String,
    /// The id of the member that responded there. `None` if none did.
    pub member_id: Option<u64>,
    pub hash: Result<KeySpaceHash, Failure>,
    /// What the member has counted between two readings. `None` if it was not sampled.
    pub sampled: Option<Result<EtcdMetrics, Failure>>,
}

/// Whether a member has the same data as the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum Agreement {
    /// Its hash is that of more than half of all voters.
    Equal,
    /// Its hash differs from that of most voters, or from that of another voter while no hash is that of most voters.
    Differs,
    /// It has no hash that could be compared. A learner never has one.
    Unknown,
}

/// A member as the check has found it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CheckedMember {
    pub name: String,
    pub role: MemberRole,
    pub key_space: Agreement,
    /// The hash of the member's keys and values. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<u32>,
    /// The revision up to which the member has deleted its history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compacted_revision: Option<i64>,
    /// Absent if the member did not report its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
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
    /// The revision up to which the keys and values were hashed. Absent if no voter reported its revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    pub members: Vec<CheckedMember>,
    /// Why the voters possibly have different data, why this is unknown, and why the metrics of a member are unknown.
    pub failures: Vec<String>,
    /// What may slow etcd down or fill it, and which learners have unknown data.
    pub warnings: Vec<String>,
    /// What to do about the failures and warnings.
    pub hints: Vec<String>,
}

/// The newest revision that every healthy voter has stored, so that each can hash up to it. An unhealthy voter does not hold the
/// others back: it may lag behind revisions that they have already deleted. Without a healthy voter, each voter counts. `None` if
/// none of these statuses is that of a voter.
pub fn common_revision<'s>(
    cluster: &EtcdCluster<'_>,
    statuses: impl IntoIterator<Item = &'s Status>,
) -> Option<i64> {
    let revisions = statuses.into_iter().filter_map(|status| {
        let mut voters = cluster.members.iter().filter(|member| member.is_voter);
        let voter = voters.find(|member| member.id == status.member_id)?;
        Some((voter.health.is_err(), status.revision))
    });
    let (_, revision) = revisions.min()?;
    Some(revision)
}

/// Whether hashes that were read at the same revision can be compared. If not, some members have just compacted. A hash is `None`
/// if the member had already deleted the revision.
pub fn are_comparable(hashes: impl IntoIterator<Item = Option<KeySpaceHash>>) -> bool {
    let compacted = hashes
        .into_iter()
        .map(|hash| Some(hash?.compacted_revision))
        .collect::<BTreeSet<_>>();
    compacted.len() <= 1 && !compacted.contains(&None)
}

/// Compares the members. `readings` has what was read from each member that was asked.
pub fn check(
    observed: &Snapshot,
    revision: Option<i64>,
    readings: &[MemberReading],
    now: Timestamp,
) -> Result<EtcdCheck, Refusal> {
    let observed = &with_samples(observed, readings);
    let cluster = EtcdCluster::new(observed)?;
    let mut found = EtcdCheck {
        revision,
        members: Vec::new(),
        failures: Vec::new(),
        warnings: Vec::new(),
        hints: Vec::new(),
    };
    if let Err(corrupt) = cluster.refuse_corruption() {
        found.failures.extend(corrupt.why);
        found.add_hints(corrupt.remedies);
    }
    let read: Vec<_> = cluster
        .members
        .iter()
        .map(|member| (member, reading_of(member, readings)))
        .collect();
    let voters = read.iter().filter(|(member, _)| member.is_voter);
    let hashes = Hashes {
        voters: voters.clone().count(),
        known: voters
            .filter_map(|(_, reading)| reading.as_ref().ok()?.hash.as_ref().ok().copied())
            .collect(),
    };
    for (member, reading) in &read {
        found.add(&cluster, &hashes, member, reading.as_ref());
    }
    if hashes.majority().is_none() && hashes.known.iter().any(|hash| hashes.contradict(*hash)) {
        found.failures.push(format!(
            "no majority of the voters has the same hash, so it is unknown whose data is right: {}",
            found.names_with_a_hash().join(", ")
        ));
    }
    let findings = CHECKS.into_iter().filter_map(find);
    let findings = findings.flat_map(|check| check.run(observed, now).findings);
    for finding in findings.filter(|it| matches!(it.outcome, CheckOutcome::Warn | CheckOutcome::Fail)) {
        found.warnings.push(warning(&finding));
        found.add_hints(finding.hint);
    }
    found.members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

impl EtcdCheck {
    fn add_hints(&mut self, hints: impl IntoIterator<Item = String>) {
        for hint in hints {
            if !self.hints.contains(&hint) {
                self.hints.push(hint);
            }
        }
    }

    fn names_with_a_hash(&self) -> Vec<&str> {
        let hashed = self.members.iter().filter(|member| member.hash.is_some());
        hashed.map(|member| member.name.as_str()).collect()
    }

    fn add(
        &mut self,
        cluster: &EtcdCluster<'_>,
        hashes: &Hashes,
        member: &ClusterMember<'_>,
        reading: Result<&&MemberReading, &String>,
    ) {
        let name = &member.name;
        let key_space = if member.is_voter {
            let (key_space, why) = match reading.map(|reading| (&reading.hash, reading.member_id)) {
                Ok((Ok(hash), _)) => hashes.judge(*hash),
                Ok((Err(failure), responded)) => {
                    self.add_hints(failure.hint.clone());
                    let why = match &member.health {
                        // Possibly the member has not stored the revision yet.
                        Err(fault) if responded.is_some() => format!("it {fault}: {}", failure.message),
                        _ => failure.message.clone(),
                    };
                    (Agreement::Unknown, Some(why))
                }
                Err(why) => (Agreement::Unknown, Some(why.clone())),
            };
            match (key_space, why) {
                (Agreement::Unknown, Some(why)) => {
                    self.failures
                        .push(format!("the data of etcd member {name} is unknown: {why}"));
                }
                (_, Some(why)) => self
                    .failures
                    .push(format!("the data of etcd member {name} {why}")),
                (_, None) => {}
            }
            key_space
        } else {
            self.warnings.push(format!(
                "etcd member {name} is a learner, so its data is unknown: a learner computes no hash"
            ));
            Agreement::Unknown
        };
        let mut responses = cluster.survey.responses().filter_map(|(_, response)| {
            let status = response.status.as_ref().ok()?;
            Some((status, &response.metrics))
        });
        let response = responses.find(|(status, _)| status.member_id == member.id);
        let status = response.map(|(status, _)| status);
        // Without a response, the data is unknown for the same reason.
        match response.map(|(_, metrics)| metrics) {
            Some(Ok(metrics)) => self.warnings.extend(unmeasured(name, metrics)),
            Some(Err(failure)) => {
                let why = &failure.message;
                self.failures
                    .push(format!("the metrics of etcd member {name} are unknown: {why}"));
                self.add_hints(failure.hint.clone());
            }
            None => {}
        }
        let hash = reading.ok().and_then(|reading| reading.hash.as_ref().ok());
        let hash = hash.filter(|_| member.is_voter);
        self.members.push(CheckedMember {
            name: name.clone(),
            role: MemberRole::new(member),
            key_space,
            hash: hash.map(|hash| hash.hash),
            compacted_revision: hash.map(|hash| hash.compacted_revision),
            version: status.map(|status| status.version.clone()),
            db_size: status.map(|status| status.db_size),
            db_size_in_use: status.map(|status| status.db_size_in_use),
            db_size_quota: status.and_then(|status| status.db_size_quota),
            metrics: response.and_then(|(_, metrics)| metrics.as_ref().ok().copied()),
        });
    }
}

/// The snapshot with the metrics that were sampled.
fn with_samples(observed: &Snapshot, readings: &[MemberReading]) -> Snapshot {
    let mut observed = observed.clone();
    let Reading::Read(survey) = &mut observed.etcd else {
        return observed;
    };
    for queried in &mut survey.queried {
        let reading = readings.iter().find(|reading| reading.name == queried.name);
        if let (Ok(response), Some(sampled)) = (
            &mut queried.response,
            reading.and_then(|reading| reading.sampled.clone()),
        ) {
            response.metrics = sampled;
        }
    }
    observed
}

/// What was read from this member. A reading does not count if a different member responded on its node.
fn reading_of<'r>(
    member: &ClusterMember<'_>,
    readings: &'r [MemberReading],
) -> Result<&'r MemberReading, String> {
    match readings.iter().find(|reading| reading.name == member.name) {
        Some(reading) if reading.member_id.is_none_or(|id| id == member.id) => Ok(reading),
        Some(_) => Err("another member responds on its node".to_owned()),
        None => Err(match &member.health {
            Err(why) => format!("it {why}"),
            Ok(_) => "it was not asked".to_owned(),
        }),
    }
}

/// The hashes of the voters.
struct Hashes {
    /// How many voters etcd has, with and without a known hash.
    voters: usize,
    known: Vec<KeySpaceHash>,
}

impl Hashes {
    /// The hash of more than half of all voters.
    fn majority(&self) -> Option<KeySpaceHash> {
        let mut votes: BTreeMap<(u32, i64), usize> = BTreeMap::new();
        for hash in &self.known {
            *votes.entry((hash.hash, hash.compacted_revision)).or_default() += 1;
        }
        let found = votes.into_iter().find(|(_, count)| count * 2 > self.voters);
        found.map(|((hash, compacted_revision), _)| KeySpaceHash {
            hash,
            compacted_revision,
        })
    }

    fn comparable(&self, hash: KeySpaceHash) -> impl Iterator<Item = &KeySpaceHash> {
        let known = self.known.iter();
        known.filter(move |other| other.compacted_revision == hash.compacted_revision)
    }

    /// Whether any hash that is comparable with this hash differs from it.
    fn contradict(&self, hash: KeySpaceHash) -> bool {
        self.comparable(hash).any(|other| *other != hash)
    }

    /// Compares the hash of one voter with the others. The text says what is wrong or unknown, as the end of a sentence. `None`
    /// if nothing is wrong or unknown, or if it is unknown which voter is wrong.
    fn judge(&self, hash: KeySpaceHash) -> (Agreement, Option<String>) {
        const AGAIN: &str = "run the command again when the compaction has ended";
        match self.majority() {
            Some(most) if hash == most => (Agreement::Equal, None),
            Some(most) if hash.compacted_revision != most.compacted_revision => {
                let why = format!(
                    "it has deleted its history up to revision {}, and most members up to revision {}; {AGAIN}",
                    hash.compacted_revision, most.compacted_revision
                );
                (Agreement::Unknown, Some(why))
            }
            Some(_) => {
                let why = "differs from that of most members".to_owned();
                (Agreement::Differs, Some(why))
            }
            // Only one of the members that have this compacted revision can be right.
            None if self.contradict(hash) => (Agreement::Differs, None),
            None => {
                let comparable = self.comparable(hash).count();
                let mut why = format!(
                    "the hashes of only {comparable} of {} voters can be compared",
                    self.voters
                );
                if comparable < self.known.len() {
                    why = format!("{why}; {AGAIN}");
                }
                (Agreement::Unknown, Some(why))
            }
        }
    }
}

/// A finding of `status` on one line, with the names of the members.
fn warning(finding: &Finding) -> String {
    let objects = finding.objects.iter();
    let names: Vec<&str> = objects
        .filter_map(|object| object.strip_prefix("EtcdMember/"))
        .collect();
    format!("etcd member {}: {}", names.join(", "), finding.message)
}

/// Says of which disk operations a member has measured too few to judge its disk.
fn unmeasured(name: &str, metrics: &EtcdMetrics) -> Vec<String> {
    let operations = DISK.iter().filter_map(|operation| {
        let measured = (operation.latency)(metrics).map_or(0, |latency| latency.operations);
        let count = match measured {
            0 => "no".to_owned(),
            MIN_OPERATIONS.. => return None,
            few => format!("only {few}"),
        };
        let what = operation.name;
        Some(format!(
            "etcd member {name} has measured {count} {what}, so the speed of its disk is unknown"
        ))
    });
    operations.collect()
}

#[cfg(test)]
mod tests {
    use kcp_etcd::{Alarm, AlarmKind, KeySpaceHash};

    use super::{Agreement, EtcdCheck, MemberReading, are_comparable, check, common_revision};
    use crate::{
        snapshot::{
            Snapshot,
            etcd::{
                Alarms,
                metrics::{EtcdMetrics, Latency},
            },
        },
        testing::{
            objects::now,
            snapshot::{failure, latency, observed},
        },
        verbs::etcd::{listing::MemberRole, members::EtcdCluster},
    };

    const fn hash(hash: u32, compacted_revision: i64) -> KeySpaceHash {
        KeySpaceHash {
            hash,
            compacted_revision,
        }
    }

    /// What was read from the first members of the example.
    fn readings(hashes: &[KeySpaceHash]) -> Vec<MemberReading> {
        let reading = |(index, hash): (usize, &KeySpaceHash)| MemberReading {
            name: format!("node-m{}", index + 1),
            member_id: u64::try_from(index + 1).ok(),
            hash: Ok(*hash),
            sampled: None,
        };
        hashes.iter().enumerate().map(reading).collect()
    }

    fn found(observed: &Snapshot, readings: &[MemberReading]) -> EtcdCheck {
        check(observed, Some(100_000), readings, now()).expect("the members are known")
    }

    /// Of each member, whether its data is that of the others; then the failures and the warnings.
    fn checked(
        observed: &Snapshot,
        readings: &[MemberReading],
    ) -> (Vec<Agreement>, Vec<String>, Vec<String>) {
        let found = found(observed, readings);
        let key_spaces = found.members.iter().map(|member| member.key_space);
        (key_spaces.collect(), found.failures, found.warnings)
    }

    #[test]
    fn a_member_that_differs_is_named() {
        use Agreement::{Differs, Equal, Unknown};
        type Case<'c> = (&'c str, &'c [KeySpaceHash], &'c [Agreement], &'c [&'c str]);
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
                    "no majority of the voters has the same hash, so it is unknown whose data is right: node-m1, node-m2, node-m3",
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
                    "the data of etcd member node-m1 is unknown: the hashes of only 1 of 3 voters can be compared; run the command \
                     again when the compaction has ended",
                    "the data of etcd member node-m2 is unknown: the hashes of only 1 of 3 voters can be compared; run the command \
                     again when the compaction has ended",
                    "the data of etcd member node-m3 is unknown: the hashes of only 1 of 3 voters can be compared; run the command \
                     again when the compaction has ended",
                ],
            ),
            (
                "two differ, and one is compacted further",
                &[right, wrong, hash(1, 95)],
                &[Differs, Differs, Unknown],
                &[
                    "the data of etcd member node-m3 is unknown: the hashes of only 1 of 3 voters can be compared; run the command \
                     again when the compaction has ended",
                    "no majority of the voters has the same hash, so it is unknown whose data is right: node-m1, node-m2, node-m3",
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
                    "the data of etcd member node-m1 is unknown: the hashes of only 1 of 3 voters can be compared",
                    "the data of etcd member node-m2 is unknown: it was not asked",
                    "the data of etcd member node-m3 is unknown: it was not asked",
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
        let mut silent = failure("etcd member node-m1", "HashKV: no response within 60 s");
        silent.hint = Some("look at its logs".to_owned());
        failed[0].hash = Err(silent.clone());
        silent.message = "Metrics: more than 4194304 bytes".to_owned();
        let mut unmeasured = observed();
        unmeasured.answer(2).metrics = Err(silent);
        let unread = found(&unmeasured, &failed);
        assert_eq!(unread.hints, ["look at its logs"]);
        assert_eq!(
            unread.failures,
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
    fn a_learner_has_unknown_data_and_no_vote() {
        let mut observed = observed();
        observed.each_list(|list| list.members[2].is_learner = true);
        observed.status(3).is_learner = true;
        // etcd responds with Unavailable: "etcdserver: rpc not supported for learner".
        let mut read = readings(&[hash(1, 90); 3]);
        read[2].hash = Err(failure("etcd", "HashKV: etcd responded with Unavailable"));
        let with_learner = found(&observed, &read);
        let roles: Vec<_> = with_learner.members.iter().map(|member| member.role).collect();
        assert_eq!(
            roles,
            [MemberRole::Leader, MemberRole::Voter, MemberRole::Learner]
        );
        let (key_spaces, failures, warnings) = checked(&observed, &read);
        assert_eq!(
            key_spaces,
            [Agreement::Equal, Agreement::Equal, Agreement::Unknown]
        );
        assert_eq!(failures, Vec::<String>::new());
        assert_eq!(
            warnings,
            ["etcd member node-m3 is a learner, so its data is unknown: a learner computes no hash"]
        );

        // One of two voters is no majority, although the learner has the same hash.
        read[1].hash = Ok(hash(2, 90));
        read[2].hash = Ok(hash(1, 90));
        let (key_spaces, failures, _) = checked(&observed, &read);
        assert_eq!(
            key_spaces,
            [Agreement::Differs, Agreement::Differs, Agreement::Unknown]
        );
        assert_eq!(
            failures,
            [
                "no majority of the voters has the same hash, so it is unknown whose data is right: node-m1, node-m2"
            ]
        );
    }

    #[test]
    fn only_the_hash_of_the_listed_member_counts() {
        let observed = observed();
        let mut read = readings(&[hash(1, 90), hash(1, 90), hash(2, 90)]);
        // Another cluster's members respond on two nodes, and one node has no member.
        read[1].member_id = Some(9);
        read.push(MemberReading {
            name: "node-m4".to_owned(),
            member_id: Some(4),
            ..read[2].clone()
        });
        let (key_spaces, failures, _) = checked(&observed, &read);
        assert_eq!(
            key_spaces,
            [Agreement::Differs, Agreement::Unknown, Agreement::Differs]
        );
        assert_eq!(
            failures,
            [
                "the data of etcd member node-m2 is unknown: another member responds on its node",
                "no majority of the voters has the same hash, so it is unknown whose data is right: node-m1, node-m3",
            ]
        );
    }

    #[test]
    fn a_member_that_lags_behind_keeps_its_status() {
        let mut observed = observed();
        let status = observed.status(3);
        status.raft_applied_index -= 6_000;
        status.db_size = 1_639 << 20;
        let mut read = readings(&[hash(1, 90); 3]);
        let future = "HashKV: etcd responded with OutOfRange: etcdserver: mvcc: required revision is a future revision";
        read[2].hash = Err(failure("etcd member node-m3", future));
        let (_, failures, warnings) = checked(&observed, &read);
        assert_eq!(
            failures,
            [format!(
                "the data of etcd member node-m3 is unknown: it is 6000 raft log entries behind: {future}"
            )]
        );
        assert_eq!(
            warnings,
            [
                "etcd member node-m3: database uses 80 % of its quota: 1639 of 2048 MiB; once it is full, etcd rejects writes"
            ]
        );
        let behind = &found(&observed, &read).members[2];
        assert_eq!(behind.version.as_deref(), Some("3.6.8"));
        assert_eq!(behind.db_size_quota, Some(2_048 << 20));
    }

    #[test]
    fn a_slow_disk_a_full_database_and_other_versions_are_warnings() {
        let mut observed = observed();
        observed.status(3).db_size = 1_639 << 20;
        observed.status(2).version = "3.5.21".to_owned();
        observed.answer(1).metrics = Ok(EtcdMetrics {
            wal_fsync: Some(latency(10.0)),
            backend_commit: Some(latency(24.9)),
            ..EtcdMetrics::default()
        });
        observed.answer(2).metrics = Ok(EtcdMetrics {
            backend_commit: Some(Latency {
                operations: 99,
                ..latency(24.9)
            }),
            ..EtcdMetrics::default()
        });
        let read = readings(&[hash(1, 90); 3]);
        let unexpected = "this is not expected, because no Machine is being replaced";
        let newest = observed.status(1).version.clone();
        let (key_spaces, failures, warnings) = checked(&observed, &read);
        assert_eq!(key_spaces, [Agreement::Equal; 3]);
        assert_eq!(failures, Vec::<String>::new());
        let expected = [
            "etcd member node-m2 has measured no fsyncs of the write-ahead log, so the speed of its disk is unknown"
                .to_owned(),
            "etcd member node-m2 has measured only 99 commits of the database, so the speed of its disk is unknown".to_owned(),
            "etcd member node-m1: the disk is slow: 99 % of the fsyncs of the write-ahead log took up to 10.0 ms, and etcd needs less \
             than 10 ms"
                .to_owned(),
            "etcd member node-m3: database uses 80 % of its quota: 1639 of 2048 MiB; once it is full, etcd rejects writes".to_owned(),
            format!("etcd member node-m2: runs etcd 3.5.21, but other members run other versions: {unexpected}"),
            format!("etcd member node-m1, node-m3: runs etcd {newest}, but other members run other versions: {unexpected}"),
        ];
        assert_eq!(warnings, expected);
        let hints = found(&observed, &read).hints;
        assert_eq!(
            hints,
            [
                "give etcd a faster disk, or a disk of its own, and measure again: kubectl kcp etcd check c1-cp -n d --sample 1m",
                "delete old revisions: kubectl kcp etcd compact c1-cp -n d; then return the space to the file system: kubectl kcp etcd \
                 defrag c1-cp -n d"
            ]
        );
    }

    #[test]
    fn hashes_are_read_at_a_revision_that_every_healthy_voter_has() {
        let mut observed = observed();
        observed.status(2).revision = 99_990;
        let revision = |observed: &Snapshot, numbers: &[usize]| {
            let mut observed = observed.clone();
            let statuses: Vec<_> = numbers
                .iter()
                .map(|number| observed.status(*number).clone())
                .collect();
            let cluster = EtcdCluster::new(&observed).expect("the members are known");
            common_revision(&cluster, &statuses)
        };
        assert_eq!(revision(&observed, &[1, 2, 3]), Some(99_990));
        assert_eq!(revision(&observed, &[1, 3]), Some(100_000));
        assert_eq!(revision(&observed, &[]), None);
        // A member that lags behind or learns does not hold the others back.
        let mut behind = observed.clone();
        behind.status(2).raft_applied_index -= 6_000;
        assert_eq!(revision(&behind, &[1, 2, 3]), Some(100_000));
        assert_eq!(revision(&behind, &[2]), Some(99_990));
        let mut learning = observed.clone();
        learning.each_list(|list| list.members[1].is_learner = true);
        assert_eq!(revision(&learning, &[1, 2, 3]), Some(100_000));
        assert_eq!(revision(&learning, &[2]), None);
    }

    #[test]
    fn hashes_are_comparable_if_no_member_has_just_compacted() {
        for (hashes, expected) in [
            (&[][..], true),
            (&[Some(hash(1, 90)), Some(hash(2, 90))], true),
            (&[Some(hash(1, 90)), Some(hash(1, 91))], false),
            (&[Some(hash(1, 90)), None], false),
            (&[None], false),
        ] {
            assert_eq!(are_comparable(hashes.iter().copied()), expected, "{hashes:?}");
        }
    }
}
