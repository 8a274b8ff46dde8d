//! Whether a change is sent: by the admission rules, by who owns what it writes, and by what it comes to.

use jiff::Timestamp;
use kcp_rules::api::DecodeError;
use serde_json::Value;

use crate::change::{
    guard::{Guard, standstill},
    ownership::ownership,
    situation::Situation,
};
use crate::{
    change::decision::{Refusal, RefusedBy},
    judgement::Judgement,
    plan::{ask::asked, outlook, outlook::Plan, wording},
};

/// A change that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'d> {
    /// A merge patch of the control plane.
    pub patch: &'d Value,
    /// What the rules say of it.
    pub judgement: &'d Judgement,
    /// Under which name it is made.
    pub field_manager: &'d str,
    /// Whether it is sent though the controller would not take its first step now.
    pub force: bool,
    /// What time it is.
    pub now: Timestamp,
}

/// Whether a change is sent, and what there is to say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Consent {
    /// Why it is not; none where it is.
    pub refusal: Option<Refusal>,
    /// What is said where it is.
    pub warnings: Vec<String>,
    /// What it comes to.
    pub plan: Plan,
}

impl Consent {
    /// When etcd can stand the failure of no member, a line each.
    pub fn consequences(&self) -> Vec<String> {
        wording::stretches(&self.plan.fragile_stretches())
    }
}

/// Judges a change.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn consent(situation: &Situation, demand: Demand<'_>) -> Result<Consent, DecodeError> {
    let Judgement { denials, warnings } = demand.judgement;
    let asked = asked(&situation.object, demand.patch, denials)?;
    let plan = outlook::plan(&situation.observed, &asked, demand.now);
    let ownership = ownership(&situation.object, demand.patch, demand.field_manager)?;
    let guard = Guard::of(&plan);

    let mut warnings = warnings.clone();
    warnings.extend(situation.warnings());
    warnings.extend(standstill(&plan));
    let mut refusals = vec![(RefusedBy::Rules, denials.clone())];
    match ownership.warnings(situation.control_plane().cluster.as_deref()) {
        Ok(applied) => warnings.extend(applied),
        Err(why) => refusals.push((RefusedBy::Command, vec![why])),
    }
    match &guard {
        Guard::Clear => {}
        Guard::NoWay(_) | Guard::AtRisk { .. } => refusals.push((RefusedBy::Command, guard.why())),
        Guard::Blocked(_) if demand.force => warnings.extend(guard.why()),
        Guard::Blocked(_) => refusals.push((RefusedBy::Preflight, guard.why())),
    }
    let remedies = match &guard {
        Guard::NoWay(no_plan) => wording::no_plan_hint(no_plan)
            .map(str::to_owned)
            .into_iter()
            .collect(),
        Guard::Clear => Vec::new(),
        Guard::Blocked(_) if demand.force => Vec::new(),
        Guard::Blocked(blockers) | Guard::AtRisk { blockers, .. } => {
            let hints = blockers
                .iter()
                .map(|blocker| blocker.hint(&plan.namespace, &plan.name));
            hints.flatten().collect()
        }
    };
    refusals.retain(|(_, why)| !why.is_empty());
    let by = refusals.first().map(|(by, _)| *by);
    let why = refusals.into_iter().flat_map(|(_, why)| why).collect();
    Ok(Consent {
        refusal: by.map(|by| Refusal { why, by, remedies }),
        warnings,
        plan,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Consent, Demand, consent};
    use crate::{
        change::{
            decision::{Refusal, RefusedBy},
            example::{fail, situation},
            situation::Situation,
        },
        control_plane::{
            ConditionStatus::False,
            example::{condition, now, set},
        },
        judgement::Judgement,
        plan::observed::{Etcd, EtcdMember},
        snapshot::Failure,
    };

    fn of(situation: &Situation, replicas: i64, judgement: &Judgement, force: bool) -> Consent {
        let patch = json!({"spec": {"replicas": replicas}});
        let demand = Demand {
            patch: &patch,
            judgement,
            field_manager: "kubectl-kcp",
            force,
            now: now(),
        };
        consent(situation, demand).expect("decodes")
    }

    fn applied_by(situation: &mut Situation, manager: &str) {
        let mut object: Value = serde_json::from_str(&situation.object).expect("JSON");
        object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
        situation.object = object.to_string();
    }

    fn refused(by: RefusedBy, why: &[&str]) -> Refusal {
        let why = why.iter().map(ToString::to_string).collect();
        Refusal::new(by, why)
    }

    const EVEN: &str = "spec.replicas: 4 (replicas-even)";
    const SICK: &str = "EtcdPodHealthy of Machine m2 is False: crashed";
    const TOPOLOGY: &str = "spec.replicas is of the managed topology of Cluster c1: set \
                            spec.topology.controlPlane.replicas of Cluster c1 instead";

    #[test]
    fn every_reason_is_given_and_only_the_preflight_is_overridden() {
        let well = Judgement::default();
        let even = Judgement {
            denials: vec![EVEN.to_owned()],
            warnings: vec!["look".to_owned()],
        };
        let mut sick = situation();
        fail(&mut sick, 2, "EtcdPodHealthy", "crashed");
        let mut sick_and_owned = situation();
        fail(&mut sick_and_owned, 2, "EtcdPodHealthy", "crashed");
        applied_by(&mut sick_and_owned, "capi-topology");
        let none: &[&str] = &[];
        for (name, situation, judgement, force, refusal, warnings) in [
            ("well", &situation(), &well, false, None, none),
            (
                "the rules",
                &situation(),
                &even,
                true,
                Some(refused(RefusedBy::Rules, &[EVEN])),
                &["look"],
            ),
            (
                "the preflight",
                &sick,
                &well,
                false,
                Some(refused(RefusedBy::Preflight, &[SICK])),
                none,
            ),
            ("the preflight, overridden", &sick, &well, true, None, &[SICK]),
            (
                "the topology and the preflight",
                &sick_and_owned,
                &well,
                false,
                Some(refused(RefusedBy::Command, &[TOPOLOGY, SICK])),
                none,
            ),
            (
                "the topology, and nothing overrides it",
                &sick_and_owned,
                &well,
                true,
                Some(refused(RefusedBy::Command, &[TOPOLOGY])),
                &[SICK],
            ),
        ] {
            let consent = of(situation, 5, judgement, force);
            assert_eq!(consent.refusal, refusal, "{name}");
            assert_eq!(consent.warnings, warnings, "{name}");
        }
    }

    #[test]
    fn what_could_cost_the_quorum_is_not_forced() {
        let member = |node: &str| EtcdMember {
            name: node.to_owned(),
            silence: (node == "node-m2").then(|| "gone".to_owned()),
            ..EtcdMember::default()
        };
        let mut cut_off = situation();
        cut_off.observed.etcd = Etcd::Members(["node-m1", "node-m2", "node-m3"].map(member).to_vec());
        for force in [false, true] {
            let consent = of(&cut_off, 1, &Judgement::default(), force);
            assert_eq!(
                consent.refusal,
                Some(refused(
                    RefusedBy::Command,
                    &[
                        "etcd member node-m2 of Machine m2 is not healthy: gone",
                        "the controller cannot see this, and its first step could cost etcd its quorum: 1 of 2 voting \
                         members healthy, 2 needed"
                    ]
                )),
                "{force}"
            );
        }
    }

    #[test]
    fn what_to_do_about_it_is_told() {
        let remedies = |situation: &Situation, force| {
            let refusal = of(situation, 5, &Judgement::default(), force).refusal;
            refusal.map(|refusal| refusal.remedies)
        };
        let mut uncertified = situation();
        let conditions = &mut uncertified.observed.control_plane.conditions;
        set(conditions, condition("CertificatesAvailable", False, "no"));
        let see = "see condition CertificatesAvailable of kcp c1-cp in d".to_owned();
        assert_eq!(remedies(&uncertified, false), Some(vec![see]));
        assert_eq!(remedies(&uncertified, true), None);
        let mut lost = situation();
        let silent = |node: &str| EtcdMember {
            name: node.to_owned(),
            silence: Some("gone".to_owned()),
            ..EtcdMember::default()
        };
        lost.observed.etcd = Etcd::Members(["node-m1", "node-m2", "node-m3"].map(silent).to_vec());
        let etcd = "recover etcd first: the controller cannot".to_owned();
        assert_eq!(remedies(&lost, true), Some(vec![etcd]));
        let mut sick = situation();
        fail(&mut sick, 2, "EtcdPodHealthy", "crashed");
        assert_eq!(remedies(&sick, false), Some(Vec::new()));
    }

    #[test]
    fn says_what_was_not_read_and_who_puts_it_back() {
        let mut situation = situation();
        applied_by(&mut situation, "argocd-controller");
        situation.etcd_unread = Some(Failure {
            object: "Secret/c1-etcd".to_owned(),
            message: "it is not there".to_owned(),
            hint: None,
            forbidden: None,
        });
        let consent = of(&situation, 5, &Judgement::default(), false);
        assert_eq!(
            consent.warnings,
            [
                "etcd's members were not read: Secret/c1-etcd: it is not there; judged by the conditions of Machines",
                "spec.replicas is applied by argocd-controller (Argo CD), which will put it back: change it there too"
            ]
        );
        assert_eq!(consent.refusal, None);
    }

    #[test]
    fn from_one_member_the_consequence_is_told() {
        let mut situation = situation();
        situation.observed.machines.truncate(1);
        let consent = of(&situation, 3, &Judgement::default(), false);
        assert_eq!(
            consent.consequences(),
            ["etcd cannot lose a member until step 2 is done"]
        );
    }
}
