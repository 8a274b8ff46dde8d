//! Whether the plan of a change allows to write it.

use crate::{
    blocker::Blocker,
    plan::{outlook::Plan, step::NoPlan, wording},
    quorum::Votes,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    Clear,
    /// The controller would not take its first step now. `--force` overrides it: the controller waits.
    Blocked(Vec<Blocker>),
    /// The controller would take its first step now although etcd could lose its quorum. Never overridden.
    AtRisk {
        /// What it should wait for.
        blockers: Vec<Blocker>,
        /// etcd's votes after the step.
        votes: Votes,
    },
    /// No order of steps completes the change, or keeps etcd's quorum. Never overridden.
    NoWay(NoPlan),
}

impl Guard {
    pub fn of(plan: &Plan) -> Self {
        // Without a Machine there is nothing to lose.
        if plan.replicas == 0 {
            return Self::Clear;
        }
        match &plan.steps {
            // The admission rules give the reason.
            Err(NoPlan::Refused { .. }) => Self::Clear,
            Err(no_plan) => Self::NoWay(no_plan.clone()),
            Ok(_) => {
                let blockers = plan
                    .blockers
                    .iter()
                    .filter(|blocker| !blocker.stops_reconciliation());
                let blockers: Vec<Blocker> = blockers.cloned().collect();
                match plan.at_risk {
                    Some(votes) => Self::AtRisk { blockers, votes },
                    None if blockers.is_empty() => Self::Clear,
                    None => Self::Blocked(blockers),
                }
            }
        }
    }

    /// A line each.
    pub fn why(&self) -> Vec<String> {
        match self {
            Self::Clear => Vec::new(),
            Self::Blocked(blockers) => blockers.iter().map(Blocker::message).collect(),
            Self::AtRisk { blockers, votes } => {
                let mut why: Vec<String> = blockers.iter().map(Blocker::message).collect();
                why.push(wording::at_risk(*votes));
                why
            }
            Self::NoWay(no_plan) => vec![wording::no_plan(no_plan)],
        }
    }
}

/// Why no controller reconciles the control plane, a line each. A change waits until one does.
pub fn standstill(plan: &Plan) -> Vec<String> {
    let blockers = plan
        .blockers
        .iter()
        .filter(|blocker| blocker.stops_reconciliation());
    blockers.map(Blocker::message).collect()
}

#[cfg(test)]
mod tests {
    use kcp_api::{ConditionStatus, KubeadmControlPlaneSpec, metadata::Time};

    use super::{Guard, standstill};
    use crate::{
        plan::{
            outlook::{Asked, Plan, plan},
            step::NoPlan,
        },
        quorum::Votes,
        snapshot::{EtcdMember, EtcdMembers, Snapshot},
        testing::{
            objects::{condition, minutes_ago, now, pause, set},
            plan::{observed, restarted, spec, with_replicas},
        },
    };

    fn of(observed: &Snapshot, spec: KubeadmControlPlaneSpec, denials: &[&str]) -> Plan {
        let asked = Asked {
            spec,
            changes: Vec::new(),
            denials: denials.iter().map(ToString::to_string).collect(),
        };
        plan(observed, &asked, now())
    }

    /// Members on the nodes of three Machines, those of which a reason is given silent.
    fn members(silent: &[(&str, &str)]) -> EtcdMembers {
        let member = |node: &str| EtcdMember {
            name: node.to_owned(),
            silence: silent
                .iter()
                .find(|(name, _)| *name == node)
                .map(|(_, why)| (*why).to_owned()),
            ..EtcdMember::default()
        };
        EtcdMembers::Known(["node-m1", "node-m2", "node-m3"].map(member).to_vec())
    }

    fn alarmed(node: &str) -> EtcdMembers {
        let EtcdMembers::Known(mut members) = members(&[]) else {
            panic!("members are told");
        };
        for member in &mut members {
            member.has_alarm = member.name == node;
        }
        EtcdMembers::Known(members)
    }

    #[test]
    fn tells_a_blocked_change_from_an_impossible_one() {
        type Case = (
            &'static str,
            fn(&mut Snapshot),
            KubeadmControlPlaneSpec,
            &'static [&'static str],
        );
        const COSTS_4: &str = "the controller cannot see this, and its first step could cost etcd its quorum: 2 of 4 \
                               voting members healthy, 3 needed";
        const COSTS_2: &str = "the controller cannot see this, and its first step could cost etcd its quorum: 1 of 2 \
                               voting members healthy, 2 needed";
        let one = || with_replicas(spec(), 1);
        let five = || with_replicas(spec(), 5);
        let cases: Vec<Case> = vec![
            ("well", |_| {}, five(), &[]),
            ("well, fewer", |_| {}, one(), &[]),
            ("well, restart", |_| {}, restarted(spec(), now()), &[]),
            ("paused", |o| pause(&mut o.control_plane.metadata), five(), &[]),
            (
                "a member that is silent",
                |o| o.etcd_members = members(&[("node-m2", "no answer within 2 s")]),
                five(),
                &[
                    "etcd member node-m2 of Machine m2 is not healthy: no answer within 2 s",
                    COSTS_4,
                ],
            ),
            (
                "a member that is silent, restart",
                |o| o.etcd_members = members(&[("node-m2", "no answer within 2 s")]),
                restarted(spec(), now()),
                &[
                    "etcd member node-m2 of Machine m2 is not healthy: no answer within 2 s",
                    COSTS_4,
                ],
            ),
            (
                "a member that is silent, fewer, and another is chosen",
                |o| {
                    o.etcd_members = members(&[("node-m2", "no answer within 2 s")]);
                    o.set_failure_domains("");
                },
                one(),
                &[
                    "etcd member node-m2 of Machine m2 is not healthy: no answer within 2 s",
                    COSTS_2,
                ],
            ),
            (
                "a member that raises an alarm",
                |o| o.etcd_members = alarmed("node-m2"),
                five(),
                &["etcd member node-m2 of Machine m2 has raised an alarm", COSTS_4],
            ),
            (
                "two members that are silent",
                |o| o.etcd_members = members(&[("node-m2", "gone"), ("node-m3", "gone")]),
                five(),
                &["etcd has lost quorum: 1 of 3 voting members healthy, 2 needed"],
            ),
            (
                "a Machine that goes",
                |o| o.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                five(),
                &["Machine m1 is being deleted"],
            ),
            (
                "no Machine at all",
                |o| {
                    o.machines.clear();
                    o.cluster_mut().status.infrastructure_provisioned = false;
                },
                five(),
                &[],
            ),
            (
                "being deleted",
                |o| o.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                five(),
                &["the control plane is being deleted"],
            ),
        ];
        for (name, change, asked, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(Guard::of(&of(&observed, asked, &[])).why(), expected, "{name}");
        }
    }

    #[test]
    fn only_a_blocked_change_can_be_overridden() {
        let mut lost = observed();
        lost.etcd_members = members(&[("node-m2", "gone"), ("node-m3", "gone")]);
        let votes = Votes {
            voters: 3,
            unhealthy: 2,
            starting: 0,
        };
        assert_eq!(
            Guard::of(&of(&lost, spec(), &[])),
            Guard::NoWay(NoPlan::QuorumLost { votes })
        );
        // The controller would not wait, and either step costs the quorum.
        let mut silent = observed();
        silent.etcd_members = members(&[("node-m2", "gone")]);
        silent.set_failure_domains("");
        for replicas in [1, 5] {
            let guard = Guard::of(&of(&silent, with_replicas(spec(), replicas), &[]));
            assert!(matches!(guard, Guard::AtRisk { .. }), "to {replicas}: {guard:?}");
        }
        // It waits for what conditions tell it.
        set(
            &mut silent.machines[1].status.conditions,
            condition("EtcdPodHealthy", ConditionStatus::False, "crashed"),
        );
        for replicas in [1, 5] {
            let guard = Guard::of(&of(&silent, with_replicas(spec(), replicas), &[]));
            assert!(matches!(guard, Guard::Blocked(_)), "to {replicas}: {guard:?}");
        }
        // The rules speak for themselves.
        assert_eq!(Guard::of(&of(&observed(), spec(), &["no"])), Guard::Clear);
    }

    #[test]
    fn a_standstill_is_reported() {
        let mut observed = observed();
        pause(&mut observed.control_plane.metadata);
        observed.cluster_mut().spec.control_plane_endpoint = None;
        assert_eq!(
            standstill(&of(&observed, with_replicas(spec(), 5), &[])),
            [
                "the control plane is paused: no controller reconciles it",
                "the Cluster has no control plane endpoint yet"
            ]
        );
    }
}
