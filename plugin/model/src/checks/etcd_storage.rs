//! Checks of the databases and versions of the etcd members.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kcp_api::Object as _;
use kcp_rules::topics::etcd::FIRST_SAFE;

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckOutcome, CheckResult, Finding, NoResult, require},
        machine_grace::are_machines_changing,
        membership::{ETCD, member_finding, queried_objects, stacked_survey},
        rollout::is_rolling_out,
        workload::minor_version,
    },
    etcd_upgrade::{brings_etcd_3_6, old_members},
    problem::SAFE_ETCD_HINT,
    snapshot::{
        Snapshot,
        etcd::metrics::{EtcdMetrics, Latency},
    },
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "etcd-space-low",
        "The database of an etcd member is almost full, or the quotas of the members differ.",
        check_etcd_space_low,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "etcd-fragmentation",
        "Most of the database of an etcd member is unused space.",
        check_etcd_fragmentation,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "etcd-disk-slow",
        "The disk of an etcd member is slower than etcd needs.",
        check_etcd_disk_slow,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "etcd-versions-differ",
        "Members run different versions of etcd.",
        check_etcd_versions_differ,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "etcd-upgrade-unsafe",
        "A member of etcd is too old for the upgrade to etcd 3.6, which Kubernetes 1.34 brings.",
        check_etcd_upgrade_unsafe,
        Responsible::Fault(Actor::Person),
    ),
];

/// A disk operation that each member measures, and how long 99 % of these operations may take. Source:
/// <https://etcd.io/docs/v3.6/faq/>, "apply entries took too long" and "failed to send out heartbeat on time".
pub struct DiskOperation {
    pub name: &'static str,
    pub latency: fn(&EtcdMetrics) -> Option<Latency>,
    limit: Duration,
}

pub const DISK: [DiskOperation; 2] = [
    DiskOperation {
        name: "fsyncs of the write-ahead log",
        latency: |metrics| metrics.wal_fsync,
        limit: Duration::from_millis(10),
    },
    DiskOperation {
        name: "commits of the database",
        latency: |metrics| metrics.backend_commit,
        limit: Duration::from_millis(25),
    },
];

/// The minimum number of operations. With fewer operations, a single slow one decides the 99th percentile.
pub const MIN_OPERATIONS: u64 = 100;

/// The check warns if a database uses at least this percentage of its quota, so that there is time to compact
/// the database.
const SPACE_WARNING_PERCENT: u64 = 80;

/// The check fails if a database uses at least this percentage of its quota, as in etcd's alert
/// `etcdDatabaseQuotaLowSpace`.
const SPACE_FAULT_PERCENT: u64 = 95;

/// A database counts as fragmented if less than this percentage of it is in use, and more than [`USED_WARNING_BYTES`],
/// as in etcd's alert `etcdDatabaseHighFragmentationRatio`.
const USED_WARNING_PERCENT: u64 = 50;

/// The number of bytes in use above which a database can count as fragmented. See [`USED_WARNING_PERCENT`].
const USED_WARNING_BYTES: u64 = 100 * MEBIBYTE;

const MEBIBYTE: u64 = 1024 * 1024;

const fn percent(part: u64, whole: u64) -> Option<u64> {
    part.saturating_mul(100).checked_div(whole)
}

const fn mebibytes(bytes: u64) -> u64 {
    bytes / MEBIBYTE
}

pub fn check_etcd_space_low(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let reported = survey
        .statuses()
        .filter_map(|(queried, status)| Some((queried, status, status.db_size_quota?)));
    let reported: Vec<_> = reported.collect();
    if reported.is_empty() {
        return Err(NoResult::unknown(if survey.statuses().next().is_none() {
            "no etcd member has reported its status"
        } else {
            "no etcd member reports its quota"
        }));
    }
    let quotas = || reported.iter().map(|(_, _, quota)| *quota);
    let (smallest, largest) = (quotas().min(), quotas().max());
    let differing = reported
        .iter()
        .filter(|(_, _, quota)| smallest < largest && Some(*quota) == smallest)
        .map(|(queried, _, quota)| {
            let message = format!(
                "the quota is {} MiB, but other members have up to {} MiB: all members reject writes once the member \
                 with the smallest quota is full",
                mebibytes(*quota),
                mebibytes(largest.unwrap_or(*quota))
            );
            let is_changing = is_rolling_out(observed, now) || are_machines_changing(observed, now);
            let outcome = if is_changing { CheckOutcome::Info } else { CheckOutcome::Warn };
            member_finding(queried, outcome, &message).with_hint("set the same quota-backend-bytes for all members in etcd's extraArgs")
        });
    let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
    let full = reported.iter().filter_map(|(queried, status, quota)| {
        let (status, quota) = (*status, *quota);
        let full = percent(status.db_size, quota)?;
        let outcome = match full {
            SPACE_FAULT_PERCENT.. => CheckOutcome::Fail,
            SPACE_WARNING_PERCENT.. => CheckOutcome::Warn,
            _ => return None,
        };
        let message = format!(
            "database uses {full} % of its quota: {} of {} MiB; once it is full, etcd rejects writes",
            mebibytes(status.db_size),
            mebibytes(quota)
        );
        Some(member_finding(queried, outcome, &message).with_hint(format!(
            "delete old revisions: kubectl kcp etcd compact {name} -n {namespace}; then return the space to the file system: \
             kubectl kcp etcd defrag {name} -n {namespace}"
        )))
    });
    Ok(full.chain(differing).collect())
}

pub fn check_etcd_fragmentation(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let findings = survey.statuses().filter_map(|(queried, status)| {
        let used = percent(status.db_size_in_use, status.db_size)?;
        let is_fragmented = used < USED_WARNING_PERCENT && status.db_size_in_use > USED_WARNING_BYTES;
        let message = format!(
            "only {used} % of the database is in use: {} of {} MiB",
            mebibytes(status.db_size_in_use),
            mebibytes(status.db_size)
        );
        is_fragmented.then(|| {
            member_finding(queried, CheckOutcome::Warn, &message).with_hint(format!(
                "return the space to the file system: kubectl kcp etcd defrag {} -n {}",
                observed.control_plane.name(),
                observed.control_plane.namespace()
            ))
        })
    });
    Ok(findings.collect())
}

pub fn check_etcd_disk_slow(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    if survey.responses().all(|(_, response)| response.metrics.is_err()) {
        return Err(NoResult::unknown("no etcd member has reported its metrics"));
    }
    let hint = format!(
        "give etcd a faster disk, or a disk of its own, and measure again: kubectl kcp etcd check {} -n {} --sample 1m",
        observed.control_plane.name(),
        observed.control_plane.namespace()
    );
    let findings = survey
        .responses()
        .flat_map(|(queried, response)| match &response.metrics {
            Ok(metrics) => slow_operations(metrics)
                .map(|message| member_finding(queried, CheckOutcome::Warn, &message).with_hint(hint.clone()))
                .collect(),
            Err(failure) if response.status.is_ok() => {
                let message = format!("the speed of its disk is unknown: {}", failure.message);
                vec![member_finding(queried, CheckOutcome::Info, &message)]
            }
            // `etcd-members-unresponsive` reports a member without a status.
            Err(_) => Vec::new(),
        });
    Ok(findings.collect())
}

/// Says which operations on its disk take a member too long.
fn slow_operations(metrics: &EtcdMetrics) -> impl Iterator<Item = String> {
    // Without fsyncs (--unsafe-no-fsync), etcd does not wait for the disk.
    let is_measured = metrics.wal_fsync.is_some();
    let operations = DISK.iter().filter(move |_| is_measured);
    operations.filter_map(|DiskOperation { name, latency, limit }| {
        let Latency { operations, p99, .. } = latency(metrics)?;
        let since = metrics
            .since
            .map_or_else(String::new, |since| format!(" since {since}"));
        let message = format!(
            "the disk is slow: 99 % of the {name}{since} took up to {:.1} ms, and etcd needs less than {} ms",
            p99.div_duration_f64(Duration::from_millis(1)),
            limit.as_millis()
        );
        (operations >= MIN_OPERATIONS && p99 >= *limit).then_some(message)
    })
}

pub fn check_etcd_versions_differ(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let survey = require(&observed.etcd, ETCD)?;
    let reported: BTreeSet<&str> = survey
        .statuses()
        .map(|(_, status)| status.version.as_str())
        .filter(|version| !version.is_empty())
        .collect();
    if reported.len() < 2 {
        return Ok(Vec::new());
    }
    let minors: BTreeSet<(u64, u64)> = reported
        .iter()
        .filter_map(|version| minor_version(version))
        .collect();
    let is_wide = match (minors.first(), minors.last()) {
        (Some(first), Some(last)) => first.0 != last.0 || last.1.saturating_sub(first.1) > 1,
        _ => false,
    };
    let (outcome, means) = if is_wide {
        (
            CheckOutcome::Fail,
            "etcd allows a difference of at most one minor version",
        )
    } else if is_rolling_out(observed, now) || are_machines_changing(observed, now) {
        (
            CheckOutcome::Info,
            "this is expected while Machines are being replaced",
        )
    } else {
        (
            CheckOutcome::Warn,
            "this is not expected, because no Machine is being replaced",
        )
    };
    let findings = reported.into_iter().map(|version| {
        let members = survey.statuses().filter(|(_, status)| status.version == version);
        let objects = members
            .flat_map(|(queried, _)| queried_objects(queried))
            .collect();
        Finding {
            objects,
            ..Finding::new(
                outcome,
                "",
                format!("runs etcd {version}, but other members run other versions: {means}"),
            )
        }
    });
    Ok(findings.collect())
}

pub fn check_etcd_upgrade_unsafe(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let survey = stacked_survey(observed)?;
    let (outcome, when) = if brings_etcd_3_6(&observed.control_plane.spec) == Some(true) {
        (CheckOutcome::Warn, "the spec brings etcd 3.6, and before that")
    } else {
        (
            CheckOutcome::Info,
            "before an upgrade to Kubernetes 1.34, which brings etcd 3.6,",
        )
    };
    let control_plane = &observed.control_plane;
    let hint = match outcome {
        CheckOutcome::Info => SAFE_ETCD_HINT.to_owned(),
        _ => format!(
            "look for members without a Machine: kubectl kcp status {} -n {}",
            control_plane.name(),
            control_plane.namespace()
        ),
    };
    let findings = old_members(survey).map(|(queried, version)| {
        let message = format!("runs etcd {version}; {when} every member must run {FIRST_SAFE} or later");
        member_finding(queried, outcome, &message).with_hint(hint.clone())
    });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod test_cases {
    use crate::{
        checks::tests::Case,
        snapshot::etcd::metrics::{EtcdMetrics, Latency},
        testing::{
            objects::minutes_ago,
            snapshot::{failure, latency},
        },
    };

    pub(crate) const CASES: &[Case] = &[
        ("etcd-space-low", "eighty_and_ninety_five_percent", |o| {
            for (number, percent) in [(1, 79), (2, 80), (3, 95)] {
                let quota = o.status(number).db_size_quota.expect("a quota");
                o.status(number).db_size = quota.div_ceil(100) * percent;
                o.status(number).db_size_in_use = o.status(number).db_size;
            }
        }),
        ("etcd-space-low", "quotas_differ", |o| {
            // Each member is compared with its own quota: 80 % of a smaller quota.
            o.status(2).db_size_quota = Some(75 * 1024 * 1024);
        }),
        ("etcd-space-low", "quotas_differ_during_a_rollout", |o| {
            o.status(2).db_size_quota = Some(1024 * 1024 * 1024);
            o.machine(2).spec.version = Some("v1.33.0".to_owned());
        }),
        ("etcd-space-low", "no_quota_told", |o| {
            for number in 1..=3 {
                o.status(number).db_size_quota = None;
            }
        }),
        ("etcd-fragmentation", "less_than_half", |o| {
            let mebibyte = 1024 * 1024;
            o.status(2).db_size = 300 * mebibyte;
            o.status(2).db_size_in_use = 101 * mebibyte;
            o.status(3).db_size = 300 * mebibyte;
            o.status(3).db_size_in_use = 100 * mebibyte;
        }),
        ("etcd-disk-slow", "fsyncs_and_commits", |o| {
            let metrics = |fsync, commit| EtcdMetrics {
                wal_fsync: Some(latency(fsync)),
                backend_commit: Some(latency(commit)),
                ..EtcdMetrics::default()
            };
            o.answer(1).metrics = Ok(EtcdMetrics {
                since: Some(minutes_ago(2_880)),
                ..metrics(9.9, 25.04)
            });
            o.answer(2).metrics = Ok(metrics(10.0, 24.9));
            o.answer(3).metrics = Err(failure("etcd member node-m3", "Metrics: no response within 3 s"));
        }),
        ("etcd-disk-slow", "neither_status_nor_metrics", |o| {
            o.answer(3).status = Err(failure("etcd member node-m3", "Status: no response within 3 s"));
            o.answer(3).metrics = Err(failure("etcd member node-m3", "Metrics: no response within 3 s"));
        }),
        ("etcd-disk-slow", "too_few_operations", |o| {
            o.answer(1).metrics = Ok(EtcdMetrics {
                wal_fsync: Some(Latency {
                    operations: 99,
                    ..latency(90.0)
                }),
                ..EtcdMetrics::default()
            });
        }),
        ("etcd-disk-slow", "no_metrics", |o| {
            for number in 1..=3 {
                o.answer(number).metrics = Err(failure("etcd", "Metrics: no response within 3 s"));
            }
        }),
        ("etcd-disk-slow", "nothing_measured", |o| {
            for number in 1..=3 {
                o.answer(number).metrics = Ok(EtcdMetrics {
                    backend_commit: Some(latency(90.0)),
                    ..EtcdMetrics::default()
                });
            }
        }),
        ("etcd-versions-differ", "differ", |o| {
            o.status(2).version = "3.5.21".to_owned();
        }),
        ("etcd-versions-differ", "far_apart", |o| {
            o.status(2).version = "3.4.1".to_owned();
        }),
        ("etcd-versions-differ", "during_a_rollout", |o| {
            o.status(2).version = "3.5.21".to_owned();
            o.machine(2).spec.version = Some("v1.33.0".to_owned());
        }),
        ("etcd-upgrade-unsafe", "before_the_upgrade", |o| {
            o.control_plane.spec.version = Some("v1.33.5".to_owned());
            for (number, version) in [(1, "3.5.25"), (2, "3.5.26"), (3, "3.5.25")] {
                o.status(number).version = version.to_owned();
            }
        }),
        ("etcd-upgrade-unsafe", "during_the_upgrade", |o| {
            o.status(2).version = "3.5.25".to_owned();
        }),
    ];
}
