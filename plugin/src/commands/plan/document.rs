//! The JSON of a plan: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use kcp_api::KubeadmControlPlaneSpec;
use serde::Serialize;

use crate::document::{Document, ObjectName};
use kcp_control_plane::{
    join_times::JoinTimes,
    plan::{
        Plan,
        effect::Change,
        messages, remediation,
        rollout_reason::{Gap, MachineDifference, Reason},
        selection::{FailureDomainReason, Group},
        simulate::{Choice, PlanStep, QuorumRisk, StepVotes},
        step::{Action, NoPlan, Purpose},
    },
    problem::Problem,
    quorum::{EtcdRefusal, Votes},
    topology::UpgradeStep,
};

/// What the controller will do to a control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanDocument {
    metadata: ObjectName,
    verdict: PlanVerdict,
    /// The number of existing Machines.
    replicas: usize,
    current: SpecSummary,
    asked: SpecSummary,
    changes: Vec<Change>,
    machines: Vec<MachineVerdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_to_come: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remediation: Option<remediation::NextRemediation>,
    blockers: Vec<Described<Problem>>,
    /// What is wrong with the control plane. Absent if the plan has steps, or if no problem is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Described<Problem>>,
    /// etcd's votes after the first step, if the controller would take the step although it is not safe for etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    quorum_risk: Option<Described<QuorumRisk>>,
    etcd: EtcdSource,
    steps: Vec<StepDocument>,
    /// The steps of the upgrade that Cluster API's topology controller makes. Absent if the Cluster has no managed topology, if no
    /// upgrade is planned, or if its versions could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topology_upgrade: Vec<UpgradeStep>,
    /// How long earlier Machines took to join. Absent if the plan creates no Machine, or if no Machine's time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    join_times: Option<JoinTimes>,
    /// Which release of Cluster API the plan follows, if the controller may be of another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    version_note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_plan: Option<Described<NoPlan>>,
}

impl Document for PlanDocument {
    const KIND: &'static str = "Plan";
}

/// The result of a plan in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum PlanVerdict {
    /// No step is planned, and the plan found no problem.
    NothingToDo,
    /// No step is planned, although the control plane has the problems in the field `problems`.
    OnlyProblems,
    /// The controller can take the first step now.
    Clear,
    /// Something blocks the first step.
    Blocked,
    /// The controller can take the first step now, but the last step never ends, because etcd refuses it.
    NeverEnds,
    /// There is no plan; the field `noPlan` says why.
    NoPlan,
}

/// Where the plan takes the etcd members from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
enum EtcdSource {
    /// The plan does not count members, because etcd is external or the plan has no steps.
    NotCounted,
    /// The plan assumes a member for each Machine with a node.
    Assumed,
    /// The plan counts the members that etcd has listed.
    Read,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct SpecSummary {
    replicas: usize,
    version: String,
    max_surge: usize,
}

/// A value, and the text that describes it to a user.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Described<T> {
    #[serde(flatten)]
    what: T,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MachineVerdict {
    name: String,
    outdated: bool,
    reasons: Vec<Described<Reason>>,
    gaps: Vec<Described<Gap>>,
    /// The configuration paths at which Cluster API v1.14.2 finds a difference, but the running controller does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after_provider_update: Vec<String>,
    /// Whether the Machine joined, but its `KubeadmConfig` lacks `joinConfiguration.controlPlane`, so that Cluster API v1.12,
    /// v1.13.0 to v1.13.5, v1.14.0 and v1.14.1 replace the Machine. Absent if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lacks_control_plane_of_join: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct StepDocument {
    number: usize,
    action: Action,
    purpose: Purpose,
    /// The names of the Machines among which the controller chooses; for `removeMember`, of etcd members.
    names: Vec<String>,
    choice: Choice,
    /// The failure domains of the Machines, in the same order; null means no failure domain.
    failure_domains: Vec<Option<String>>,
    failure_domain_reason: FailureDomainReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Group>,
    /// The time until which the step waits; absent if it does not wait for a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// Whether an extension may update the Machine in place. If it does, the controller does not delete the Machine.
    may_update_in_place: bool,
    /// Why the step never ends, so that the plan has no steps after it. Absent if the step ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    never_ends: Option<Described<EtcdRefusal>>,
    may_differ: bool,
    /// The number of Machines after the step.
    replicas: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    etcd: Option<StepEtcdVotes>,
    text: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct StepEtcdVotes {
    before: EtcdVotes,
    during: EtcdVotes,
    after: EtcdVotes,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdVotes {
    #[serde(flatten)]
    pub(crate) votes: Votes,
    quorum: usize,
    may_fail: usize,
}

impl PlanVerdict {
    /// The result of this plan in one word.
    pub fn new(plan: &Plan) -> Self {
        match &plan.steps {
            Err(_) => Self::NoPlan,
            Ok(steps) if steps.is_empty() && plan.problems.is_empty() => Self::NothingToDo,
            Ok(steps) if steps.is_empty() => Self::OnlyProblems,
            Ok(_) if plan.is_blocked() => Self::Blocked,
            Ok(_) if plan.endless_step().is_some() => Self::NeverEnds,
            Ok(_) => Self::Clear,
        }
    }

    pub const fn is_good(self) -> bool {
        matches!(self, Self::NothingToDo | Self::Clear)
    }
}

impl PlanDocument {
    /// Creates the JSON document of a plan.
    pub fn new(plan: &Plan) -> Self {
        let described = |blocker: &Problem| {
            let hint = blocker.hint(&plan.namespace, &plan.name);
            Described::new(blocker.clone(), blocker.message(), hint)
        };
        let is_counted = plan.steps().iter().any(|step| step.votes.is_some());
        Self {
            metadata: ObjectName {
                name: plan.name.clone(),
                namespace: plan.namespace.clone(),
            },
            verdict: PlanVerdict::new(plan),
            replicas: plan.replicas,
            current: SpecSummary::new(&plan.current),
            asked: SpecSummary::new(&plan.desired.spec),
            changes: plan.desired.changes.clone(),
            machines: plan.verdicts.iter().map(MachineVerdict::new).collect(),
            rollout_to_come: plan.planned_rollout_time,
            remediation: plan.remediation.clone(),
            blockers: plan.blockers.iter().map(described).collect(),
            problems: plan.problems.iter().map(described).collect(),
            quorum_risk: plan
                .quorum_risk
                .as_ref()
                .map(|risk| Described::new(risk.clone(), messages::quorum_risk(risk), None)),
            etcd: match (is_counted, plan.are_members_unread) {
                (false, _) => EtcdSource::NotCounted,
                (true, true) => EtcdSource::Assumed,
                (true, false) => EtcdSource::Read,
            },
            steps: (1..)
                .zip(plan.steps())
                .map(|(number, step)| StepDocument::new(number, step, plan))
                .collect(),
            join_times: plan.join_estimate(),
            topology_upgrade: plan.upgrade_steps.clone(),
            version_note: plan.version_note.clone(),
            no_plan: plan.steps.as_ref().err().map(|no_plan| {
                let hint = messages::no_plan_hint(no_plan, &plan.namespace, &plan.name);
                Described::new(no_plan.clone(), messages::no_plan(no_plan), hint)
            }),
        }
    }
}

impl<T> Described<T> {
    pub(crate) const fn new(what: T, text: String, hint: Option<String>) -> Self {
        Self { what, text, hint }
    }
}

impl SpecSummary {
    fn new(spec: &KubeadmControlPlaneSpec) -> Self {
        Self {
            replicas: spec.replica_count(),
            version: spec.version().to_owned(),
            max_surge: spec.max_surge,
        }
    }
}

impl MachineVerdict {
    fn new(verdict: &MachineDifference) -> Self {
        let reasons = verdict.reasons.iter();
        let gaps = verdict.gaps.iter();
        Self {
            name: verdict.machine.clone(),
            outdated: !verdict.reasons.is_empty(),
            reasons: reasons
                .map(|reason| Described::new(reason.clone(), reason.message(), None))
                .collect(),
            gaps: gaps
                .map(|gap| Described::new(gap.clone(), gap.message().to_owned(), None))
                .collect(),
            after_provider_update: verdict.paths_ignored_by_controller.clone(),
            lacks_control_plane_of_join: verdict.lacks_control_plane_of_join,
        }
    }
}

impl StepDocument {
    fn new(number: usize, step: &PlanStep, plan: &Plan) -> Self {
        let never_ends = step.refusal.as_ref().map(|refusal| {
            let hint = refusal.hint(None, &plan.namespace, &plan.name);
            Described::new(refusal.clone(), refusal.to_string(), Some(hint))
        });
        Self {
            number,
            action: step.action,
            purpose: step.purpose,
            names: step.names.clone(),
            choice: step.choice,
            failure_domains: step.failure_domains.clone(),
            failure_domain_reason: step.why,
            group: step.group,
            until: step.waits_until,
            may_update_in_place: step.may_update_in_place,
            never_ends,
            may_differ: step.may_differ,
            replicas: step.replicas,
            etcd: step.votes.map(StepEtcdVotes::new),
            text: messages::why(step),
        }
    }
}

impl EtcdVotes {
    pub(crate) const fn new(votes: Votes) -> Self {
        Self {
            votes,
            quorum: votes.quorum(),
            may_fail: votes.failure_tolerance(),
        }
    }
}

impl StepEtcdVotes {
    fn new(votes: StepVotes) -> Self {
        Self {
            before: EtcdVotes::new(votes.before),
            during: EtcdVotes::new(votes.during),
            after: EtcdVotes::new(votes.after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PlanDocument;
    use crate::{
        commands::plan::screen::tests::{blocked, in_place, no_plan, retry, version_change},
        document::Versioned,
        testing::{assert_every_format, schema},
    };
    use kcp_control_plane::plan::Plan;

    fn document(plan: &Plan) -> String {
        serde_json::to_string_pretty(&Versioned(PlanDocument::new(plan))).expect("serializes")
    }

    #[test]
    fn a_blocked_rollout() {
        insta::assert_snapshot!(document(&blocked()));
    }

    #[test]
    fn a_control_plane_without_quorum() {
        insta::assert_snapshot!(document(&no_plan()));
    }

    #[test]
    fn every_document_matches_its_schema() {
        for plan in [blocked(), no_plan(), version_change(), in_place(), retry()] {
            schema::conforms(&PlanDocument::new(&plan));
            assert_every_format(&plan);
        }
        schema::checked_in::<PlanDocument>("plan.json");
    }

    #[test]
    fn a_plan_shows_no_secret_of_the_configuration() {
        let mut plan = version_change();
        plan.desired.spec.kubeadm_config_spec.fields = serde_json::json!({"users": [{"passwd": "s3cret"}]});
        assert!(!document(&plan).contains("s3cret"));
        assert!(!format!("{plan:?}").contains("s3cret"));
    }
}
