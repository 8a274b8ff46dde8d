//! Changes while the second etcd member joins (kubernetes-sigs/cluster-api#11772).

use kcp_api::names::annotation;

use crate::{
    action::Action,
    api::KubeadmControlPlane,
    case::{Answer, Case, V1BETA1, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    progress,
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::{Topic, scale_with_upgrade::starts_rollout},
    trusted_users,
    view::{Cluster, Machine, Part, View},
};

pub(super) const TOPIC: Topic = Topic {
    name: "joining",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[Rule {
    id: "joining-machine-outdated",
    summary: "a change must not make the second control plane Machine outdated while it joins",
    why: "The second etcd member can vote before its Machine has a Node. If the Machine becomes outdated meanwhile, Cluster API \
          deletes it, but not its member, and etcd loses its quorum. The topology controller is denied too, and tries again.",
    operations: ON_UPDATE,
    action: Action::Deny,
    scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
    overridable: true,
    topology: InTopology::Judged,
    source: "Cluster API issue 11772; scale.go, selectMachineForInPlaceUpdateOrScaleDown: an outdated Machine with \
             unhealthy components goes first",
    check: Check::ControlPlane(joining_machine_outdated),
    cel: Cel::None(NoCel::OtherObjects),
}];

fn joining_machine_outdated(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old.filter(|old| !old.has_external_etcd()) else {
        return;
    };
    let Some(what) = starts_rollout(change, old) else {
        return;
    };
    faults.request();
    let Some(machines) = progress::machines(change) else {
        return progress::unread_unless_paused(change, faults, Action::Deny);
    };
    let Some(machine) = joining_second_member(machines) else {
        return;
    };
    if returns_to_version_of(machine, change, old) {
        return;
    }
    let joining = &machine.name;
    let metadata = &change.new.metadata;
    let control_plane = format!(
        "{}{}",
        metadata.name.as_deref().unwrap_or("NAME"),
        metadata.namespace_flag()
    );
    progress::push_unless_paused(
        change,
        faults,
        Action::Deny,
        Fault {
            field: path(change.new, what).into(),
            reason: CauseReason::Forbidden,
            value: None,
            detail: format!(
                "Machine {joining} has no Node yet, but its etcd member may already vote; this change makes the Machine outdated, \
                 so Cluster API would delete the Machine but not its etcd member, and etcd would lose its quorum"
            )
            .into(),
            remedy: remedy(change, &control_plane).into(),
        },
    );
}

/// How to make the change. If a user writes the control plane, a pause permits the change. If the topology controller writes it,
/// a pause does not help, because a pause of the Cluster also stops the topology controller.
fn remedy(change: &Change<'_, KubeadmControlPlane<'_>>, control_plane: &str) -> String {
    let wait = "wait until the Machine has a Node; if it never gets a Node,";
    let remove = "remove the Machine's member from etcd, if there is one;";
    if change.context.topology.is_some() || change.context.is_written_by_cluster_api() {
        return format!(
            "{wait} {remove} then annotate the control plane, so that the topology controller may write it: kubectl annotate kcp \
             {control_plane} {}={ID}=TIME, where TIME has the format of RFC 3339 and is at most 24 hours ahead",
            annotation::OVERRIDE_RULES
        );
    }
    format!(
        "{wait} pause the control plane: kubectl kcp rollout pause {control_plane}; {remove} make this change; then resume the \
         control plane: kubectl kcp rollout resume {control_plane}"
    )
}

/// The Machine without a Node whose etcd member may be the second voter. `None` in three cases: the first Machine has not joined
/// yet; at least two Machines have a Node and are not being deleted; or kubeadm cannot run yet, because the bootstrap data does
/// not exist.
fn joining_second_member(machines: &[Machine]) -> Option<&Machine> {
    let joined = || machines.iter().filter(|machine| machine.has_node);
    let staying = joined().filter(|machine| !machine.is_deleting);
    let is_second = joined().next().is_some() && staying.count() <= 1;
    let may_vote =
        |machine: &&Machine| !machine.has_node && !machine.is_deleting && !machine.awaits_bootstrap_data;
    machines.iter().find(may_vote).filter(|_| is_second)
}

/// Whether the write only sets the version that the Machine has, so that the Machine is up to date again.
fn returns_to_version_of(
    machine: &Machine,
    change: &Change<'_, KubeadmControlPlane<'_>>,
    old: &KubeadmControlPlane<'_>,
) -> bool {
    let mut reverted = change.new.clone();
    reverted.spec.version.clone_from(&old.spec.version);
    let others = Change {
        new: &reverted,
        ..*change
    };
    change.new.spec.version.as_deref() == machine.version.as_deref() && starts_rollout(&others, old).is_none()
}

/// The path of a field that [`starts_rollout`] names.
fn path(control_plane: &KubeadmControlPlane<'_>, what: &str) -> String {
    match what {
        "infrastructureRef" => control_plane.infrastructure_ref_path().to_owned(),
        "rolloutAfter" | "rollout.after" => control_plane.rollout_after_path().to_owned(),
        field => format!("spec.{field}"),
    }
}

fn machine(name: &str, has_node: bool) -> Machine {
    Machine {
        name: name.to_owned(),
        version: Some(if has_node { "v1.34.2" } else { "v1.34.3" }.to_owned()),
        created: "2026-05-01T00:00:00Z".parse().ok(),
        has_node,
        has_controller: true,
        ..Machine::default()
    }
}

fn view(machines: Vec<Machine>) -> View {
    View {
        machines: machines.into(),
        ..View::default()
    }
}

fn first_joins() -> View {
    view(vec![machine("new", false)])
}

fn second_joins() -> View {
    view(vec![machine("old", true), machine("new", false)])
}

fn second_has_joined() -> View {
    view(vec![machine("old", true), machine("new", true)])
}

fn third_joins() -> View {
    view(vec![
        machine("one", true),
        machine("two", true),
        machine("new", false),
    ])
}

fn second_joins_while_another_leaves() -> View {
    let leaving = Machine {
        is_deleting: true,
        ..machine("two", true)
    };
    view(vec![machine("one", true), leaving, machine("new", false)])
}

fn second_is_deleted() -> View {
    let deleted = Machine {
        is_deleting: true,
        ..machine("new", false)
    };
    view(vec![machine("old", true), deleted])
}

fn second_awaits_bootstrap_data() -> View {
    let waiting = Machine {
        awaits_bootstrap_data: true,
        ..machine("new", false)
    };
    view(vec![machine("old", true), waiting])
}

fn second_joins_while_the_cluster_is_paused() -> View {
    let cluster = Cluster {
        name: "example".to_owned(),
        paused: true,
        ..Cluster::default()
    };
    View {
        cluster: Some(cluster).into(),
        ..second_joins()
    }
}

const ID: &str = "joining-machine-outdated";
const UPGRADING: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":1,"version":"v1.34.3"},
    "status":{"observedGeneration":4,"replicas":2,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING_V1BETA1: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":1,"version":"v1.34.3"},
    "status":{"observedGeneration":4,"replicas":2,"updatedReplicas":1,"version":"v1.34.2"}}"#;
const REVERTED: &str = r#"{"metadata":{"generation":5},"spec":{"replicas":1,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":2,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING_OWNED: &str = r#"{"metadata":{"generation":4,"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-05-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},"spec":{"replicas":1,"version":"v1.34.3"},
    "status":{"observedGeneration":4,"replicas":2,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING_EXTERNAL: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":1,"version":"v1.34.3",
    "kubeadmConfigSpec":{"clusterConfiguration":{"etcd":{"external":{"endpoints":["https://192.0.2.1:2379"],
    "caFile":"/a","certFile":"/b","keyFile":"/c"}}}}}}"#;
const NEXT: &str = r#"{"spec":{"version":"v1.34.4"}}"#;
const CERT_SANS: &str =
    r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"certSANs":["a.example"]}}}}}"#;

const CASES: &[Case] = &[
    Case::update(
        "rejects_version_while_the_second_machine_joins",
        UPGRADING,
        NEXT,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_kubeadm_configuration_while_the_second_machine_joins",
        UPGRADING,
        CERT_SANS,
        &[(ID, "spec.kubeadmConfigSpec")],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_infrastructure_while_the_second_machine_joins",
        UPGRADING,
        r#"{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":"other"}}}}}"#,
        &[(ID, "spec.machineTemplate.spec.infrastructureRef")],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_rollout_now_while_the_second_machine_joins",
        UPGRADING,
        r#"{"spec":{"rollout":{"after":"2026-06-01T12:00:00Z"}}}"#,
        &[(ID, "spec.rollout.after")],
    )
    // A real API server creates the Machines now, so they are younger than the time.
    .answered_by(Answer::Admitted)
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_rollout_now_while_the_second_machine_joins_in_v1beta1",
        UPGRADING_V1BETA1,
        r#"{"spec":{"rolloutAfter":"2026-06-01T12:00:00Z"}}"#,
        &[(ID, "spec.rolloutAfter")],
    )
    // A real API server creates the Machines now, so they are younger than the time.
    .answered_by(Answer::Admitted)
    .with_view(second_joins)
    .only_in_version(V1BETA1),
    Case::update(
        "rejects_version_while_the_second_machine_joins_and_another_leaves",
        UPGRADING,
        NEXT,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins_while_another_leaves)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_the_topology_controller_while_the_second_machine_joins",
        UPGRADING_OWNED,
        NEXT,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins)
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager("capi-topology")
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_version_while_the_second_machine_joins_and_the_cluster_is_paused",
        UPGRADING,
        NEXT,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins_while_the_cluster_is_paused)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_the_version_of_the_joining_machine",
        REVERTED,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_the_version_of_the_joining_machine_with_another_change",
        REVERTED,
        r#"{"spec":{"version":"v1.34.3",
            "kubeadmConfigSpec":{"clusterConfiguration":{"apiServer":{"certSANs":["a.example"]}}}}}"#,
        &[(ID, "spec.version")],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_dns_version_while_the_second_machine_joins",
        UPGRADING,
        r#"{"spec":{"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageTag":"v1.13.1"}}}}}"#,
        &[(
            "coredns-version-unknown",
            "spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag",
        )],
    )
    .with_view(second_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_while_the_first_machine_joins",
        UPGRADING,
        NEXT,
        &[],
    )
    .with_view(first_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_once_the_second_machine_has_joined",
        UPGRADING,
        NEXT,
        &[],
    )
    .with_view(second_has_joined)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_while_the_third_machine_joins",
        UPGRADING,
        NEXT,
        &[],
    )
    .with_view(third_joins)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_while_the_second_machine_is_deleted",
        UPGRADING,
        NEXT,
        &[],
    )
    .with_view(second_is_deleted)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_corrected_configuration_before_the_second_machine_has_bootstrap_data",
        UPGRADING,
        CERT_SANS,
        &[],
    )
    .with_view(second_awaits_bootstrap_data)
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_with_external_etcd_while_the_second_machine_joins",
        UPGRADING_EXTERNAL,
        NEXT,
        &[],
    )
    .with_view(second_joins),
];
