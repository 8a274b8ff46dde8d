//! Whether a control plane may be upgraded, what that comes to, and what is written for it.

use kcp_rules::{api::DecodeError, view};
use serde_json::json;

use crate::verbs::upgrade::{
    assessment::{Assessment, assess},
    workers::Workers,
};
use crate::{
    change::{
        consent::{Demand, consent},
        decision::{Decision, Proposal, Refusal, RefusedBy},
        event::Occurrence,
        situation::Situation,
    },
    judgement::{Surroundings, judge_update},
    plan::{ask::patched, observed::Machine, outlook::Plan, spec::with_leading_v},
};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'w> {
    /// The version to go to, its leading `v` given or not.
    pub version: &'w str,
    /// Whether to go on though the preflight blocks it.
    pub force: bool,
    /// What makes workers, without the nodes.
    pub makers: &'w Workers,
}

/// What an upgrade comes to, and what is decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// What the controller would do.
    pub plan: Plan,
    /// What it means beyond that.
    pub assessment: Assessment,
    /// What is decided.
    pub decision: Decision,
}

impl Outlook {
    /// Whether the same comes about as by another one: from the same spec, in the same steps, with the same to know.
    pub fn is_as(&self, other: &Self) -> bool {
        self.plan.current == other.plan.current
            && self.plan.steps == other.plan.steps
            && self.plan.blockers == other.plan.blockers
            && self.assessment == other.assessment
            && self.warnings() == other.warnings()
    }

    /// What is decided where somebody was asked to confirm another outlook; none where nobody was asked.
    pub fn as_confirmed(self, confirmed: Option<&Self>) -> Decision {
        match confirmed {
            Some(confirmed) if matches!(self.decision, Decision::Write(_)) && !self.is_as(confirmed) => {
                Decision::Refused(Refusal::new(
                    RefusedBy::Command,
                    vec!["what was confirmed would now come about otherwise: look again".to_owned()],
                ))
            }
            _ => self.decision,
        }
    }

    fn warnings(&self) -> &[String] {
        match &self.decision {
            Decision::Write(proposal) => &proposal.warnings,
            Decision::Unchanged | Decision::Refused(_) => &[],
        }
    }
}

/// Decides on a control plane and what surrounds it.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn decide(
    situation: &Situation,
    wanted: Wanted<'_>,
    surroundings: Surroundings<'_>,
) -> Result<Outlook, DecodeError> {
    let version = with_leading_v(wanted.version);
    let observed = &situation.observed;
    let from = &observed.spec.version;
    let patch = json!({ "spec": { "version": version } });
    let judgement = judge_update(
        &situation.object,
        &patched(&situation.object, &patch)?,
        surroundings,
    )?;
    let demand = Demand {
        patch: &patch,
        judgement: &judgement,
        field_manager: surroundings.field_manager,
        force: wanted.force,
        now: surroundings.now,
    };
    let consent = consent(situation, demand)?;
    let workers = wanted
        .makers
        .clone()
        .with_nodes(&situation.workload, &observed.machines);
    let assessment = assess(from, &version, &observed.spec.config.fields, &workers);
    let consequences = consent.consequences();
    let decision = if observed.control_plane.desired_version.as_ref() == Some(&version) {
        Decision::Unchanged
    } else if let Some(refusal) = refusal(consent.refusal, &assessment) {
        Decision::Refused(refusal)
    } else {
        Decision::Write(Proposal {
            patch,
            subresource: None,
            warnings: consent.warnings,
            consequences,
            occurrence: Occurrence {
                reason: "Upgraded",
                action: "Upgrade",
                done: "upgraded",
                detail: format!("from {from} to {version}"),
            },
        })
    };
    Ok(Outlook {
        plan: consent.plan,
        assessment,
        decision,
    })
}

/// Why it is refused. That workers would be left behind is not overridden, so it is told before what may be.
fn refusal(consent: Option<Refusal>, assessment: &Assessment) -> Option<Refusal> {
    let workers = assessment.refusals.clone();
    match consent {
        None if workers.is_empty() => None,
        None => Some(Refusal::new(RefusedBy::Command, workers)),
        Some(mut refusal) => {
            if refusal.by == RefusedBy::Preflight && !workers.is_empty() {
                refusal.by = RefusedBy::Command;
            }
            refusal.why.extend(workers);
            Some(refusal)
        }
    }
}

/// The control plane's Machines, as the rules see them.
pub fn machines_of_view(machines: &[Machine]) -> Vec<view::Machine> {
    let machines = machines.iter().map(|of| &of.machine);
    let seen = machines.map(|machine| view::Machine {
        name: machine.name.clone(),
        version: machine.version.clone(),
        created: machine.created,
        has_node: machine.node.is_some(),
        deleting: machine.deleting_since.is_some(),
    });
    seen.collect()
}

#[cfg(test)]
mod tests {
    use kcp_rules::view::View;
    use serde_json::json;

    use super::{Decision, Outlook, Refusal, RefusedBy, Surroundings, Wanted, decide, machines_of_view};
    use crate::{
        change::{
            example::{fail, situation},
            situation::Situation,
        },
        control_plane::example::now,
        kubelet_skew::Worker,
        snapshot::Failure,
        verbs::upgrade::workers::Workers,
    };

    fn outlook(situation: &Situation, version: &str, force: bool, makers: &Workers) -> Outlook {
        let view = View {
            machines: machines_of_view(&situation.observed.machines).into(),
            cluster: None.into(),
            ..View::default()
        };
        let surroundings = Surroundings {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &view,
            configuration: None,
        };
        let wanted = Wanted {
            version,
            force,
            makers,
        };
        decide(situation, wanted, surroundings).expect("decodes")
    }

    fn workers(version: &str) -> Workers {
        Workers {
            known: vec![Worker {
                object: "MachineDeployment/md-0".to_owned(),
                version: version.to_owned(),
            }],
            unread: Vec::new(),
        }
    }

    #[test]
    fn writes_the_version_and_tells_of_it() {
        for version in ["v1.35.0", "1.35.0"] {
            let outlook = outlook(&situation(), version, false, &workers("v1.34.0"));
            let Decision::Write(proposal) = outlook.decision else {
                panic!("not written: {:?}", outlook.decision);
            };
            assert_eq!(proposal.patch, json!({"spec": {"version": "v1.35.0"}}));
            assert_eq!(
                proposal.occurrence.note("alice"),
                "upgraded by alice from v1.34.2 to v1.35.0"
            );
            assert_eq!(
                proposal.consequences,
                ["etcd cannot lose a member during steps 1, 3 and 5"]
            );
            assert_eq!(outlook.plan.steps().len(), 6);
        }
        let same = outlook(&situation(), "1.34.2", false, &Workers::default());
        assert_eq!(same.decision, Decision::Unchanged);
    }

    #[test]
    fn who_refuses_and_what_is_overridden() {
        let (young, old) = (workers("v1.34.0"), workers("v1.31.0"));
        let mut sick = situation();
        fail(&mut sick, 2, "EtcdPodHealthy", "crashed");
        let blocked = "EtcdPodHealthy of Machine m2 is False: crashed";
        let behind = "MachineDeployment/md-0: kubelet v1.31.0 would be 4 minor versions behind an API server of v1.35.0, and \
                      3 are allowed; upgrade the workers first";
        let skips = "(version-skips-minor)";
        let lowered = "(version-lowered)";
        let command = RefusedBy::Command;
        for (name, situation, version, makers, force, expected) in [
            (
                "preflight",
                &sick,
                "v1.35.0",
                &young,
                false,
                Some((RefusedBy::Preflight, vec![blocked])),
            ),
            ("preflight_overridden", &sick, "v1.35.0", &young, true, None),
            (
                "workers",
                &situation(),
                "v1.35.0",
                &old,
                false,
                Some((command, vec![behind])),
            ),
            (
                "workers_never_overridden",
                &situation(),
                "v1.35.0",
                &old,
                true,
                Some((command, vec![behind])),
            ),
            (
                "both",
                &sick,
                "v1.35.0",
                &old,
                false,
                Some((command, vec![blocked, behind])),
            ),
            (
                "both_in_part_overridden",
                &sick,
                "v1.35.0",
                &old,
                true,
                Some((command, vec![behind])),
            ),
            (
                "rules",
                &situation(),
                "v1.36.0",
                &young,
                true,
                Some((RefusedBy::Rules, vec![skips])),
            ),
            (
                "downgrade",
                &situation(),
                "v1.33.0",
                &Workers::default(),
                true,
                Some((RefusedBy::Rules, vec![lowered])),
            ),
        ] {
            let decision = outlook(situation, version, force, makers).decision;
            match (decision, expected) {
                (Decision::Write(_), None) => {}
                (Decision::Refused(Refusal { why, by, .. }), Some((expected_by, lines))) => {
                    assert_eq!(by, expected_by, "{name}");
                    let are_said = why.len() == lines.len()
                        && why.iter().zip(&lines).all(|(line, end)| line.ends_with(end));
                    assert!(are_said, "{name}: {why:?}");
                }
                (decision, _) => panic!("{name}: {decision:?}"),
            }
        }
    }

    #[test]
    fn another_outlook_is_told_from_the_same() {
        let confirmed = outlook(&situation(), "v1.35.0", false, &Workers::default());
        let is_as = |situation: &Situation, makers: &Workers| {
            outlook(situation, "v1.35.0", true, makers).is_as(&confirmed)
        };
        assert!(is_as(&situation(), &Workers::default()));
        let mut sick = situation();
        fail(&mut sick, 2, "EtcdPodHealthy", "crashed");
        assert!(!is_as(&sick, &Workers::default()));
        assert!(!is_as(&situation(), &workers("v1.31.0")));
        let mut fewer = situation();
        fewer.observed.machines.pop();
        assert!(!is_as(&fewer, &Workers::default()));
        // The steps are the same from there, but who said yes to one version did not say so to another.
        let mut moved = situation();
        moved.observed.spec.version = "v1.34.9".to_owned();
        assert!(!is_as(&moved, &Workers::default()));
        let mut unread = situation();
        unread.etcd_unread = Some(Failure {
            object: "Secret/c1-etcd".to_owned(),
            message: "it is not there".to_owned(),
            hint: None,
            forbidden: None,
        });
        assert!(!is_as(&unread, &Workers::default()));
    }

    #[test]
    fn only_what_was_confirmed_can_come_about_otherwise() {
        let confirmed = outlook(&situation(), "v1.35.0", false, &Workers::default());
        let mut moved = situation();
        moved.observed.spec.version = "v1.34.9".to_owned();
        let decision = |situation: &Situation, confirmed: Option<&Outlook>| {
            outlook(situation, "v1.35.0", false, &Workers::default()).as_confirmed(confirmed)
        };
        let same = decision(&situation(), Some(&confirmed));
        assert!(matches!(same, Decision::Write(_)), "{same:?}");
        let otherwise = decision(&moved, Some(&confirmed));
        assert!(
            matches!(&otherwise, Decision::Refused(refusal) if refusal.by == RefusedBy::Command
                && refusal.why == ["what was confirmed would now come about otherwise: look again"]),
            "{otherwise:?}"
        );
        let nobody_was_asked = decision(&moved, None);
        assert!(
            matches!(nobody_was_asked, Decision::Write(_)),
            "{nobody_was_asked:?}"
        );
    }
}
