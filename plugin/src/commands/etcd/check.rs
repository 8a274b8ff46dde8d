//! `kubectl kcp etcd check`: checks whether all members have the same data, and whether their disks are fast enough.

mod screen;

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use futures_util::future::join_all;
use jiff::Timestamp;
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::{
    reader::Reader,
    reads::{
        etcd::{MemberConnection, MemberError},
        list_limit,
    },
};
use kcp_control_plane::{
    change::decision::Refusal,
    snapshot::{Failure, Snapshot, etcd::metrics::EtcdMetrics},
    verbs::etcd::{
        check::{EtcdCheck, MemberReading, are_comparable, check, common_revision},
        members::EtcdCluster,
    },
};
use kcp_etcd::KeySpaceHash;
use serde::Serialize;
use tokio::time::sleep;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    commands::etcd::EtcdMembers,
    document::{Document, ObjectName, Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{escape, table::Layout},
    verdict::Verdict,
};

/// The time limit of each call. A member reads its whole database for its hash.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// How many times at most the command asks the members for their hashes. It asks again if members have deleted their history up to
/// different revisions.
const ATTEMPTS: usize = 3;

/// Why a member has no hash although it responds to every attempt.
const COMPACTED: &str =
    "it has deleted its history up to a later revision than the others have stored; run the command again";

/// Check whether all etcd members have the same data, and whether their disks are fast enough.
#[derive(Debug, Args)]
#[command(
    after_help = "Each voter computes a hash of all keys and values up to the newest revision that all healthy voters have stored. \
        For this, it reads its whole database, which takes seconds for each GiB. The latencies are estimates from etcd's \
        histograms. Like the other counts, they cover the time since the member started, or with --sample the time between two \
        readings.

Exits with 1 if the data of a member differs, if the data of a voter is unknown, or if a member responds without metrics. A \
        learner computes no hash, so its data is always unknown. This is only a warning, like a slow disk. With warnings alone, \
        the exit code is 0. The command changes nothing.

Examples:
  kubectl kcp etcd check edge
  kubectl kcp etcd check edge --sample 1m
  kubectl kcp etcd check edge -o json"
)]
pub struct CheckArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// Read the metrics twice, this far apart, such as 1m, and count only what happened between the two readings
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout)]
    pub sample: Option<Duration>,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for reading the control plane and connecting to a member, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

pub async fn run(arguments: &CheckArguments, session: &Session) -> anyhow::Result<Verdict> {
    let terminal = &session.terminal;
    let connection = session.connect_within(arguments.timeout).await?;
    let reader = Reader::discover(&connection).await?;
    let name = arguments
        .name
        .read(&reader, list_limit(arguments.timeout))
        .await?;
    let members = EtcdMembers {
        reader: &reader,
        control_plane: &name,
        timeout: arguments.timeout,
    };
    terminal.spin("reading the control plane");
    let observed = members.observe().await?;
    terminal.spin("asking the etcd members");
    let found = Box::pin(read_and_check(&members, &observed, arguments.sample)).await;
    terminal.stop_spinning();
    let found = match found {
        Ok(found) => found,
        Err(refusal) => {
            let name = escape(&name);
            let why = refusal.why.join("; ");
            let error = anyhow!("cannot check the etcd of kubeadmcontrolplane/{name}: {why}");
            terminal.error(&error, refusal.remedies.first().map(String::as_str));
            return Ok(Verdict::Negative);
        }
    };
    let report = CheckReport {
        observed: &observed,
        found,
        is_sample: arguments.sample.is_some(),
    };
    print(&report, &arguments.output, terminal)?;
    Ok(report.verdict())
}

/// Asks the members, and compares what they report.
async fn read_and_check(
    members: &EtcdMembers<'_>,
    observed: &Snapshot,
    sample: Option<Duration>,
) -> Result<EtcdCheck, Refusal> {
    let cluster = EtcdCluster::new(observed)?;
    let (revision, readings) = read(members, observed, &cluster, sample).await;
    check(observed, revision, &readings, members.reader.connection.now())
}

/// Reads the hash and the metrics of each member. If `sample` is given, the metrics cover only this time. Returns the revision up
/// to which the members hashed.
async fn read(
    members: &EtcdMembers<'_>,
    observed: &Snapshot,
    cluster: &EtcdCluster<'_>,
    sample: Option<Duration>,
) -> (Option<i64>, Vec<MemberReading>) {
    let queried = &cluster.survey.queried;
    let opened = join_all(
        queried
            .iter()
            .map(|member| members.open(observed, member, CALL_LIMIT)),
    );
    let opened: Vec<_> = opened
        .await
        .into_iter()
        .map(|it| it.map_err(member_error))
        .collect();
    let connections: Vec<&MemberConnection> = opened.iter().flatten().collect();
    let (revision, hashes) = read_hashes(cluster, &connections).await;
    let sampled = sample_metrics(&connections, sample, || members.reader.connection.now()).await;
    let mut read = hashes.into_iter().zip(sampled);
    let readings = queried.iter().zip(&opened).filter_map(|(member, opened)| {
        let ((member_id, hash), sampled) = match opened {
            Ok(_) => read.next()?,
            Err(error) => ((None, Err(error.failure().clone().into())), None),
        };
        Some(MemberReading {
            name: member.name.clone(),
            member_id,
            hash: hash.map_err(|error| error.failure().clone()),
            sampled: match sampled {
                Some(Ok(metrics)) => Some(Ok(metrics)),
                Some(Err(error)) => Some(Err(error.failure().clone())),
                None => None,
            },
        })
    });
    (revision, readings.collect())
}

/// The id of the member that responds on a connection, and its hash.
type HashOfMember = (Option<u64>, Result<KeySpaceHash, MemberError>);

/// Reads the hash of each member, and the revision up to which they hashed. Tries again if members have just compacted. A revision
/// that a member has not stored yet is no reason to try again: only a member that lags behind does not have it.
async fn read_hashes(
    cluster: &EtcdCluster<'_>,
    connections: &[&MemberConnection],
) -> (Option<i64>, Vec<HashOfMember>) {
    let mut attempt = 1;
    loop {
        let statuses = join_all(connections.iter().map(|connection| connection.status())).await;
        let revision = common_revision(cluster, statuses.iter().flatten());
        let asked = connections.iter().zip(statuses);
        let hashes = asked.map(async |(connection, status)| {
            let status = status.map_err(|error| (None, error))?;
            let member = Some(status.member_id);
            let Some(revision) = revision else {
                return Err((member, unread("no voter has reported its revision")));
            };
            let hash = connection.hash_key_space(revision).await;
            hash.map(|hash| (member, hash)).map_err(|error| (member, error))
        });
        let hashes = join_all(hashes).await;
        if attempt == ATTEMPTS || are_comparable(hashes.iter().flatten().map(|(_, hash)| *hash)) {
            let hashes = hashes.into_iter().map(|hash| match hash {
                Ok((member, hash)) => (member, hash.ok_or_else(|| unread(COMPACTED))),
                Err((member, error)) => (member, Err(error)),
            });
            return (revision, hashes.collect());
        }
        attempt += 1;
    }
}

/// Reads the metrics of each member twice, with the time `sample` between the two readings.
async fn sample_metrics(
    connections: &[&MemberConnection],
    sample: Option<Duration>,
    now: impl Fn() -> Timestamp,
) -> Vec<Option<Result<EtcdMetrics, MemberError>>> {
    let Some(sample) = sample else {
        return connections.iter().map(|_| None).collect();
    };
    let read = async || join_all(connections.iter().map(|connection| connection.metrics())).await;
    let first = read().await;
    let since = now();
    sleep(sample).await;
    let both = first.into_iter().zip(read().await);
    both.map(|(first, second)| {
        Some(first.and_then(|first| EtcdMetrics::between(&first, &second?, since).map_err(unread)))
    })
    .collect()
}

fn unread(why: &str) -> MemberError {
    MemberError::from(Failure {
        message: why.to_owned(),
        ..Failure::default()
    })
}

fn member_error(error: anyhow::Error) -> MemberError {
    error
        .downcast()
        .unwrap_or_else(|other| unread(&format!("{other:#}")))
}

/// The result of `etcd check`.
struct CheckReport<'r> {
    observed: &'r Snapshot,
    found: EtcdCheck,
    /// Whether the metrics count only the time between two readings.
    is_sample: bool,
}

/// Whether the members of a control plane's etcd have the same data, and how fast their disks are.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct CheckDocument<'r> {
    /// The control plane.
    metadata: ObjectName,
    #[serde(flatten)]
    found: &'r EtcdCheck,
}

impl Document for CheckDocument<'_> {
    const KIND: &'static str = "EtcdCheck";
}

impl CheckReport<'_> {
    fn verdict(&self) -> Verdict {
        if self.found.failures.is_empty() {
            Verdict::Met
        } else {
            Verdict::Negative
        }
    }

    fn as_document(&self) -> CheckDocument<'_> {
        CheckDocument {
            metadata: ObjectName::from(&self.observed.control_plane),
            found: &self.found,
        }
    }
}

impl Report for CheckReport<'_> {
    fn table(&self, layout: Layout) -> String {
        screen::render(&self.found, self.is_sample, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.as_document())
    }

    fn names(&self) -> Vec<String> {
        let name = self.observed.control_plane.name();
        vec![resource_name(&KUBEADM_CONTROL_PLANE, name)]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_control_plane::{
        snapshot::{
            Failure,
            etcd::metrics::{EtcdMetrics, Latency},
        },
        testing::{objects::now, snapshot::observed},
        verbs::etcd::check::{MemberReading, check},
    };
    use kcp_etcd::KeySpaceHash;

    use super::{CheckDocument, CheckReport};
    use crate::{
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
        verdict::Verdict,
    };

    fn reading(number: u32, hash: u32) -> MemberReading {
        let latency = Latency {
            operations: 100,
            p50: Duration::from_micros(810),
            p99: Duration::from_micros(3_970) * number,
        };
        MemberReading {
            name: format!("node-m{number}"),
            member_id: Some(number.into()),
            hash: Ok(KeySpaceHash {
                hash,
                compacted_revision: 98_000,
            }),
            sampled: Some(Ok(EtcdMetrics {
                since: Some("2026-11-01T08:00:00Z".parse().expect("a time")),
                wal_fsync: Some(latency),
                backend_commit: Some(latency),
                leader_changes: Some(2),
                slow_applies: Some(7),
                quota_bytes: Some(2 << 30),
            })),
        }
    }

    #[test]
    fn each_result_has_a_screen_a_document_and_a_verdict() {
        let observed = observed();
        let well = [reading(1, 7), reading(2, 7), reading(3, 7)];
        let mut silent = reading(3, 8);
        let no_response = |call: &str| Failure {
            object: "etcd member node-m3".to_owned(),
            message: format!("{call}: no response within 60 s"),
            hint: Some("look at the member's logs".to_owned()),
            ..Failure::default()
        };
        silent.hash = Err(no_response("HashKV"));
        silent.sampled = Some(Err(no_response("Metrics")));
        let broken = [reading(1, 7), reading(2, 8), silent.clone()];
        let differing = [reading(1, 7), reading(2, 7), reading(3, 8)];
        let mut text = String::new();
        for (readings, verdict) in [
            (&well, Verdict::Met),
            (&differing, Verdict::Negative),
            (&broken, Verdict::Negative),
        ] {
            let report = CheckReport {
                observed: &observed,
                found: check(&observed, Some(100_000), readings, now()).expect("the members are known"),
                is_sample: verdict == Verdict::Met,
            };
            assert_eq!(report.verdict(), verdict);
            schema::conforms(&report.as_document());
            assert_every_format(&report);
            text += &plain(&report.table(Layout::default()));
            text += "---\n";
        }
        insta::assert_snapshot!(text);
        schema::checked_in::<CheckDocument<'_>>("etcdcheck.json");
    }
}
