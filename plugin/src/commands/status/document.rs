//! Describes the state of control planes as JSON (`kubectl-kcp.dev/v1alpha1`). `plugin/schema` contains the schemas.

mod topology;

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};
use kcp_etcd::{Alarm, Member};
use serde::Serialize;
use topology::TopologyStatus;

use crate::{
    commands::plan::document::{Described, EtcdVotes},
    document::{Document, ObjectName, Versioned},
    fleet::UnreadContext,
};
use kcp_control_plane::{
    checks::{
        Checked,
        finding::{CheckOutcome, Finding},
    },
    inspection::{Basis, Health, Inspection, Preflight},
    plan::rollout_reason::{Gap, Reason},
    snapshot::{
        EtcdSurvey, Failure, Reading, Snapshot,
        etcd::{Alarms, QueriedMember, alarm_name, hexadecimal, metrics::EtcdMetrics},
    },
};

/// The status of several control planes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatusList {
    items: Vec<Versioned<ControlPlaneStatus>>,
    /// The contexts whose control planes could not be listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread_contexts: Vec<UnreadContext>,
}

impl Document for ControlPlaneStatusList {
    const KIND: &'static str = "ControlPlaneStatusList";
}

/// The status of a control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    /// The kubeconfig context, if the list covers several contexts.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    metadata: ObjectName,
    /// The name of the control plane's Cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// The managed topology of the Cluster. Absent if it has none, or if the Cluster was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    topology: Option<TopologyStatus>,
    desired: Desired,
    #[serde(rename = "observed")]
    reported: Reported,
    machines: Vec<MachineStatus>,
    conditions: Vec<Condition>,
    sources: Sources,
    /// What was read from etcd; null if etcd was not read.
    etcd: Option<EtcdStatus>,
    /// The votes of etcd's members; null if etcd is external or its members are unknown.
    votes: Option<EtcdVotes>,
    checks: Vec<CheckStatus>,
    preflight: Preflight,
    /// Which release of Cluster API `preflight` follows, if the controller may be of another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    version_note: Option<String>,
    verdict: Health,
    basis: Basis,
    /// The findings of all checks, most severe first.
    findings: Vec<CheckFinding>,
}

impl Document for ControlPlaneStatus {
    const KIND: &'static str = "ControlPlaneStatus";
}

/// The desired state, from the control plane's spec.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Desired {
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_after: Option<Timestamp>,
}

/// The state that the controller reports in the control plane's status.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Reported {
    replicas: i64,
    ready_replicas: i64,
    available_replicas: i64,
    up_to_date_replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    initialized: bool,
    paused: bool,
    /// Whether the controller has observed the current spec of the control plane.
    current: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MachineStatus {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    /// Whether the Machine is ready; null if no controller has reported it.
    ready: Option<bool>,
    /// Whether the Machine matches the control plane's spec; null if this is unknown.
    up_to_date: Option<bool>,
    /// Why the Machine is outdated, if it is.
    outdated_because: Vec<Described<Reason>>,
    /// The facts that could not be read, so that it is unknown whether the Machine is outdated. Such a
    /// Machine counts as up to date.
    gaps: Vec<Described<Gap>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificates_expire: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Timestamp>,
    conditions: Vec<Condition>,
}

/// The results of reading the workload cluster and etcd.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Sources {
    workload: Source,
    etcd: Source,
}

/// The result of reading a source of facts about the control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "state")]
enum Source {
    /// The source was read, completely or in part.
    Read,
    /// A flag excluded the source.
    Excluded { flag: &'static str },
    /// The source was not read, because the control plane is not initialized yet.
    NotYet,
    /// The source cannot be reached from this machine. This does not affect the verdict.
    OutOfReach { failure: FailureStatus },
    /// The source could not be read.
    Failed { failure: FailureStatus },
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FailureStatus {
    /// The object or endpoint that could not be read.
    object: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct EtcdStatus {
    /// Whether etcd runs on the control plane's Machines.
    stacked: bool,
    /// Whether the command used a client certificate that it had signed with the key of etcd's CA.
    used_ca_key: bool,
    members: Vec<MemberStatus>,
    alarms: AlarmsStatus,
}

/// An etcd member to which requests were sent.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MemberStatus {
    /// The name of the member's node, or the endpoint of an external etcd.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// What the member reports about itself; null if it did not respond.
    status: Option<ReportedStatus>,
    /// Which members this member lists; null if it did not respond.
    members: Option<Vec<KnownMember>>,
    /// Whether the member's certificate is for the member's name; null if the member did not respond. The certificate
    /// chain is always verified.
    named_in_certificate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_expires: Option<Timestamp>,
    /// What the member has counted since it started; absent if it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<EtcdMetrics>,
    /// The requests to the member that failed.
    failures: Vec<FailureStatus>,
}

/// What an etcd member reports about itself. Ids are hexadecimal, as in `etcdctl`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ReportedStatus {
    cluster_id: String,
    member_id: String,
    version: String,
    /// The size of the member's database in bytes.
    db_size: u64,
    /// The part of the database that is in use, in bytes.
    db_size_in_use: u64,
    /// The maximum size of the database in bytes; null before etcd 3.6.
    db_size_quota: Option<u64>,
    /// The id of the member that this member follows as leader; null if it has no leader.
    leader: Option<String>,
    raft_index: u64,
    raft_term: u64,
    raft_applied_index: u64,
    learner: bool,
    errors: Vec<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KnownMember {
    id: String,
    /// The name of the etcd member; empty until the member has started.
    name: String,
    learner: bool,
}

/// The alarms of etcd, and who listed them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "source")]
enum AlarmsStatus {
    /// etcd has listed the alarms.
    Listed { alarms: Vec<AlarmStatus> },
    /// etcd has no leader, so the alarms come from each member's status.
    FromStatus,
    /// etcd has a leader, but its alarms could not be listed.
    Failed { failure: FailureStatus },
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct AlarmStatus {
    member_id: String,
    /// The type of the alarm, such as `NOSPACE` or `CORRUPT`.
    kind: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CheckStatus {
    id: &'static str,
    outcome: CheckOutcome,
    /// Why the check has no result, or why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    findings: Vec<Finding>,
}

/// A problem that a check found, with the check.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::commands) struct CheckFinding {
    /// The id of the check.
    id: &'static str,
    severity: CheckOutcome,
    /// The objects that have the problem, as `Kind/name`, separated by commas.
    object: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl ControlPlaneStatusList {
    /// Creates the JSON document of several control planes. Each control plane comes with its context, if the list
    /// covers several contexts.
    pub fn new<'i>(
        inspected: impl IntoIterator<Item = (Option<&'i str>, &'i Snapshot, &'i Inspection)>,
        unread_contexts: &[UnreadContext],
    ) -> Self {
        let items = inspected.into_iter();
        Self {
            items: items
                .map(|(context, observed, inspection)| {
                    Versioned(ControlPlaneStatus {
                        context: context.map(str::to_owned),
                        ..ControlPlaneStatus::new(observed, inspection)
                    })
                })
                .collect(),
            unread_contexts: unread_contexts.to_vec(),
        }
    }
}

impl ControlPlaneStatus {
    /// Creates the JSON document of one control plane.
    pub fn new(observed: &Snapshot, inspection: &Inspection) -> Self {
        let Snapshot {
            control_plane,
            machines,
            ..
        } = observed;
        let findings = inspection.findings().into_iter();
        Self {
            context: None,
            metadata: control_plane.into(),
            cluster: control_plane.cluster().map(str::to_owned),
            topology: TopologyStatus::new(observed),
            desired: Desired {
                replicas: control_plane.spec.replicas,
                version: control_plane.spec.version.clone(),
                rollout_after: control_plane.spec.rollout_after,
            },
            reported: Reported {
                replicas: control_plane.status.replicas,
                ready_replicas: control_plane.status.ready_replicas,
                available_replicas: control_plane.status.available_replicas,
                up_to_date_replicas: control_plane.status.up_to_date_replicas,
                version: control_plane.status.version.clone(),
                initialized: control_plane.status.initialized,
                paused: observed.is_paused(),
                current: control_plane.is_observed(),
            },
            machines: machines
                .iter()
                .map(|machine| MachineStatus::new(machine, inspection))
                .collect(),
            conditions: control_plane.status.conditions.clone(),
            sources: Sources {
                workload: Source::new(&observed.workload),
                etcd: Source::new(&observed.etcd),
            },
            etcd: observed.etcd.value().map(EtcdStatus::new),
            votes: inspection.votes.map(EtcdVotes::new),
            checks: inspection.checks.iter().map(CheckStatus::new).collect(),
            preflight: inspection.preflight.clone(),
            version_note: observed.version_note(),
            verdict: inspection.health,
            basis: inspection.basis,
            findings: findings
                .map(|(checked, finding)| CheckFinding::new(checked, finding))
                .collect(),
        }
    }
}

impl MachineStatus {
    fn new(machine: &Machine, inspection: &Inspection) -> Self {
        let mut verdicts = inspection.verdicts.iter();
        let verdict = verdicts.find(|verdict| verdict.machine == machine.name());
        let reasons = verdict.into_iter().flat_map(|verdict| &verdict.reasons);
        let gaps = verdict.into_iter().flat_map(|verdict| &verdict.gaps);
        Self {
            name: machine.name().to_owned(),
            node: machine.status.node_name.clone(),
            version: machine.spec.version.clone(),
            failure_domain: machine.spec.failure_domain.clone(),
            phase: machine.status.phase.clone(),
            ready: machine.ready(),
            up_to_date: inspection.is_up_to_date(machine),
            outdated_because: reasons
                .map(|reason| Described::new(reason.clone(), reason.message(), None))
                .collect(),
            gaps: gaps
                .map(|gap| Described::new(gap.clone(), gap.message().to_owned(), None))
                .collect(),
            certificates_expire: machine.status.certificates_expiry_date,
            creation_timestamp: machine.creation_timestamp(),
            deletion_timestamp: machine.deletion_timestamp(),
            conditions: machine.status.conditions.clone(),
        }
    }
}

impl Source {
    fn new<T>(reading: &Reading<T>) -> Self {
        match reading {
            Reading::Read(_) => Self::Read,
            Reading::Excluded { flag } => Self::Excluded { flag },
            Reading::NotYet => Self::NotYet,
            Reading::OutOfReach(failure) => Self::OutOfReach {
                failure: FailureStatus::new(failure),
            },
            Reading::Failed(failure) => Self::Failed {
                failure: FailureStatus::new(failure),
            },
        }
    }
}

impl FailureStatus {
    fn new(failure: &Failure) -> Self {
        Self {
            object: failure.object.clone(),
            message: failure.message.clone(),
            hint: failure.hint.clone(),
        }
    }
}

impl EtcdStatus {
    fn new(survey: &EtcdSurvey) -> Self {
        Self {
            stacked: survey.stacked,
            used_ca_key: survey.used_ca_key,
            members: survey.queried.iter().map(MemberStatus::new).collect(),
            alarms: match &survey.alarms {
                Alarms::Listed(alarms) => AlarmsStatus::Listed {
                    alarms: alarms.iter().map(|alarm| AlarmStatus::new(*alarm)).collect(),
                },
                Alarms::FromStatus => AlarmsStatus::FromStatus,
                Alarms::Failed(failure) => AlarmsStatus::Failed {
                    failure: FailureStatus::new(failure),
                },
            },
        }
    }
}

impl MemberStatus {
    fn new(asked: &QueriedMember) -> Self {
        let answer = asked.response.as_ref().ok();
        let status = answer.map(|answer| &answer.status);
        let members = answer.map(|answer| &answer.members);
        let metrics = answer.map(|answer| &answer.metrics);
        let failures = [
            asked.response.as_ref().err(),
            status.and_then(|status| status.as_ref().err()),
            members.and_then(|members| members.as_ref().err()),
            metrics.and_then(|metrics| metrics.as_ref().err()),
        ];
        Self {
            name: asked.name.clone(),
            machine: asked.machine.clone(),
            status: status
                .and_then(|status| status.as_ref().ok())
                .map(ReportedStatus::new),
            members: members
                .and_then(|members| members.as_ref().ok())
                .map(|list| list.members.iter().map(KnownMember::new).collect()),
            named_in_certificate: answer.map(|answer| answer.has_matching_name),
            certificate_expires: asked.certificate_expires_at(),
            metrics: metrics.and_then(|metrics| metrics.as_ref().ok().copied()),
            failures: failures.into_iter().flatten().map(FailureStatus::new).collect(),
        }
    }
}

impl ReportedStatus {
    fn new(status: &kcp_etcd::Status) -> Self {
        Self {
            cluster_id: hexadecimal(status.cluster_id),
            member_id: hexadecimal(status.member_id),
            version: status.version.clone(),
            db_size: status.db_size,
            db_size_in_use: status.db_size_in_use,
            db_size_quota: status.db_size_quota,
            leader: status.leader.map(hexadecimal),
            raft_index: status.raft_index,
            raft_term: status.raft_term,
            raft_applied_index: status.raft_applied_index,
            learner: status.is_learner,
            errors: status.errors.clone(),
        }
    }
}

impl KnownMember {
    fn new(member: &Member) -> Self {
        Self {
            id: hexadecimal(member.id),
            name: member.name.clone(),
            learner: member.is_learner,
        }
    }
}

impl AlarmStatus {
    fn new(alarm: Alarm) -> Self {
        Self {
            member_id: hexadecimal(alarm.member_id),
            kind: alarm_name(alarm.kind),
        }
    }
}

impl CheckStatus {
    fn new(checked: &Checked) -> Self {
        Self {
            id: checked.id,
            outcome: checked.outcome,
            reason: checked.reason.clone(),
            findings: checked.findings.clone(),
        }
    }
}

impl CheckFinding {
    pub(in crate::commands) fn new(checked: &Checked, finding: &Finding) -> Self {
        Self {
            id: checked.id,
            severity: finding.outcome,
            object: finding.objects.join(", "),
            message: finding.message.clone(),
            hint: finding.hint.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
