//! Machines as they come and go.

use crate::checks::tests::{Case, object::starts};
use crate::{
    control_plane::{
        ConditionStatus::{False, True},
        example::{condition, minutes_ago, now, set},
    },
    plan::observed::Remediation,
    snapshot::{Observed, Reading, management::Deletion},
};

fn unhealthy(observed: &mut Observed, number: usize) {
    let conditions = &mut observed.machine(number).machine.conditions;
    set(
        conditions,
        condition("HealthCheckSucceeded", False, "node is not ready"),
    );
    set(conditions, condition("OwnerRemediated", False, "waiting"));
}

fn blocked(observed: &mut Observed, minutes: i64) {
    let message = "Scaling up from 3 to 5 replicas is blocked because:\n* waiting for etcd";
    let mut blocked = condition("ScalingUp", True, message);
    blocked.last_transition_time = Some(minutes_ago(minutes));
    set(&mut observed.control_plane().conditions, blocked);
    observed.control_plane().desired_replicas = Some(5);
    observed.facts().spec.replicas = 5;
}

pub(super) const CASES: &[Case] = &[
    ("machines-joined", "starts", starts),
    ("machines-joined", "does_not_join", |o| {
        starts(o);
        o.machine(3).machine.created = Some(minutes_ago(10));
    }),
    ("machines-ready", "for_another_reason", |o| {
        let conditions = &mut o.machine(2).machine.conditions;
        set(
            conditions,
            condition("Ready", False, "* NodeHealthy: kubelet is down"),
        );
    }),
    ("machines-ready", "as_another_condition_says", |o| {
        let conditions = &mut o.machine(2).machine.conditions;
        set(
            conditions,
            condition("Ready", False, "* SchedulerPodHealthy: crashed"),
        );
        set(conditions, condition("SchedulerPodHealthy", False, "crashed"));
    }),
    ("machine-deletions", "leaves", |o| {
        o.machine(2).machine.deleting_since = Some(minutes_ago(5));
        o.management.deletions = vec![Deletion {
            machine: "m2".to_owned(),
            since: minutes_ago(5),
            waits_for: vec![
                "deletion hook pre-terminate/kcp-cleanup".to_owned(),
                "drain of node-m2".to_owned(),
            ],
        }];
    }),
    ("machine-deletions", "does_not_go", |o| {
        o.machine(2).machine.deleting_since = Some(minutes_ago(31));
        let deleting = condition("Deleting", True, "Drain not completed yet:\n* Pod a/b");
        set(&mut o.machine(2).machine.conditions, deleting);
    }),
    ("machine-health-checks", "unhealthy", |o| unhealthy(o, 2)),
    ("remediation", "next", |o| unhealthy(o, 2)),
    ("remediation", "in_progress", |o| {
        let remediating = condition("Remediating", True, "* Machine m2 is being replaced");
        set(&mut o.control_plane().conditions, remediating);
    }),
    ("remediation", "noted", |o| {
        o.facts().remediation_in_progress = Some(Remediation {
            machine: "m0".to_owned(),
            time: Some(now()),
            retries: 0,
        });
    }),
    ("remediation", "tried_too_often", |o| {
        o.facts().spec.remediation.max_retry = Some(2);
        unhealthy(o, 2);
        o.machine(2).remediation_for = Some(Remediation {
            machine: "m0".to_owned(),
            time: Some(minutes_ago(11)),
            retries: 2,
        });
    }),
    ("remediation", "kept_by_quorum", |o| {
        unhealthy(o, 2);
        o.kill(3);
    }),
    ("health-check-cover", "none", |o| o.health_checks().clear()),
    ("health-check-cover", "one_machine_less", |o| {
        o.health_checks()[0].targets.remove("m2");
    }),
    ("health-check-cover", "paused", |o| {
        o.health_checks()[0].paused = true;
    }),
    ("health-check-cover", "may_not_now", |o| {
        o.health_checks()[0].remediation_allowed = Some(false);
    }),
    ("health-check-cover", "may_not_while_a_machine_starts", |o| {
        o.health_checks()[0].remediation_allowed = Some(false);
        starts(o);
    }),
    ("health-check-cover", "not_read", |o| {
        o.management.health_checks = Reading::NotYet;
    }),
    ("machines-up-to-date", "version", |o| {
        o.machine(1).machine.version = Some("v1.33.0".to_owned());
    }),
    ("machines-up-to-date", "the_controller_alone_says_so", |o| {
        let rolling_out = condition("RollingOut", True, "Rolling out 1 not up-to-date replicas");
        set(&mut o.control_plane().conditions, rolling_out);
    }),
    ("rollout-ends", "never", |o| {
        o.facts().spec.certificates_expiry_days = Some(365);
    }),
    ("replicas", "up", |o| o.control_plane().desired_replicas = Some(5)),
    ("replicas", "down", |o| {
        o.control_plane().desired_replicas = Some(1);
    }),
    ("replicas", "during_a_rollout", |o| {
        o.control_plane().replicas = 4;
        o.control_plane().up_to_date_replicas = 1;
    }),
    ("change-progress", "blocked_for_a_moment", |o| blocked(o, 30)),
    ("change-progress", "blocked_for_long", |o| blocked(o, 31)),
];
