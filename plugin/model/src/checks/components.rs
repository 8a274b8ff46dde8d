//! Checks of the control plane components on each node.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{
            CheckOutcome, CheckResult, Finding, NoResult, WORKLOAD, fall_back_to, machine_object,
            node_object, require,
        },
        left_behind::is_left_behind,
        machine_grace::{Phase, machine_of_node, machines_without_node, phase_of_node, require_machines},
        rollout::{compare_machines, undo_hint},
    },
    plan::rollout_reason::{MachineDifference, Reason},
    problem::diagnose_command,
    snapshot::{
        Snapshot,
        workload::{Component, StaticPod},
    },
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "api-servers-mismatch",
        "A Machine has no API server pod, or an API server pod has no Machine.",
        check_api_servers_mismatch,
        Responsible::Fault(Actor::Kubelet),
    )
    .preflight(),
    Check::new(
        "api-servers-not-ready",
        "The API server of a node is not ready.",
        check_api_servers_not_ready,
        Responsible::Fault(Actor::Kubelet),
    )
    .preflight(),
    Check::new(
        "controller-managers-not-ready",
        "The kube-controller-manager of a node is not ready.",
        check_controller_managers_not_ready,
        Responsible::Fault(Actor::Kubelet),
    )
    .preflight(),
    Check::new(
        "schedulers-not-ready",
        "The kube-scheduler of a node is not ready.",
        check_schedulers_not_ready,
        Responsible::Fault(Actor::Kubelet),
    )
    .preflight(),
];

/// The Machine condition that reports a component, and the component's display name. A check uses the condition if the
/// pods could not be read.
const fn machine_condition(component: Component) -> (&'static str, &'static str) {
    match component {
        Component::ApiServer => ("APIServerPodHealthy", "API server"),
        Component::ControllerManager => ("ControllerManagerPodHealthy", "controller manager"),
        Component::Scheduler => ("SchedulerPodHealthy", "scheduler"),
        Component::Etcd => ("EtcdPodHealthy", "etcd pod"),
    }
}

/// The static pods on nodes that exist and have a Machine. The pods of a removed node remain until they are garbage collected.
/// The pods of a Node without a Machine remain until the Node is deleted.
fn pods(observed: &Snapshot) -> Result<Vec<&StaticPod>, NoResult> {
    let workload = require(&observed.workload, WORKLOAD)?;
    let pods = require(&workload.static_pods, "static pods")?;
    let is_there = |pod: &&StaticPod| {
        let nodes = workload.nodes.value();
        nodes.is_none_or(|nodes| nodes.iter().any(|node| node.name == pod.node))
            && !is_left_behind(observed, &pod.node)
    };
    Ok(pods.iter().filter(is_there).collect())
}

/// Returns the findings about one condition of all Machines that are neither starting nor being deleted.
pub fn condition_findings(observed: &Snapshot, kind: &str, component: &str, now: Timestamp) -> Vec<Finding> {
    let external = observed.has_external_etcd();
    if external && kind.starts_with("Etcd") {
        return Vec::new();
    }
    let settled = observed
        .machines
        .iter()
        .filter(|machine| machine.has_node() && Phase::of(observed, machine, now) == Phase::Settled);
    settled
        .filter_map(|machine| {
            let condition = machine.condition(kind).filter(|condition| !condition.is_true())?;
            let doubt = if condition.is_false() { "" } else { "unknown: " };
            let message = format!("{component}: {doubt}{}", condition.message_or_reason());
            Some(
                Finding::fail(machine_object(machine.name()), message)
                    .with_transition_time(condition)
                    .with_hint(diagnose_hint(machine)),
            )
        })
        .collect()
}

/// The names of the Machines whose etcd pod is not ready. Empty if the pods were not read.
pub fn machines_without_etcd(observed: &Snapshot) -> BTreeSet<&str> {
    let pods = pods(observed).unwrap_or_default();
    let not_ready = pods
        .into_iter()
        .filter(|pod| pod.component == Component::Etcd && !pod.ready && !pod.is_deleting);
    not_ready
        .filter_map(|pod| machine_of_node(observed, &pod.node))
        .map(kcp_api::Object::name)
        .collect()
}

/// Whether the etcd pod of a node is known to be ready.
pub fn is_etcd_pod_ready(observed: &Snapshot, node: &str) -> bool {
    let pods = pods(observed).unwrap_or_default();
    let mut of_node = pods
        .iter()
        .filter(|pod| pod.component == Component::Etcd && pod.node == node);
    of_node.any(|pod| pod.ready)
}

pub fn diagnose_hint(machine: &Machine) -> String {
    format!("see: {}", diagnose_command(machine.name(), machine.namespace()))
}

pub fn check_api_servers_mismatch(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let pods = pods(observed)?;
    require_machines(observed)?;
    let with_pod: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| pod.component == Component::ApiServer)
        .map(|pod| pod.node.as_str())
        .collect();
    let without_pod = observed.machines.iter().filter_map(|machine| {
        let node = machine
            .status
            .node_name
            .as_deref()
            .filter(|node| !with_pod.contains(node))?;
        let message = format!("node {node} has no API server pod");
        match Phase::of(observed, machine, now) {
            Phase::Deleting => None,
            Phase::Starting => Some(Finding::info(
                machine_object(machine.name()),
                format!("{message} yet"),
            )),
            Phase::Settled => {
                Some(Finding::fail(machine_object(machine.name()), message).with_hint(diagnose_hint(machine)))
            }
        }
    });
    // The check `nodes-left-behind` reports the other nodes.
    let without_machine = with_pod
        .iter()
        .filter(|node| {
            machine_of_node(observed, node).is_none() && machines_without_node(observed).next().is_some()
        })
        .map(|node| {
            Finding::info(
                node_object(node),
                "has an API server pod, but no Machine references the node yet",
            )
        });
    Ok(without_pod.chain(without_machine).collect())
}

pub fn check_api_servers_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    check_pods_ready(observed, Component::ApiServer, pod_hint, now)
}

pub fn check_controller_managers_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    check_pods_ready(observed, Component::ControllerManager, pod_hint, now)
}

pub fn check_schedulers_not_ready(observed: &Snapshot, now: Timestamp) -> CheckResult {
    check_pods_ready(observed, Component::Scheduler, pod_hint, now)
}

/// Checks that the static pod of a component is ready on every node. `hint` says how to examine a pod that is
/// not ready.
pub fn check_pods_ready(
    observed: &Snapshot,
    component: Component,
    hint: impl Fn(&Snapshot, Component, &str) -> String,
    now: Timestamp,
) -> CheckResult {
    let (kind, title) = machine_condition(component);
    let pods = match pods(observed) {
        Ok(pods) => pods,
        Err(no_result) => return fall_back_to(no_result, condition_findings(observed, kind, title, now)),
    };
    let of_component = || pods.iter().filter(|pod| pod.component == component);
    let not_ready = of_component()
        .filter(|pod| !pod.ready && !pod.is_deleting)
        .filter_map(|pod| {
            let phase = match pod.phase.as_str() {
                "Running" => String::new(),
                phase => format!(", {}", phase.to_lowercase()),
            };
            let why = pod
                .message
                .as_ref()
                .map_or_else(String::new, |message| format!(": {message}"));
            let message = format!("{title} is not ready{phase}{why}");
            let finding = node_finding(observed, &pod.node, &message, now)?;
            let finding = finding
                .with_since(pod.ready_since)
                .with_hint(hint(observed, component, &pod.node));
            Some(if fails_by_itself(observed, &pods, pod) {
                failure_of_change(observed, finding, now)
            } else {
                finding
            })
        });
    // The check `api-servers-mismatch` reports a missing API server.
    let expected = observed
        .machines
        .iter()
        .filter(|_| component != Component::ApiServer);
    let absent = expected
        .filter_map(|machine| machine.node())
        .filter(|node| !of_component().any(|pod| pod.node == *node))
        .filter_map(|node| node_finding(observed, node, &format!("the {title} pod does not exist"), now));
    Ok(not_ready.chain(absent).collect())
}

/// Whether a component exits repeatedly although everything that it needs on its node runs: the API server needs etcd, and the
/// others need the API server. While a Machine joins, kubelet may start a component too early, and the component then exits a
/// few times.
fn fails_by_itself(observed: &Snapshot, pods: &[&StaticPod], pod: &StaticPod) -> bool {
    let Some(crash_loop) = &pod.crash_loop else {
        return false;
    };
    let needed = match pod.component {
        Component::Etcd => return true,
        Component::ApiServer if observed.has_external_etcd() => return true,
        Component::ApiServer => Component::Etcd,
        Component::ControllerManager | Component::Scheduler => Component::ApiServer,
    };
    let mut others = pods
        .iter()
        .filter(|other| other.component == needed && other.node == pod.node);
    let has_ended_since = |ready_since| match (crash_loop.ended, ready_since) {
        (Some(ended), Some(ready_since)) => ended >= ready_since,
        _ => true,
    };
    others.any(|other| other.ready && has_ended_since(other.ready_since))
}

/// Turns the finding about a component that fails by itself into a failure, even while its Machine starts. If an
/// older Machine does not have the latest change of the spec yet, names the changed fields.
fn failure_of_change(observed: &Snapshot, finding: Finding, now: Timestamp) -> Finding {
    let finding = Finding {
        outcome: CheckOutcome::Fail,
        ..finding
    };
    let see = finding.hint.clone().unwrap_or_default();
    let verdicts = compare_machines(observed, now);
    let mut own = verdicts
        .iter()
        .filter(|verdict| finding.objects.contains(&machine_object(&verdict.machine)));
    let Some(own) = own.next() else {
        return finding;
    };
    // This happens after someone reverted the field that makes the component exit.
    if own.is_outdated() {
        let (name, namespace) = (&own.machine, observed.control_plane.namespace());
        return Finding {
            message: format!(
                "{}; the Machine is outdated, and keeps its settings until it is replaced",
                finding.message
            ),
            ..finding
        }
        .with_hint(format!(
            "replace the Machine: kubectl kcp machine replace {name} -n {namespace}; to see why the component exits: {see}"
        ));
    }
    let Some(change) = change_beside(&verdicts) else {
        return finding;
    };
    let set_back = undo_hint(observed, &own.machine, &verdicts).unwrap_or_else(|| change.edit_hint(observed));
    Finding {
        message: format!("{}; {}", finding.message, change.message),
        ..finding
    }
    .with_hint(format!("{set_back}; to see why the component exits: {see}"))
}

/// A change of the spec that some Machines do not have yet.
struct PendingChange {
    message: String,
    /// What the user can revert: fields of the bootstrap configuration, and the infrastructure template.
    fields: Vec<String>,
}

impl PendingChange {
    fn edit_hint(&self, observed: &Snapshot) -> String {
        if observed.has_managed_topology() {
            let (cluster, namespace) = (
                observed.control_plane.cluster(),
                observed.control_plane.namespace(),
            );
            let cluster = cluster.unwrap_or_default();
            return format!(
                "revert the change of the Cluster or its ClusterClass: kubectl edit cluster {cluster} -n {namespace}"
            );
        }
        let set_back = if self.fields.is_empty() {
            "the version cannot be lowered, so remove the settings that the new version does not know"
                .to_owned()
        } else {
            format!("revert in the spec: {}", self.fields.join(", "))
        };
        let (name, namespace) = (observed.control_plane.name(), observed.control_plane.namespace());
        format!("{set_back}: kubectl edit kcp {name} -n {namespace}")
    }
}

/// The change of the spec that an older Machine does not have yet. `None` if no Machine is outdated.
fn change_beside(verdicts: &[MachineDifference]) -> Option<PendingChange> {
    let earlier = verdicts.iter().find(|verdict| verdict.is_outdated())?;
    let differences = earlier.reasons.iter().filter_map(|reason| match reason {
        Reason::Version { machine, desired } => Some(format!("version (from {machine} to {desired})")),
        Reason::Config { fields } => Some(fields.join(", ")),
        Reason::Infrastructure { machine, desired } => {
            Some(format!("infrastructure template (from {machine} to {desired})"))
        }
        Reason::Certificates { .. } | Reason::RolloutAfter { .. } | Reason::Reported { .. } => None,
    });
    let differences: Vec<String> = differences.collect();
    let fields = earlier.reasons.iter().flat_map(|reason| match reason {
        Reason::Config { fields } => fields
            .iter()
            .map(|field| format!("spec.kubeadmConfigSpec.{field}"))
            .collect(),
        Reason::Infrastructure { machine, .. } => {
            vec![format!("the infrastructure template (back to {machine})")]
        }
        _ => Vec::new(),
    });
    (!differences.is_empty()).then(|| PendingChange {
        message: format!(
            "Machine {} does not have this change of the spec yet: {}",
            earlier.machine,
            differences.join(", ")
        ),
        fields: fields.collect(),
    })
}

/// How to examine the static pod of a component.
pub fn pod_hint(observed: &Snapshot, component: Component, node: &str) -> String {
    let component = component.as_str();
    observed.kubectl_in_workload(&format!("describe pod {component}-{node} -n kube-system"))
}

/// Returns a finding about a node: an info while its Machine starts, no finding while its Machine is being
/// deleted, otherwise a failure.
pub fn node_finding(observed: &Snapshot, node: &str, message: &str, now: Timestamp) -> Option<Finding> {
    let outcome = match phase_of_node(observed, node, now) {
        Phase::Deleting => return None,
        Phase::Starting => CheckOutcome::Info,
        Phase::Settled => CheckOutcome::Fail,
    };
    let finding = match machine_of_node(observed, node) {
        Some(machine) => {
            Finding::new(outcome, machine_object(machine.name()), message).with_object(node_object(node))
        }
        None => Finding::new(outcome, node_object(node), message),
    };
    Some(finding)
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{
        ConditionStatus::{False, Unknown},
        Machine,
        machine::Bootstrap,
        metadata::Time,
    };
    use serde_json::json;

    use crate::{
        checks::tests::{Case, joins_unnamed, leave_out, starts},
        snapshot::{
            Reading, Snapshot,
            workload::{Component, CrashLoop, Node},
        },
        testing::{
            objects::{condition, minutes_ago, set},
            snapshot::failure,
        },
    };

    fn not_ready(observed: &mut Snapshot, component: Component) {
        let pod = observed.pod(component, 2);
        pod.ready = false;
        pod.message = Some("CrashLoopBackOff: back-off 5m0s".to_owned());
    }

    /// The API server of the third Machine, which has just joined, ends again and again.
    fn crashes(observed: &mut Snapshot, minutes_since_end: i64) {
        let pod = observed.pod(Component::ApiServer, 3);
        pod.ready = false;
        pod.message = Some("CrashLoopBackOff: back-off 40s; restarted 3 times, last exit code 1".to_owned());
        pod.crash_loop = Some(CrashLoop {
            ended: Some(minutes_ago(minutes_since_end)),
        });
        observed.pod(Component::Etcd, 3).ready_since = Some(minutes_ago(2));
        observed.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(3)));
        observed
            .machine(3)
            .status
            .conditions
            .retain(|other| !matches!(other.type_.as_str(), "Ready" | "NodeKubeadmLabelsAndTaintsSet"));
    }

    /// The first two Machines do not have the current spec.
    fn changed(observed: &mut Snapshot, change: fn(&mut Machine)) {
        for number in [1, 2] {
            let machine = observed.machine(number);
            machine
                .status
                .conditions
                .retain(|condition| condition.type_ != "UpToDate");
            change(machine);
        }
    }

    pub(crate) const CASES: &[Case] = &[
        (
            "api-servers-not-ready",
            "crashes_after_a_change_of_the_version",
            |o| {
                changed(o, |machine| machine.spec.version = Some("v1.33.0".to_owned()));
                crashes(o, 1);
            },
        ),
        ("api-servers-not-ready", "crashes_after_a_change_of_a_flag", |o| {
            changed(o, |machine| {
                let Bootstrap::Config(config) = &mut machine.bootstrap else {
                    panic!("a configuration");
                };
                config.fields["clusterConfiguration"]["apiServer"] = json!({"certSANs": ["10.0.0.9"]});
            });
            crashes(o, 1);
        }),
        (
            "api-servers-not-ready",
            "crashes_after_the_flag_is_set_back",
            |o| {
                let machine = o.machine(3);
                machine
                    .status
                    .conditions
                    .retain(|condition| condition.type_ != "UpToDate");
                machine.spec.version = Some("v1.33.0".to_owned());
                crashes(o, 1);
            },
        ),
        (
            "api-servers-not-ready",
            "crashes_after_a_change_of_a_managed_topology",
            |o| {
                changed(o, |machine| machine.spec.version = Some("v1.34.0".to_owned()));
                crashes(o, 1);
                o.set_topology("v1.34.1");
            },
        ),
        (
            "api-servers-not-ready",
            "crashes_after_a_change_of_the_patch_version",
            |o| {
                changed(o, |machine| machine.spec.version = Some("v1.34.0".to_owned()));
                crashes(o, 1);
            },
        ),
        ("api-servers-not-ready", "crashes_without_a_change", |o| {
            crashes(o, 1);
        }),
        ("api-servers-not-ready", "ended_before_etcd_was_ready", |o| {
            crashes(o, 3);
        }),
        ("api-servers-not-ready", "etcd_is_not_ready_yet", |o| {
            crashes(o, 1);
            o.pod(Component::Etcd, 3).ready = false;
        }),
        ("api-servers-mismatch", "machine_without_pod", |o| {
            o.pods()
                .retain(|pod| pod.component != Component::ApiServer || pod.node != "node-m2");
        }),
        ("api-servers-mismatch", "pod_that_its_node_has_left", |o| {
            let mut pod = o.pods()[0].clone();
            pod.node = "node-m9".to_owned();
            pod.ready = false;
            o.pods().push(pod);
        }),
        ("api-servers-mismatch", "pod_of_a_machine_that_starts", |o| {
            let (pod, node) = (o.pod(Component::ApiServer, 3).clone(), o.nodes()[2].clone());
            starts(o);
            o.pods().push(pod);
            o.nodes().push(node);
        }),
        ("api-servers-not-ready", "not_ready", |o| {
            not_ready(o, Component::ApiServer);
        }),
        ("api-servers-not-ready", "by_the_condition", |o| {
            leave_out(o);
            let failed = condition("APIServerPodHealthy", False, "readiness probe failed");
            set(&mut o.machine(2).status.conditions, failed);
        }),
        ("controller-managers-not-ready", "not_ready", |o| {
            not_ready(o, Component::ControllerManager);
        }),
        ("schedulers-not-ready", "not_ready", |o| {
            not_ready(o, Component::Scheduler);
        }),
        ("schedulers-not-ready", "absent", |o| {
            o.pods()
                .retain(|pod| pod.component != Component::Scheduler || pod.node != "node-m2");
        }),
        ("schedulers-not-ready", "of_a_machine_that_leaves", |o| {
            not_ready(o, Component::Scheduler);
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        }),
        ("schedulers-not-ready", "of_a_machine_that_has_just_joined", |o| {
            not_ready(o, Component::Scheduler);
            o.machine(2).metadata.creation_timestamp = Some(Time(minutes_ago(3)));
            o.machine(2)
                .status
                .conditions
                .retain(|other| !matches!(other.type_.as_str(), "Ready" | "NodeKubeadmLabelsAndTaintsSet"));
        }),
        (
            "schedulers-not-ready",
            "of_a_machine_that_has_yet_to_name_its_node",
            |o| {
                joins_unnamed(o);
                o.pod(Component::Scheduler, 3).ready = false;
            },
        ),
        ("schedulers-not-ready", "of_a_node_that_is_no_machine_s", |o| {
            let (mut pod, node) = (o.pod(Component::Scheduler, 3).clone(), o.nodes()[2].clone());
            pod.node = "node-m9".to_owned();
            pod.ready = false;
            o.pods().push(pod);
            o.nodes().push(Node {
                name: "node-m9".to_owned(),
                ..node
            });
        }),
        ("schedulers-not-ready", "by_a_condition_that_is_unknown", |o| {
            leave_out(o);
            let unknown = condition("SchedulerPodHealthy", Unknown, "no connection");
            set(&mut o.machine(2).status.conditions, unknown);
        }),
        (
            "schedulers-not-ready",
            "by_the_condition_where_pods_were_not_read",
            |o| {
                o.workload().static_pods = Reading::Failed(failure("Pod", "no answer"));
                let failed = condition("SchedulerPodHealthy", False, "crashed");
                set(&mut o.machine(2).status.conditions, failed);
            },
        ),
    ];
}
