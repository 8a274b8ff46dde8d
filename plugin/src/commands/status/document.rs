//! The JSON and YAML of `status`: `kubectl-kcp.dev/v1alpha1`. `plugin/schema` says the same as JSON schemas.

use jiff::Timestamp;
use kcp_api::{Condition, Machine, Object as _};
use kcp_etcd::{Alarm, Member};
use serde::Serialize;

use crate::{
    commands::plan::document::{EtcdVotes, Told},
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

/// Several control planes.
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

/// One control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "ControlPlaneStatus")))]
    kind: &'static str,
    metadata: ObjectName,
    /// The Cluster it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    desired: Desired,
    #[serde(rename = "observed")]
    reported: Reported,
    machines: Vec<MachineStatus>,
    conditions: Vec<Condition>,
    sources: Sources,
    /// Null when it was not read.
    etcd: Option<EtcdStatus>,
    /// Null where etcd is external, or its members are not known.
    votes: Option<EtcdVotes>,
    checks: Vec<CheckStatus>,
    preflight: Preflight,
    verdict: Health,
    basis: Basis,
    /// Those of the checks, the heaviest first.
    findings: Vec<FindingOfCheck>,
}

/// What the spec asks for.
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

/// What the controller has reported.
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
    /// Whether the report is about the spec as it stands.
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
    /// Null while no controller has said.
    ready: Option<bool>,
    /// Null while nobody can say.
    up_to_date: Option<bool>,
    /// Why it is to be replaced.
    outdated_because: Vec<Told<Reason>>,
    /// What is missing to judge that: it is taken for as asked.
    gaps: Vec<Told<Gap>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificates_expire: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Timestamp>,
    conditions: Vec<Condition>,
}

/// What was asked beside the management cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Sources {
    workload: Source,
    etcd: Source,
}

/// What came of asking.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "state")]
enum Source {
    /// It answered, at least in part.
    Read,
    /// A flag left it out.
    Excluded { flag: &'static str },
    /// No Machine has come up.
    NotYet,
    /// It runs where it cannot be reached from here, and does not decide.
    OutOfReach { failure: FailureStatus },
    /// It was asked, and did not answer.
    Failed { failure: FailureStatus },
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FailureStatus {
    /// What was asked.
    object: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct EtcdStatus {
    /// Whether the members are pods of the control plane's Machines.
    stacked: bool,
    /// Whether the key of etcd's CA was used to ask.
    used_ca_key: bool,
    members: Vec<MemberStatus>,
    alarms: AlarmsStatus,
}

/// One that was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MemberStatus {
    /// The node's name, or the endpoint of an external etcd.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// What it says of itself; null when it did not say.
    status: Option<OwnStatus>,
    /// The members that it knows; null when it did not say.
    members: Option<Vec<KnownMember>>,
    /// Whether its certificate is for its name; null when it did not answer. Its chain was verified in any case.
    named_in_certificate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_expires: Option<Timestamp>,
    /// What it did not answer.
    failures: Vec<FailureStatus>,
}

/// Ids are hexadecimal, as `etcdctl` writes them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct OwnStatus {
    cluster_id: String,
    member_id: String,
    version: String,
    /// Bytes.
    db_size: u64,
    /// Bytes.
    db_size_in_use: u64,
    /// Bytes; null before etcd 3.6.
    db_size_quota: Option<u64>,
    /// Null when it knows of none.
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
    /// Empty until it has started.
    name: String,
    learner: bool,
}

/// Alarms, and how they were learned of.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "source")]
enum AlarmsStatus {
    /// By agreement of the members.
    Listed { alarms: Vec<AlarmStatus> },
    /// There is no leader to ask: from the errors in each member's status.
    FromStatus,
    /// There is a leader, and it did not answer.
    Failed { failure: FailureStatus },
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct AlarmStatus {
    member_id: String,
    /// `NOSPACE`, `CORRUPT`
    kind: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CheckStatus {
    id: &'static str,
    outcome: CheckOutcome,
    /// Why it is unknown or was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    findings: Vec<Finding>,
}

/// A finding by itself.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FindingOfCheck {
    /// Of the check.
    id: &'static str,
    severity: CheckOutcome,
    /// `Kind/name`, several with a comma between them.
    object: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl ControlPlaneStatusList {
    /// The document of several.
    pub fn of<'i>(inspected: impl IntoIterator<Item = (&'i Snapshot, &'i Inspection)>) -> Self {
        let items = inspected.into_iter();
        Self {
            api_version: API_VERSION,
            kind: "ControlPlaneStatusList",
            items: items
                .map(|(observed, inspection)| ControlPlaneStatus::of(observed, inspection))
                .collect(),
        }
    }
}

impl ControlPlaneStatus {
    /// The document of one.
    pub fn of(observed: &Snapshot, inspection: &Inspection) -> Self {
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
                .map(|machine| MachineStatus::of(machine, inspection))
                .collect(),
            conditions: control_plane.status.conditions.clone(),
            sources: Sources {
                workload: Source::of(&observed.workload),
                etcd: Source::of(&observed.etcd),
            },
            etcd: observed.etcd.read().map(EtcdStatus::of),
            votes: inspection.votes.map(EtcdVotes::of),
            checks: inspection.checks.iter().map(CheckStatus::of).collect(),
            preflight: inspection.preflight.clone(),
            verdict: inspection.health,
            basis: inspection.basis,
            findings: findings
                .map(|(checked, finding)| FindingOfCheck::of(checked, finding))
                .collect(),
        }
    }
}

impl MachineStatus {
    fn of(machine: &Machine, inspection: &Inspection) -> Self {
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
                .map(|reason| Told::new(reason.clone(), reason.message(), None))
                .collect(),
            gaps: gaps
                .map(|gap| Told::new(gap.clone(), gap.message().to_owned(), None))
                .collect(),
            certificates_expire: machine.status.certificates_expiry_date,
            creation_timestamp: machine.creation_timestamp(),
            deletion_timestamp: machine.deletion_timestamp(),
            conditions: machine.status.conditions.clone(),
        }
    }
}

impl Source {
    fn of<T>(reading: &Reading<T>) -> Self {
        match reading {
            Reading::Read(_) => Self::Read,
            Reading::Excluded { flag } => Self::Excluded { flag },
            Reading::NotYet => Self::NotYet,
            Reading::OutOfReach(failure) => Self::OutOfReach {
                failure: FailureStatus::of(failure),
            },
            Reading::Failed(failure) => Self::Failed {
                failure: FailureStatus::of(failure),
            },
        }
    }
}

impl FailureStatus {
    fn of(failure: &Failure) -> Self {
        Self {
            object: failure.object.clone(),
            message: failure.message.clone(),
            hint: failure.hint.clone(),
        }
    }
}

impl EtcdStatus {
    fn of(survey: &EtcdSurvey) -> Self {
        Self {
            stacked: survey.stacked,
            used_ca_key: survey.used_ca_key,
            members: survey.queried.iter().map(MemberStatus::of).collect(),
            alarms: match &survey.alarms {
                Alarms::Listed(alarms) => AlarmsStatus::Listed {
                    alarms: alarms.iter().map(|alarm| AlarmStatus::of(*alarm)).collect(),
                },
                Alarms::FromStatus => AlarmsStatus::FromStatus,
                Alarms::Failed(failure) => AlarmsStatus::Failed {
                    failure: FailureStatus::of(failure),
                },
            },
        }
    }
}

impl MemberStatus {
    fn of(asked: &QueriedMember) -> Self {
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
            status: status.and_then(|status| status.as_ref().ok()).map(OwnStatus::of),
            members: members
                .and_then(|members| members.as_ref().ok())
                .map(|list| list.members.iter().map(KnownMember::of).collect()),
            named_in_certificate: answer.map(|answer| answer.has_matching_name),
            certificate_expires: answer.and_then(|answer| answer.certificate_expires),
            failures: failures.into_iter().flatten().map(FailureStatus::of).collect(),
        }
    }
}

impl OwnStatus {
    fn of(status: &kcp_etcd::Status) -> Self {
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
    fn of(member: &Member) -> Self {
        Self {
            id: hexadecimal(member.id),
            name: member.name.clone(),
            learner: member.is_learner,
        }
    }
}

impl AlarmStatus {
    fn of(alarm: Alarm) -> Self {
        Self {
            member_id: hexadecimal(alarm.member_id),
            kind: alarm_name(alarm.kind),
        }
    }
}

impl CheckStatus {
    fn of(checked: &Checked) -> Self {
        Self {
            id: checked.id,
            outcome: checked.outcome,
            reason: checked.reason.clone(),
            findings: checked.findings.clone(),
        }
    }
}

impl FindingOfCheck {
    fn of(checked: &Checked, finding: &Finding) -> Self {
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
