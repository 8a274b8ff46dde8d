//! The metrics of an etcd member that say how fast its disk is, from Prometheus' text format.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

const WAL_FSYNC: &str = "etcd_disk_wal_fsync_duration_seconds";
const BACKEND_COMMIT: &str = "etcd_disk_backend_commit_duration_seconds";
const LEADER_CHANGES: &str = "etcd_server_leader_changes_seen_total";
const SLOW_APPLIES: &str = "etcd_server_slow_apply_total";

/// The numbers that a member has counted since its process started, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EtcdMetrics {
    /// When the other numbers began to count: at the start of the process, or at the first of two readings. Absent if the member
    /// does not report its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How long the disk takes to store an entry of the write-ahead log. Absent if none was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_fsync: Option<Latency>,
    /// How long the disk takes to store a batch of changes to the database. Absent if none was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_commit: Option<Latency>,
    /// How often the member has seen a new leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_changes: Option<u64>,
    /// How many requests, including reads, took the member longer than etcd's warning limit, which is 100 ms by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_applies: Option<u64>,
    /// The database size in bytes at which the member raises the alarm NOSPACE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

/// How long an operation takes, estimated from the buckets of a histogram, as Prometheus' `histogram_quantile` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Latency {
    /// How many operations were measured.
    pub operations: u64,
    /// Half of the operations took at most this many milliseconds.
    #[serde(rename = "p50Milliseconds", serialize_with = "in_milliseconds")]
    #[cfg_attr(any(test, feature = "testing"), schemars(with = "f64"))]
    pub p50: Duration,
    /// 99 % of the operations took at most this many milliseconds.
    #[serde(rename = "p99Milliseconds", serialize_with = "in_milliseconds")]
    #[cfg_attr(any(test, feature = "testing"), schemars(with = "f64"))]
    pub p99: Duration,
}

fn in_milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(milliseconds(*duration))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.div_duration_f64(Duration::from_millis(1))
}

impl EtcdMetrics {
    /// Parses Prometheus' text format. Skips what it does not know. Fails if the text contains neither of the two histograms of
    /// the disk. Every member reports them, even before it has stored anything.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if [WAL_FSYNC, BACKEND_COMMIT]
            .iter()
            .all(|name| buckets(text, name).is_empty())
        {
            return Err("the response has no metrics of etcd's disk");
        }
        Ok(Self {
            since: number(text, "process_start_time_seconds").and_then(timestamp),
            wal_fsync: Latency::new(&buckets(text, WAL_FSYNC)),
            backend_commit: Latency::new(&buckets(text, BACKEND_COMMIT)),
            leader_changes: count(text, LEADER_CHANGES),
            slow_applies: count(text, SLOW_APPLIES),
            quota_bytes: count(text, "etcd_server_quota_backend_bytes").filter(|quota| *quota > 0),
        })
    }

    /// What the member has counted between two readings. The first reading was at `since`. A count that has become smaller
    /// is left out, because the member has started again.
    pub fn between(first: &str, second: &str, since: Timestamp) -> Result<Self, &'static str> {
        Self::parse(first)?;
        let counted = |name: &str| count(second, name)?.checked_sub(count(first, name)?);
        let measured = |name: &str| Latency::new(&buckets_between(first, second, name));
        Ok(Self {
            since: Some(since),
            wal_fsync: measured(WAL_FSYNC),
            backend_commit: measured(BACKEND_COMMIT),
            leader_changes: counted(LEADER_CHANGES),
            slow_applies: counted(SLOW_APPLIES),
            ..Self::parse(second)?
        })
    }
}

impl Latency {
    fn new(buckets: &[(f64, f64)]) -> Option<Self> {
        let quantile = |share| Duration::try_from_secs_f64(quantile(buckets, share)?).ok();
        let (_, operations) = buckets.last()?;
        Some(Self {
            operations: format!("{operations:.0}").parse().ok()?,
            p50: quantile(0.5)?,
            p99: quantile(0.99)?,
        })
    }
}

impl fmt::Display for Latency {
    /// Writes both percentiles, such as `0.8/4.0 ms`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [self.p50, self.p99].map(milliseconds);
        write!(formatter, "{p50:.1}/{p99:.1} ms")
    }
}

/// The samples of a metric without labels, or with the labels between the braces.
fn samples<'t>(text: &'t str, name: &str) -> impl Iterator<Item = (&'t str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}')?,
            None => ("", rest),
        };
        // Another metric's name may begin with this one.
        let value = value.strip_prefix(' ')?;
        let value = value.split(' ').next()?.parse().ok()?;
        Some((labels, value))
    })
}

fn number(text: &str, name: &str) -> Option<f64> {
    samples(text, name).map(|(_, value)| value).next()
}

fn count(text: &str, name: &str) -> Option<u64> {
    let number = number(text, name)?;
    // Prometheus writes integers as floating-point numbers, such as `2.147483648e+09`.
    format!("{number:.0}").parse().ok()
}

fn timestamp(seconds: f64) -> Option<Timestamp> {
    Timestamp::from_second(format!("{seconds:.0}").parse().ok()?).ok()
}

/// The upper limits of a histogram's buckets in seconds, and how many operations took at most that long.
fn buckets(text: &str, name: &str) -> Vec<(f64, f64)> {
    let name = format!("{name}_bucket");
    let buckets = samples(text, &name).filter_map(|(labels, count)| {
        let limit = labels.strip_prefix("le=\"")?.strip_suffix('"')?;
        // Prometheus writes the last limit as `+Inf`.
        Some((limit.parse().ok()?, count))
    });
    let mut buckets: Vec<_> = buckets.collect();
    buckets.sort_by(|(a, _), (b, _)| f64::total_cmp(a, b));
    buckets
}

/// The buckets of the operations between two readings. Empty if the process has started again, and so counts from 0.
fn buckets_between(first: &str, second: &str, name: &str) -> Vec<(f64, f64)> {
    let earlier = buckets(first, name);
    let later = buckets(second, name).into_iter().zip(&earlier);
    let between: Vec<_> = later
        .map(|((limit, count), (_, before))| (limit, count - before))
        .collect();
    if between.iter().any(|(_, count)| *count < 0.0) {
        return Vec::new();
    }
    between
}

/// The duration that this share of the operations did not exceed. `None` without operations. The operations are taken to be
/// spread evenly over each bucket. Of the last bucket, only the lower limit is known.
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let (_, total) = *buckets.last()?;
    if total <= 0.0 {
        return None;
    }
    let rank = share * total;
    let (mut lower, mut below) = (0.0, 0.0);
    for (limit, count) in buckets {
        if *count >= rank {
            let is_finite = limit.is_finite() && *count > below;
            return Some(if is_finite {
                lower + (limit - lower) * (rank - below) / (count - below)
            } else {
                lower
            });
        }
        (lower, below) = (*limit, *count);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{EtcdMetrics, Latency};

    /// As etcd 3.6 writes them, without the buckets in the middle.
    const TEXT: &str = r#"# HELP etcd_disk_backend_commit_duration_seconds The latency distributions of commit called by backend.
# TYPE etcd_disk_backend_commit_duration_seconds histogram
etcd_disk_backend_commit_duration_seconds_bucket{le="0.001"} 0
etcd_disk_backend_commit_duration_seconds_bucket{le="0.002"} 50
etcd_disk_backend_commit_duration_seconds_bucket{le="0.004"} 98
etcd_disk_backend_commit_duration_seconds_bucket{le="0.008"} 100
etcd_disk_backend_commit_duration_seconds_bucket{le="+Inf"} 100
etcd_disk_backend_commit_duration_seconds_sum 0.25
etcd_disk_backend_commit_duration_seconds_count 100
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.002"} 50
etcd_disk_wal_fsync_duration_seconds_bucket{le="8.192"} 90
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 100
etcd_server_leader_changes_seen_total 3
etcd_server_leader_changes_seen_total_more 9
etcd_server_quota_backend_bytes 2.147483648e+09
etcd_server_slow_apply_total 12
process_start_time_seconds 1.76e+09
"#;

    #[test]
    fn the_numbers_of_a_member_are_read() {
        let metrics = EtcdMetrics::parse(TEXT);
        let expected = EtcdMetrics {
            since: Some("2025-10-09T08:53:20Z".parse().expect("a time")),
            // 99 of 100 are in the last bucket, which has no upper limit.
            wal_fsync: Some(Latency {
                operations: 100,
                p50: Duration::from_secs_f64(0.002),
                p99: Duration::from_secs_f64(8.192),
            }),
            backend_commit: Some(Latency {
                operations: 100,
                p50: Duration::from_secs_f64(0.002),
                p99: Duration::from_secs_f64(0.006),
            }),
            leader_changes: Some(3),
            slow_applies: Some(12),
            quota_bytes: Some(2_147_483_648),
        };
        assert_eq!(metrics, Ok(expected));
    }

    #[test]
    fn only_what_happened_between_two_readings_counts() {
        let since = "2026-11-01T08:00:00Z".parse().expect("a time");
        // One more commit of 4 to 8 ms, one more slow apply.
        let later = TEXT
            .replace("le=\"0.008\"} 100", "le=\"0.008\"} 101")
            .replace(
                "commit_duration_seconds_bucket{le=\"+Inf\"} 100",
                "commit_duration_seconds_bucket{le=\"+Inf\"} 101",
            )
            .replace("slow_apply_total 12", "slow_apply_total 13");
        let expected = EtcdMetrics {
            since: Some(since),
            wal_fsync: None,
            backend_commit: Some(Latency {
                operations: 1,
                p50: Duration::from_secs_f64(0.006),
                p99: Duration::from_secs_f64(0.00796),
            }),
            leader_changes: Some(0),
            slow_applies: Some(1),
            quota_bytes: Some(2_147_483_648),
        };
        assert_eq!(EtcdMetrics::between(TEXT, &later, since), Ok(expected));
        let restarted = EtcdMetrics {
            backend_commit: None,
            slow_applies: None,
            ..expected
        };
        assert_eq!(EtcdMetrics::between(&later, TEXT, since), Ok(restarted));
    }

    #[test]
    fn what_is_missing_or_empty_is_unknown() {
        // etcd does not observe anything with --unsafe-no-fsync.
        let unobserved = "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.001\"} 0\n\
             etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"} 0\n";
        for text in [
            unobserved.to_owned(),
            format!("{unobserved}<html>etcd_server_slow_apply_total 1</html>"),
            format!("{unobserved}etcd_server_slow_apply_total many\netcd_server_slow_apply_total{{a"),
            format!("{unobserved}etcd_server_quota_backend_bytes 0\n"),
        ] {
            assert_eq!(EtcdMetrics::parse(&text), Ok(EtcdMetrics::default()), "{text}");
        }
    }

    #[test]
    fn a_text_without_the_metrics_of_a_disk_is_an_error() {
        let since = "2026-11-01T08:00:00Z".parse().expect("a time");
        let no_metrics = Err("the response has no metrics of etcd's disk");
        for text in [
            "",
            "<html>etcd_disk_wal_fsync_duration_seconds_bucket</html>",
            "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"short\"} 1\n",
            "etcd_server_slow_apply_total 1\n",
        ] {
            assert_eq!(EtcdMetrics::parse(text), no_metrics, "{text}");
            assert_eq!(EtcdMetrics::between(TEXT, text, since), no_metrics, "{text}");
            assert_eq!(EtcdMetrics::between(text, TEXT, since), no_metrics, "{text}");
        }
    }
}
