use kcp_api::{
    ConditionStatus::False,
    KubeadmControlPlaneSpec, Remediation,
    machine::{Bootstrap, Infrastructure},
    names::annotation,
};
use serde_json::json;

use crate::commands::plan::screen;
use crate::terminal::{plain, table::Layout};
use kcp_control_plane::{
    join_times::JoinTimes,
    plan::{
        Desired, Plan,
        effect::{Change, Effect},
        plan,
    },
    snapshot::{EtcdMember, EtcdMembers, Reading, Snapshot},
    testing::{
        objects::{condition, minutes_ago, now, pause, record, set},
        plan::{config, machine, observed, restarted, spec, with_replicas, with_version},
    },
};

const JOIN_TIMES: JoinTimes = JoinTimes {
    shortest_seconds: 250,
    longest_seconds: 400,
    machines: 3,
};

fn screen(plan: &Plan) -> String {
    screen::render(plan, Layout::default())
}

fn plan_for(observed: &Snapshot, spec: KubeadmControlPlaneSpec, changes: &[(&str, Effect)]) -> Plan {
    let changes = changes.iter().map(|(field, effect)| Change {
        field: (*field).to_owned(),
        effect: *effect,
        template: None,
    });
    plan(
        observed,
        &Desired {
            spec,
            changes: changes.collect(),
            denials: vec![],
        },
        now(),
    )
}

/// The etcd members on these nodes.
fn members(names: &[&str]) -> EtcdMembers {
    let members = names.iter().map(|name| EtcdMember {
        name: (*name).to_owned(),
        ..EtcdMember::default()
    });
    EtcdMembers::Read(members.collect())
}

/// Three Machines are upgraded to another version.
pub(crate) fn version_change() -> Plan {
    let mut observed = observed();
    observed.etcd_members = members(&["node-m1", "node-m2", "node-m3"]);
    let desired = with_version(spec(), "v1.35.0");
    plan_for(&observed, desired, &[("spec.version", Effect::Rollout)])
}

/// A rollout in progress whose first new Machine is unhealthy.
pub(crate) fn blocked() -> Plan {
    let mut observed = observed();
    for machine in &mut observed.machines {
        machine.spec.version = Some("v1.33.4".to_owned());
    }
    let mut new = machine("m4", "a", 1);
    set(
        &mut new.status.conditions,
        condition("EtcdMemberHealthy", False, "alarm NOSPACE"),
    );
    observed.machines.push(new);
    pause(&mut observed.control_plane.metadata);
    plan_for(&observed, spec(), &[])
}

/// Two of three members do not respond.
pub(crate) fn no_plan() -> Plan {
    let mut observed = observed();
    for machine in &mut observed.machines[1..] {
        set(
            &mut machine.status.conditions,
            condition("EtcdMemberHealthy", False, "gone"),
        );
    }
    plan_for(
        &observed,
        with_replicas(spec(), 5),
        &[("spec.replicas", Effect::Scale)],
    )
}

#[test]
fn a_change_of_version() {
    insta::assert_snapshot!(plain(&screen(&version_change())));
}

/// The same change, with an extension that is registered for in-place updates.
pub(crate) fn in_place() -> Plan {
    let mut observed = observed();
    observed.in_place_handlers = Reading::Read(vec!["can-update.in-place".to_owned()]);
    let desired = KubeadmControlPlaneSpec {
        max_surge: 0,
        ..with_version(spec(), "v1.34.2")
    };
    plan_for(&observed, desired, &[("spec.version", Effect::Rollout)])
}

#[test]
fn a_rollout_that_an_extension_may_make_in_place() {
    insta::assert_snapshot!(plain(&screen(&in_place())));
}

/// `m3` was remediated ten minutes ago, and failed again.
pub(crate) fn retry() -> Plan {
    let mut observed = observed();
    observed.control_plane.spec.remediation.retry_period = jiff::SignedDuration::from_mins(30);
    let machine = &mut observed.machines[2];
    let remediation = Remediation {
        machine: "m0".to_owned(),
        timestamp: Some(minutes_ago(10)),
        ..Remediation::default()
    };
    record(&mut machine.metadata, annotation::REMEDIATION_FOR, &remediation);
    for kind in ["HealthCheckSucceeded", "OwnerRemediated", "EtcdPodHealthy"] {
        set(&mut machine.status.conditions, condition(kind, False, "sick"));
    }
    let desired = observed.control_plane.spec.clone();
    plan_for(&observed, desired, &[])
}

#[test]
fn a_remediation_whose_period_has_not_passed() {
    insta::assert_snapshot!(plain(&screen(&retry())));
}

#[test]
fn a_blocked_rollout() {
    insta::assert_snapshot!(plain(&screen(&blocked())));
}

#[test]
fn a_control_plane_without_quorum() {
    insta::assert_snapshot!(plain(&screen(&no_plan())));
}

#[test]
fn a_scale_from_one_to_three() {
    let mut observed = observed();
    observed.machines.truncate(1);
    observed.control_plane.spec.replicas = Some(1);
    insta::assert_snapshot!(plain(&screen(&plan_for(
        &observed,
        spec(),
        &[("spec.replicas", Effect::Scale)]
    ))));
}

#[test]
fn a_change_in_place() {
    let changes = [
        ("metadata.labels.team", Effect::Nothing),
        (
            "spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag",
            Effect::WorkloadCluster,
        ),
        (
            "spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds",
            Effect::InPlace,
        ),
    ];
    insta::assert_snapshot!(plain(&screen(&plan_for(&observed(), spec(), &changes))));
}

/// An external etcd, no failure domains, and every part of the screen.
#[test]
fn a_plan_with_every_remark() {
    let mut observed = observed();
    observed.etcd_members = EtcdMembers::External;
    observed.set_failure_domains("");
    observed.machines[0].infrastructure = Infrastructure::Unannotated;
    observed.machines[0].spec.failure_domain = None;
    observed.control_plane.spec.kubeadm_config_spec =
        config(json!({"joinConfiguration": {"nodeRegistration": {"name": "n"}}, "verbosity": 3}));
    observed.control_plane.spec.rollout_after = Some(minutes_ago(-60));
    let unhealthy = &mut observed.machines[2];
    unhealthy.metadata.name = Some("m3\u{1b}[2J".to_owned());
    for kind in ["HealthCheckSucceeded", "OwnerRemediated"] {
        set(&mut unhealthy.status.conditions, condition(kind, False, ""));
    }
    unhealthy.spec.version = Some("v1.33.4".to_owned());
    let desired = observed.control_plane.spec.clone();
    let plan = Plan {
        join_times: Some(JOIN_TIMES),
        ..plan_for(&observed, desired, &[])
    };
    insta::assert_snapshot!(plain(&screen(&plan)));
}

/// The plan follows v1.14.2, which recognizes a joined Machine by its kubelet arguments. Other releases do not.
#[test]
fn a_lost_mark_of_a_join_matters_to_some_releases() {
    let join = json!({"joinConfiguration": {"nodeRegistration": {"kubeletExtraArgs": [{"name": "v", "value": "2"}]}}});
    let mut observed = observed();
    observed.control_plane.spec.kubeadm_config_spec = config(join.clone());
    for machine in &mut observed.machines {
        machine.bootstrap = Bootstrap::Config(config(join.clone()));
    }
    let desired = observed.control_plane.spec.clone();
    let shown = plain(&screen(&plan_for(&observed, desired, &[])));
    let note = "an update of Cluster API to v1.12, v1.13.0 to v1.13.5, and v1.14.0 and v1.14.1 would replace m1, m2 and m3, \
        because the KubeadmConfig lacks joinConfiguration.controlPlane (kubernetes-sigs/cluster-api#14167); v1.13.6 and \
        v1.14.2 would not";
    assert!(shown.contains(note), "{shown}");
}

#[test]
fn the_time_of_a_new_machine_is_shown_only_if_the_plan_creates_one() {
    for (desired, expected) in [
        (spec(), false),
        (with_replicas(spec(), 1), false),
        (with_replicas(spec(), 5), true),
        (restarted(spec(), now()), true),
    ] {
        let plan = Plan {
            join_times: Some(JOIN_TIMES),
            ..plan_for(&observed(), desired, &[])
        };
        let shown = plain(&screen(&plan)).contains("each new Machine takes about 4m to 7m to join");
        assert_eq!(shown, expected, "{plan:?}");
        assert_eq!(plan.join_estimate().is_some(), expected);
    }
}

/// The member of `m2` does not respond, and no condition says so.
fn frozen() -> Snapshot {
    let mut observed = observed();
    let member = |node: &str| EtcdMember {
        name: node.to_owned(),
        fault: (node == "node-m2").then(|| "does not respond: no response within 2 s".to_owned()),
        ..EtcdMember::default()
    };
    observed.etcd_members = EtcdMembers::Read(["node-m1", "node-m2", "node-m3"].map(member).to_vec());
    observed
}

#[test]
fn a_step_that_the_controller_does_not_wait_for() {
    let change = [("spec.replicas", Effect::Scale)];
    insta::assert_snapshot!(plain(&screen(&plan_for(
        &frozen(),
        with_replicas(spec(), 5),
        &change
    ))));
}

#[test]
fn problems_without_a_step() {
    insta::assert_snapshot!(plain(&screen(&plan_for(&frozen(), spec(), &[]))));
}
