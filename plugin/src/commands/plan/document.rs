//! The JSON of a plan: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use kcp_api::KubeadmControlPlaneSpec;
use serde::Serialize;

use crate::document::{API_VERSION, ObjectName};
use kcp_control_plane::{
    blocker::Blocker,
    plan::{
        Plan,
        effect::Change,
        messages, remediation,
        rollout_reason::{Gap, Reason, Verdict},
        selection::{Group, Why},
        simulate::{Choice, Step, StepVotes},
        step::{Action, NoPlan, Purpose},
    },
    quorum::Votes,
};

/// A plan.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = "Plan"))]
#[serde(rename_all = "camelCase")]
pub struct PlanDocument {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "Plan")))]
    kind: &'static str,
    metadata: ObjectName,
    verdict: PlanVerdict,
    /// Machines there are.
    replicas: usize,
    current: SpecSummary,
    asked: SpecSummary,
    changes: Vec<Change>,
    machines: Vec<MachineVerdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_to_come: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remediation: Option<remediation::NextRemediation>,
    blockers: Vec<Told<Blocker>>,
    etcd: EtcdSource,
    steps: Vec<StepDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_plan: Option<Told<NoPlan>>,
}

/// What a plan comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum PlanVerdict {
    /// All is as asked.
    NothingToDo,
    /// The first step can be made now.
    Clear,
    /// Something keeps the first step.
    Blocked,
    /// There is no way that is told.
    NoPlan,
}

/// Where the members of etcd are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
enum EtcdSource {
    /// etcd is external, or there is no step to count for.
    NotCounted,
    /// From the Machines.
    Assumed,
    /// From etcd.
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

/// Something with the words for it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Told<T> {
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
    reasons: Vec<Told<Reason>>,
    gaps: Vec<Told<Gap>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after_provider_update: Vec<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct StepDocument {
    number: usize,
    action: Action,
    purpose: Purpose,
    /// The Machines, or for `removeMember` the members, that it may be about.
    names: Vec<String>,
    choice: Choice,
    /// Null stands for no failure domain.
    failure_domains: Vec<Option<String>>,
    failure_domain_reason: Why,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Group>,
    may_differ: bool,
    /// Machines once it is done.
    replicas: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    etcd: Option<EtcdAround>,
    text: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct EtcdAround {
    before: EtcdVotes,
    meanwhile: EtcdVotes,
    after: EtcdVotes,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct EtcdVotes {
    #[serde(flatten)]
    votes: Votes,
    quorum: usize,
    may_fail: usize,
}

impl PlanVerdict {
    /// Of a plan.
    pub fn of(plan: &Plan) -> Self {
        match &plan.steps {
            Err(_) => Self::NoPlan,
            Ok(steps) if steps.is_empty() => Self::NothingToDo,
            Ok(_) if plan.blockers.is_empty() => Self::Clear,
            Ok(_) => Self::Blocked,
        }
    }
}

impl PlanDocument {
    /// The document of a plan.
    pub fn of(plan: &Plan) -> Self {
        let hint = |blocker: &Blocker| blocker.hint(&plan.namespace, &plan.name);
        let is_counted = plan.steps().iter().any(|step| step.votes.is_some());
        Self {
            api_version: API_VERSION,
            kind: "Plan",
            metadata: ObjectName {
                name: plan.name.clone(),
                namespace: plan.namespace.clone(),
            },
            verdict: PlanVerdict::of(plan),
            replicas: plan.replicas,
            current: SpecSummary::of(&plan.current),
            asked: SpecSummary::of(&plan.desired.spec),
            changes: plan.desired.changes.clone(),
            machines: plan.verdicts.iter().map(MachineVerdict::of).collect(),
            rollout_to_come: plan.rollout_to_come,
            remediation: plan.remediation.clone(),
            blockers: plan
                .blockers
                .iter()
                .map(|blocker| Told::new(blocker.clone(), blocker.message(), hint(blocker)))
                .collect(),
            etcd: match (is_counted, plan.members_unread) {
                (false, _) => EtcdSource::NotCounted,
                (true, true) => EtcdSource::Assumed,
                (true, false) => EtcdSource::Read,
            },
            steps: (1..)
                .zip(plan.steps())
                .map(|(number, step)| StepDocument::of(number, step))
                .collect(),
            no_plan: plan.steps.as_ref().err().map(|no_plan| {
                let hint = messages::no_plan_hint(no_plan).map(str::to_owned);
                Told::new(no_plan.clone(), messages::no_plan(no_plan), hint)
            }),
        }
    }
}

impl<T> Told<T> {
    pub(crate) const fn new(what: T, text: String, hint: Option<String>) -> Self {
        Self { what, text, hint }
    }
}

impl SpecSummary {
    fn of(spec: &KubeadmControlPlaneSpec) -> Self {
        Self {
            replicas: spec.size(),
            version: spec.version().to_owned(),
            max_surge: spec.max_surge,
        }
    }
}

impl MachineVerdict {
    fn of(verdict: &Verdict) -> Self {
        let reasons = verdict.reasons.iter();
        let gaps = verdict.gaps.iter();
        Self {
            name: verdict.machine.clone(),
            outdated: !verdict.reasons.is_empty(),
            reasons: reasons
                .map(|reason| Told::new(reason.clone(), reason.message(), None))
                .collect(),
            gaps: gaps
                .map(|gap| Told::new(gap.clone(), gap.message().to_owned(), None))
                .collect(),
            after_provider_update: verdict.after_provider_update.clone(),
        }
    }
}

impl StepDocument {
    fn of(number: usize, step: &Step) -> Self {
        Self {
            number,
            action: step.action,
            purpose: step.purpose,
            names: step.names.clone(),
            choice: step.choice,
            failure_domains: step.failure_domains.clone(),
            failure_domain_reason: step.why,
            group: step.group,
            may_differ: step.may_differ,
            replicas: step.replicas,
            etcd: step.votes.map(EtcdAround::of),
            text: messages::why(step),
        }
    }
}

impl EtcdVotes {
    pub(crate) const fn of(votes: Votes) -> Self {
        Self {
            votes,
            quorum: votes.quorum(),
            may_fail: votes.failure_tolerance(),
        }
    }
}

impl EtcdAround {
    fn of(votes: StepVotes) -> Self {
        Self {
            before: EtcdVotes::of(votes.before),
            meanwhile: EtcdVotes::of(votes.meanwhile),
            after: EtcdVotes::of(votes.after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PlanDocument;
    use crate::{
        commands::plan::screen::tests::{blocked, no_plan, version_change},
        testing::{assert_every_format, schema},
    };
    use kcp_control_plane::plan::Plan;

    fn document(plan: &Plan) -> String {
        serde_json::to_string_pretty(&PlanDocument::of(plan)).expect("serializes")
    }

    #[test]
    fn a_rollout_that_is_blocked() {
        insta::assert_snapshot!(document(&blocked()));
    }

    #[test]
    fn a_control_plane_without_quorum() {
        insta::assert_snapshot!(document(&no_plan()));
    }

    #[test]
    fn every_document_is_as_its_schema_says() {
        for plan in [blocked(), no_plan(), version_change()] {
            schema::conforms(&PlanDocument::of(&plan));
            assert_every_format(&plan);
        }
        schema::checked_in::<PlanDocument>("plan.json");
    }

    #[test]
    fn no_secret_of_a_configuration_is_told() {
        let mut plan = version_change();
        plan.desired.spec.kubeadm_config_spec.fields = serde_json::json!({"users": [{"passwd": "s3cret"}]});
        assert!(!document(&plan).contains("s3cret"));
        assert!(!format!("{plan:?}").contains("s3cret"));
    }
}
