//! The metrics of one control plane, as a pure function of what `status` and `why` know about it.
//!
//! All are gauges, because the counters of an etcd member begin again when the member starts. A fact that is unknown has no sample.

use jiff::Timestamp;
use kcp_api::snapshot_record::SnapshotRecord;
use kcp_control_plane::{
    certificates::{Certificate, Validity},
    checks::finding::CheckOutcome,
    inspection::{Health, Inspection, inspect},
    quorum::Votes,
    snapshot::{
        Reading, Snapshot,
        etcd::{MemberResponse, QueriedMember},
    },
    staleness::last_progress,
    why::{Explanation, WhyState, explain},
};
use serde::Serialize;
use serde_json::Value;

/// A control plane as it was read and judged.
pub(super) struct Judged<'o> {
    observed: &'o Snapshot,
    inspection: Inspection,
    explanation: Explanation,
    now: Timestamp,
}

/// A metric of control planes or of pools. `S` is the function that reads its samples.
pub(super) struct Metric<S> {
    pub(super) name: &'static str,
    /// What it measures, without a period. Every metric also has the labels `namespace`, and `control_plane` or `pool`.
    pub(super) help: &'static str,
    pub(super) samples: S,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// The labels of the sample besides those of the control plane.
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: f64,
}

type ControlPlaneSamples = fn(&Judged<'_>) -> Vec<Sample>;

/// The metrics of each control plane, in the order of their output.
pub(super) const METRICS: &[Metric<ControlPlaneSamples>] = &[
    Metric {
        name: SOURCE_READ,
        help: "1 if the exporter could read the source, 0 if not. Sources: management (the control plane object), workload (the workload \
               cluster), etcd (at least one member responds). Without management, the control plane has no other metric",
        samples: |judged| judged.sources(),
    },
    Metric {
        name: "kcp_control_plane_read_timestamp_seconds",
        help: "When the control plane was last read, in seconds since 1970",
        samples: |judged| time(Some(judged.now)),
    },
    Metric {
        name: "kcp_control_plane_verdict",
        help: "1 for the verdict of status (Healthy, Degraded, Blocked or Unknown), 0 for the others",
        samples: |judged| {
            let verdicts = [
                Health::Healthy,
                Health::Degraded,
                Health::Blocked,
                Health::Unknown,
            ];
            let sample = |verdict: Health| {
                let is_it = judged.inspection.health == verdict;
                Sample::new([("verdict", verdict.as_str())], u8::from(is_it))
            };
            verdicts.map(sample).into()
        },
    },
    Metric {
        name: "kcp_control_plane_problems",
        help: "Findings of each check of status with this outcome: warn, unknown or fail",
        samples: |judged| judged.problems(),
    },
    Metric {
        name: "kcp_control_plane_next_actor_info",
        help: "Always 1; the labels are the state of why (nothingToDo, working, personNeeded or unknown), who acts next, and the \
               check that found the cause",
        samples: |judged| {
            let Explanation {
                state, actor, cause, ..
            } = &judged.explanation;
            let (state, actor) = (word(state), actor.as_ref().map(word).unwrap_or_default());
            let check = cause.as_ref().map_or("", |cause| cause.check);
            let labels = [("state", state.as_str()), ("actor", &actor), ("check", check)];
            vec![Sample::new(labels, 1)]
        },
    },
    Metric {
        name: "kcp_control_plane_last_progress_timestamp_seconds",
        help: "When a Machine was last created, was deleted or became ready, or a change began or ended, in seconds since 1970",
        samples: |judged| {
            let are_all_read = judged.observed.failed_reads.is_empty();
            time(last_progress(judged.observed, judged.now).filter(|_| are_all_read))
        },
    },
    Metric {
        name: "kcp_control_plane_topology_pending",
        help: "1 if the topology of the Cluster has a value that the control plane does not have yet, 0 if not",
        samples: |judged| {
            let observed = judged.observed;
            let version = observed.control_plane.spec.version.as_ref();
            let pending = observed.topology().map(|topology| {
                let is_pending = topology
                    .version
                    .as_ref()
                    .is_some_and(|wanted| Some(wanted) != version)
                    || !observed.pending_topology_values().is_empty();
                Sample::new([], u8::from(is_pending))
            });
            pending.into_iter().collect()
        },
    },
    Metric {
        name: "kcp_control_plane_machines_desired",
        help: "Machines that the control plane should have",
        samples: |judged| count(judged.observed.control_plane.desired_replicas()),
    },
    Metric {
        name: "kcp_control_plane_machines_ready",
        help: "Machines that the controller reports as ready",
        samples: |judged| count(judged.observed.control_plane.status.ready_replicas),
    },
    Metric {
        name: "kcp_control_plane_machines_up_to_date",
        help: "Machines that the controller reports as up to date",
        samples: |judged| count(judged.observed.control_plane.status.up_to_date_replicas),
    },
    Metric {
        name: "kcp_control_plane_certificate_expiry_timestamp_seconds",
        help: "Expiry of the certificate in the Secret with this suffix (ca, etcd, proxy, kubeconfig or apiserver-etcd-client), or \
               earliest expiry on any Machine (machine), in seconds since 1970",
        samples: |judged| judged.certificates(),
    },
    Metric {
        name: "kcp_etcd_voters",
        help: "Voting members of etcd",
        samples: |judged| judged.votes(|votes| signed(votes.voters)),
    },
    Metric {
        name: "kcp_etcd_voters_healthy",
        help: "Healthy voting members of etcd",
        samples: |judged| judged.votes(|votes| signed(votes.voters) - signed(votes.unhealthy)),
    },
    Metric {
        name: "kcp_etcd_quorum_margin",
        help: "How many more voting members may fail before etcd loses its quorum; negative if etcd has no quorum; absent if no \
               member responds",
        samples: |judged| {
            judged.votes(|votes| signed(votes.voters) - signed(votes.unhealthy) - signed(votes.quorum()))
        },
    },
    Metric {
        name: "kcp_etcd_leader_changes",
        help: "Number of leader changes that the member has seen since it started",
        samples: |judged| {
            judged.members(|response| response.metrics.as_ref().ok()?.leader_changes.map(number))
        },
    },
    Metric {
        name: "kcp_etcd_wal_fsync_p99_seconds",
        help: "The 99th percentile of the duration of writes to the member's write-ahead log since the member started",
        samples: |judged| {
            judged.members(|response| {
                let fsync = response.metrics.as_ref().ok()?.wal_fsync?;
                Some(fsync.p99.as_secs_f64())
            })
        },
    },
    Metric {
        name: "kcp_etcd_database_size_bytes",
        help: "Size of the member's database",
        samples: |judged| judged.members(|response| Some(number(response.status.as_ref().ok()?.db_size))),
    },
    Metric {
        name: "kcp_etcd_database_quota_bytes",
        help: "Size of the database at which the member raises the alarm NOSPACE",
        samples: |judged| judged.members(|response| response.status.as_ref().ok()?.db_size_quota.map(number)),
    },
    Metric {
        name: "kcp_etcd_snapshot_timestamp_seconds",
        help: "Completion time of the last snapshot of etcd that the control plane records, in seconds since 1970",
        samples: |judged| {
            let record = SnapshotRecord::from_control_plane(&judged.observed.control_plane, judged.now);
            time(record.map(|record| record.completed))
        },
    },
];

/// The only metric of a control plane that could not be read.
const SOURCE_READ: &str = "kcp_control_plane_source_read";

/// The samples of one control plane or pool, by the index of their metric in the list of its kind.
pub(super) type Samples = Vec<(usize, Sample)>;

pub(super) fn samples<S>(metrics: &[Metric<S>], samples: impl Fn(&Metric<S>) -> Vec<Sample>) -> Samples {
    let metrics = metrics.iter().enumerate();
    metrics
        .flat_map(|(index, metric)| samples(metric).into_iter().map(move |sample| (index, sample)))
        .collect()
}

/// The samples of a control plane that could not be read in the management cluster.
pub(super) fn unread() -> Samples {
    only(METRICS, SOURCE_READ, Sample::new([("source", MANAGEMENT)], 0))
}

/// The only sample of an object, and the index of its metric.
pub(super) fn only<S>(metrics: &[Metric<S>], name: &str, sample: Sample) -> Samples {
    let index = metrics.iter().position(|metric| metric.name == name);
    index.map(|index| (index, sample)).into_iter().collect()
}

const MANAGEMENT: &str = "management";

impl<'o> Judged<'o> {
    pub(super) fn new(observed: &'o Snapshot, now: Timestamp) -> Self {
        let inspection = inspect(observed, now);
        Self {
            explanation: explain(observed, &inspection, now),
            inspection,
            observed,
            now,
        }
    }

    /// Whether the control plane is healthy, and no change is in progress or pending.
    pub(super) fn is_settled(&self) -> bool {
        self.inspection.health == Health::Healthy && self.explanation.state == WhyState::NothingToDo
    }

    pub(super) fn samples(&self) -> Samples {
        let itself = self.observed.object_name();
        let mut failed = self.observed.failed_reads.iter();
        if failed.any(|failure| failure.object == itself) {
            return unread();
        }
        samples(METRICS, |metric| (metric.samples)(self))
    }

    fn sources(&self) -> Vec<Sample> {
        let sources = [
            (MANAGEMENT, Some(true)),
            ("workload", is_read(&self.observed.workload)),
            (
                "etcd",
                is_read(&self.observed.etcd).map(|is_read| is_read && self.responds()),
            ),
        ];
        let known = sources
            .into_iter()
            .filter_map(|(source, read)| Some((source, read?)));
        known
            .map(|(source, read)| Sample::new([("source", source)], u8::from(read)))
            .collect()
    }

    /// Whether a member of etcd has responded.
    fn responds(&self) -> bool {
        let survey = self.observed.etcd.value();
        survey.is_some_and(|survey| survey.queried.iter().any(|member| member.response.is_ok()))
    }

    /// One sample for each check and outcome, with the number of findings.
    pub(super) fn problems(&self) -> Vec<Sample> {
        let outcomes = [CheckOutcome::Fail, CheckOutcome::Unknown, CheckOutcome::Warn];
        let checks = self.inspection.checks.iter();
        let counts = checks.flat_map(|checked| {
            outcomes.map(|outcome| {
                let findings = checked.findings.iter();
                let count = findings.filter(|finding| finding.outcome == outcome).count();
                (checked.id, outcome, count)
            })
        });
        counts
            .filter(|(.., count)| *count > 0)
            .map(|(check, outcome, count)| {
                let labels = [("check", check), ("outcome", outcome.as_str())];
                Sample::new(labels, signed(count))
            })
            .collect()
    }

    /// The first expiry for each purpose.
    fn certificates(&self) -> Vec<Sample> {
        let control_plane = &self.observed.control_plane;
        let machines = self.observed.machines.iter();
        let of_machines: Vec<Certificate> = machines
            .map(|machine| Certificate::of_machine(control_plane, machine))
            .collect();
        let secrets = self.observed.certificates.value().into_iter().flatten();
        let mut first: Vec<(&str, Timestamp)> = Vec::new();
        for certificate in secrets.chain(&of_machines) {
            let Validity::Certificate { expires, .. } = certificate.validity else {
                continue;
            };
            let whose = certificate.purpose.secret_suffix().unwrap_or("machine");
            match first.iter_mut().find(|(known, _)| *known == whose) {
                Some((_, earliest)) => *earliest = expires.min(*earliest),
                None => first.push((whose, expires)),
            }
        }
        let sample = |(whose, expires)| Sample::new([("certificate", whose)], seconds(expires));
        first.into_iter().map(sample).collect()
    }

    fn votes(&self, value: impl FnOnce(Votes) -> i32) -> Vec<Sample> {
        let votes = self.inspection.votes;
        votes
            .map(|votes| Sample::new([], value(votes)))
            .into_iter()
            .collect()
    }

    fn members(&self, value: impl Fn(&MemberResponse) -> Option<f64>) -> Vec<Sample> {
        let members = self.observed.etcd.value();
        let members = members.into_iter().flat_map(|survey| &survey.queried);
        let sample = |member: &QueriedMember| {
            let value = value(member.response.as_ref().ok()?)?;
            Some(Sample::new([("member", &*member.name)], value))
        };
        members.filter_map(sample).collect()
    }
}

/// Whether a source was read. `None` if there is nothing to read yet.
const fn is_read<T>(reading: &Reading<T>) -> Option<bool> {
    match reading {
        Reading::Read(_) => Some(true),
        Reading::Failed(_) | Reading::OutOfReach(_) => Some(false),
        Reading::Excluded { .. } | Reading::NotYet => None,
    }
}

impl Sample {
    /// The labels and the value, as `label=value label=value number`.
    #[cfg(test)]
    pub(super) fn text(&self) -> String {
        let labels = self
            .labels
            .iter()
            .map(|(label, value)| format!("{label}={value} "));
        format!("{}{}", labels.collect::<String>(), self.value)
    }

    pub(super) fn new<'l>(
        labels: impl IntoIterator<Item = (&'static str, &'l str)>,
        value: impl Into<f64>,
    ) -> Self {
        let labels = labels.into_iter();
        Self {
            labels: labels.map(|(label, value)| (label, value.to_owned())).collect(),
            value: value.into(),
        }
    }
}

pub(super) fn time(time: Option<Timestamp>) -> Vec<Sample> {
    time.map(|time| Sample::new([], seconds(time)))
        .into_iter()
        .collect()
}

pub(super) fn seconds(time: Timestamp) -> f64 {
    number(u64::try_from(time.as_second()).unwrap_or_default())
}

fn count(value: i64) -> Vec<Sample> {
    vec![Sample::new([], i32::try_from(value).unwrap_or(i32::MAX))]
}

pub(super) fn signed(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A number as Prometheus stores it.
#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus stores floating-point numbers; they are exact up to 8 PiB"
)]
const fn number(value: u64) -> f64 {
    value as f64
}

/// The word for a value in the documents of `why`.
fn word(value: &impl Serialize) -> String {
    let word = serde_json::to_value(value).ok();
    let word = word.as_ref().and_then(Value::as_str);
    word.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

    use kcp_control_plane::{
        checks,
        snapshot::Failure,
        testing::{
            objects::now,
            page::{assert_generated, markdown},
        },
    };

    use super::{Judged, METRICS, unread};
    use crate::commands::{
        exporter::{pools::POOL_METRICS, published::OWN},
        status::screen::example::{Example, healthy, member_dead, topology_upgrade, unreadable},
    };

    fn samples(example: &Example, name: &str) -> Vec<String> {
        let samples = Judged::new(&example.observed, now()).samples().into_iter();
        let found = samples.filter(|(index, _)| METRICS[*index].name == name);
        found.map(|(_, sample)| sample.text()).collect()
    }

    #[test]
    fn a_dead_member_leaves_no_margin_and_has_no_numbers() {
        let dead = member_dead();
        for (name, of_healthy, of_dead) in [
            ("kcp_etcd_voters", "3", "3"),
            ("kcp_etcd_voters_healthy", "3", "2"),
            ("kcp_etcd_quorum_margin", "1", "0"),
        ] {
            assert_eq!(samples(&healthy(), name), [of_healthy], "{name}");
            assert_eq!(samples(&dead, name), [of_dead], "{name}");
        }
        let sizes = |example: &Example| samples(example, "kcp_etcd_database_size_bytes").len();
        assert_eq!((sizes(&healthy()), sizes(&dead)), (3, 2));
        assert_eq!(
            samples(&healthy(), "kcp_control_plane_problems"),
            Vec::<String>::new()
        );
        assert!(
            samples(&dead, "kcp_control_plane_problems")
                .contains(&"check=etcd-voters-unhealthy outcome=fail 1".to_owned())
        );
        assert!(Judged::new(&healthy().observed, now()).is_settled());
        assert!(!Judged::new(&dead.observed, now()).is_settled());
    }

    #[test]
    fn what_could_not_be_read_has_no_sample() {
        let unreadable = unreadable();
        assert_eq!(
            samples(&unreadable, "kcp_control_plane_source_read"),
            ["source=management 1", "source=workload 0", "source=etcd 0"]
        );
        for metric in METRICS {
            let count = samples(&unreadable, metric.name).len();
            assert!(
                count == 0 || !metric.name.starts_with("kcp_etcd"),
                "{}",
                metric.name
            );
        }
        let lost = healthy().after(|observed| {
            observed.failed_reads.push(Failure {
                object: "KubeadmControlPlane/c1-cp".to_owned(),
                ..Failure::default()
            });
        });
        assert_eq!(Judged::new(&lost.observed, now()).samples(), unread());
    }

    #[test]
    fn only_a_topology_can_be_pending() {
        let pending = |example: &Example| samples(example, "kcp_control_plane_topology_pending");
        assert_eq!(pending(&healthy()), Vec::<String>::new());
        assert_eq!(pending(&topology_upgrade()), ["1"]);
    }

    fn workspace(file: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn the_reference_lists_every_metric() {
        let mut text = "\n| metric | meaning |\n|---|---|\n".to_owned();
        let metrics = METRICS.iter().map(|metric| (metric.name, metric.help));
        let of_pools = POOL_METRICS.iter().map(|metric| (metric.name, metric.help));
        for (name, help) in OWN.into_iter().chain(metrics).chain(of_pools) {
            let _ = writeln!(text, "| `{name}` | {} |", markdown(help));
        }
        assert_generated("reference/metrics.md", &text);
    }

    #[test]
    fn every_alert_asks_for_metrics_that_exist_and_has_a_page() {
        let rules = workspace("manifests/exporter/prometheusrule.yaml");
        let guide = workspace("docs/src/guides/exporter.md");
        let known: BTreeSet<&str> = METRICS
            .iter()
            .map(|metric| metric.name)
            .chain(POOL_METRICS.iter().map(|metric| metric.name))
            .chain(OWN.map(|(name, _)| name))
            .collect();
        let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("kcp_")).collect();
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(named.len() > 8 && unknown.is_empty(), "{unknown:?}");
        let values = |key: &str| -> Vec<String> {
            let lines = rules.lines().filter_map(|line| line.trim().strip_prefix(key));
            lines
                .map(|value| value.trim_matches([' ', '\'']).to_owned())
                .collect()
        };
        let (alerts, pages) = (values("- alert:"), values("runbook_url:"));
        assert_eq!(alerts.len(), pages.len());
        for alert in &alerts {
            assert!(guide.contains(&format!("| `{alert}` |")), "{alert}");
        }
        for page in &pages {
            let page = page.strip_prefix("https://kubectl-kcp.dev/").expect(page);
            let (file, anchor) = page.split_once(".html#").expect(page);
            assert!(!workspace(&format!("docs/src/{file}.md")).is_empty());
            let is_known = anchor.contains("{{")
                || ["verdicts", "alerts"].contains(&anchor)
                || checks::find(anchor).is_some();
            assert!(is_known, "{page}");
        }
    }
}
