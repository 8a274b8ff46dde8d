//! The JSON of `status`: `kubectl-kcp.dev/v1alpha1`. `plugin/schema` has its JSON schemas.

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};
use kcp_etcd::{Alarm, Member};
use serde::Serialize;

use crate::{
    commands::plan::document::{Described, EtcdVotes},
    document::{API_VERSION, ObjectName},
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
        etcd::{Alarms, QueriedMember, alarm_name, hexadecimal},
    },
};

/// The status of several control planes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatusList {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "ControlPlaneStatusList")))]
    kind: &'static str,
    items: Vec<ControlPlaneStatus>,
}

/// The status of a control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "ControlPlaneStatus")))]
    kind: &'static str,
    metadata: ObjectName,
    /// The control plane's Cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    desired: Desired,
    #[serde(rename = "observed")]
    reported: Reported,
    machines: Vec<MachineStatus>,
    conditions: Vec<Condition>,
    sources: Sources,
    /// The status of etcd; null if it was not read.
    etcd: Option<EtcdStatus>,
    /// etcd's votes; null if etcd is external or its members are unknown.
    votes: Option<EtcdVotes>,
    checks: Vec<CheckStatus>,
    preflight: Preflight,
    verdict: Health,
    basis: Basis,
    /// Findings of all checks, most severe first.
    findings: Vec<CheckFinding>,
}

/// The desired state in the spec.
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

/// The state that the controller reports.
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
    /// Whether the controller has observed the current spec.
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
    /// Whether the Machine is ready; null until a controller has reported it.
    ready: Option<bool>,
    /// Whether the Machine matches the spec; null if this is unknown.
    up_to_date: Option<bool>,
    /// Why the Machine is outdated.
    outdated_because: Vec<Described<Reason>>,
    /// The facts that are missing to decide whether the Machine is outdated. A Machine with missing facts counts as up
    /// to date.
    gaps: Vec<Described<Gap>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificates_expire: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Timestamp>,
    conditions: Vec<Condition>,
}

/// The sources other than the management cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Sources {
    workload: Source,
    etcd: Source,
}

/// The result of reading a source.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "state")]
enum Source {
    /// The source was read, at least in part.
    Read,
    /// A flag excluded the source.
    Excluded { flag: &'static str },
    /// The control plane is not initialized yet.
    NotYet,
    /// The source cannot be reached from this machine, and does not affect the verdict.
    OutOfReach { failure: FailureStatus },
    /// The source could not be read.
    Failed { failure: FailureStatus },
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FailureStatus {
    /// The object that could not be read.
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
    /// Whether a client certificate was issued with the key of etcd's CA.
    used_ca_key: bool,
    members: Vec<MemberStatus>,
    alarms: AlarmsStatus,
}

/// An etcd member to which requests were sent.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MemberStatus {
    /// The node's name, or the endpoint of an external etcd.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// The member's own status; null if the member did not respond.
    status: Option<ReportedStatus>,
    /// The member's list of members; null if the member did not respond.
    members: Option<Vec<KnownMember>>,
    /// Whether the certificate is for the member's name; null if the member did not respond. The certificate chain is
    /// always verified.
    named_in_certificate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_expires: Option<Timestamp>,
    /// The requests that failed.
    failures: Vec<FailureStatus>,
}

/// A member's status. Ids are hexadecimal, as in `etcdctl`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ReportedStatus {
    cluster_id: String,
    member_id: String,
    version: String,
    /// Bytes.
    db_size: u64,
    /// Bytes.
    db_size_in_use: u64,
    /// The quota of the database in bytes; null before etcd 3.6.
    db_size_quota: Option<u64>,
    /// The leader's member id; null if the member has no leader.
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
    /// The member's name; empty until the member has started.
    name: String,
    learner: bool,
}

/// Alarms and their source.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "source")]
enum AlarmsStatus {
    /// etcd has listed the alarms.
    Listed { alarms: Vec<AlarmStatus> },
    /// etcd has no leader, so the alarms come from each member's status.
    FromStatus,
    /// etcd has a leader, but alarms could not be listed.
    Failed { failure: FailureStatus },
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct AlarmStatus {
    member_id: String,
    /// The alarm, such as `NOSPACE` or `CORRUPT`.
    kind: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CheckStatus {
    id: &'static str,
    outcome: CheckOutcome,
    /// Why the result is unknown, or why the check was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    findings: Vec<Finding>,
}

/// A finding, and the check that reports it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CheckFinding {
    /// The check's id.
    id: &'static str,
    severity: CheckOutcome,
    /// Objects as `Kind/name`, separated by commas.
    object: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl ControlPlaneStatusList {
    /// Creates the document of several control planes.
    pub fn new<'i>(inspected: impl IntoIterator<Item = (&'i Snapshot, &'i Inspection)>) -> Self {
        let items = inspected.into_iter();
        Self {
            api_version: API_VERSION,
            kind: "ControlPlaneStatusList",
            items: items
                .map(|(observed, inspection)| ControlPlaneStatus::new(observed, inspection))
                .collect(),
        }
    }
}

impl ControlPlaneStatus {
    /// Creates the document of one control plane.
    pub fn new(observed: &Snapshot, inspection: &Inspection) -> Self {
        let Snapshot {
            control_plane,
            machines,
            ..
        } = observed;
        let is_paused =
            control_plane.is_paused() || control_plane.is("Paused") || observed.cluster_is_paused();
        let findings = inspection.findings().into_iter();
        Self {
            api_version: API_VERSION,
            kind: "ControlPlaneStatus",
            metadata: control_plane.into(),
            cluster: control_plane.cluster().map(str::to_owned),
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
                paused: is_paused,
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
            etcd: observed.etcd.read().map(EtcdStatus::new),
            votes: inspection.votes.map(EtcdVotes::new),
            checks: inspection.checks.iter().map(CheckStatus::new).collect(),
            preflight: inspection.preflight.clone(),
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
        let mut verdicts = inspection.up_to_date.iter();
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
        let failures = [
            asked.response.as_ref().err(),
            status.and_then(|status| status.as_ref().err()),
            members.and_then(|members| members.as_ref().err()),
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
            certificate_expires: answer.and_then(|answer| answer.certificate_expires),
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
    fn new(checked: &Checked, finding: &Finding) -> Self {
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
