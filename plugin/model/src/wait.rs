//! The conditions for which a command waits, and the decision whether a control plane meets them.

use jiff::Timestamp;
use kcp_api::{Condition, KubeadmControlPlane, Machine, Object as _};

use crate::{
    problem::{CONTROL_PLANE_CONTROLLER, Problem, reported_pause},
    snapshot::Snapshot,
    staleness::format_age,
    topology::{self, UNSEEN_TOPOLOGY},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitCondition {
    /// The control plane has this number of Machines, and all are ready and up to date.
    Replicas(i64),
    /// The control plane has the desired number of Machines, and all are ready and up to date.
    RolledOut,
    /// Like [`Self::RolledOut`], and the spec has this Kubernetes version.
    Version(String),
    /// The Machine with this name has been deleted, and the desired number of other Machines is ready.
    Replaced(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitProgress {
    Met,
    /// What is still missing: one line for each part.
    WaitingFor(Vec<String>),
    Impossible(String),
}

impl WaitCondition {
    /// Checks whether a control plane meets the condition. `uid` is the control plane's uid at the first poll.
    pub fn progress(&self, snapshot: &Snapshot, uid: Option<&str>, now: Timestamp) -> WaitProgress {
        let control_plane = &snapshot.control_plane;
        if let Some(why) = self.why_impossible(snapshot, uid) {
            return WaitProgress::Impossible(why);
        }
        let missing = self.missing(snapshot, now);
        if missing.is_empty() {
            match self.deferred(snapshot) {
                Some(why) => WaitProgress::Impossible(why),
                None => WaitProgress::Met,
            }
        } else if let Some(blocker) = stopping_blocker(snapshot) {
            let hint = blocker.hint(control_plane.namespace(), control_plane.name());
            let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
            WaitProgress::Impossible(blocker.message() + &hint)
        } else {
            WaitProgress::WaitingFor(missing)
        }
    }

    fn why_impossible(&self, snapshot: &Snapshot, uid: Option<&str>) -> Option<String> {
        let control_plane = &snapshot.control_plane;
        let topology = snapshot.topology();
        if uid.is_some_and(|uid| uid != control_plane.uid()) {
            return Some("the control plane was deleted and created again".to_owned());
        }
        if control_plane.deletion_timestamp().is_some() {
            return Some("the control plane is being deleted".to_owned());
        }
        match self {
            // The topology controller carries a change of the Cluster over to the control plane later.
            Self::Replicas(replicas)
                if topology.is_some_and(|topology| topology.control_plane.replicas == Some(*replicas)) =>
            {
                None
            }
            Self::Version(version)
                if topology.is_some_and(|topology| topology.version.as_ref() == Some(version)) =>
            {
                None
            }
            Self::Replicas(replicas) if control_plane.desired_replicas() != *replicas => Some(format!(
                "another client has changed replicas to {}",
                control_plane.desired_replicas()
            )),
            Self::Version(version) if control_plane.spec.version.as_ref() != Some(version) => {
                let of_topology = topology.and_then(|topology| topology.version.as_deref());
                let desired = of_topology.or(control_plane.spec.version.as_deref());
                let desired = desired.unwrap_or("another version");
                Some(format!("another client has changed the version to {desired}"))
            }
            _ => None,
        }
    }

    /// Says which workers annotations in the topology keep at the old version, until a person removes the annotations. `None` if
    /// the command waits for no version, or the topology controller waits for something else.
    fn deferred(&self, snapshot: &Snapshot) -> Option<String> {
        let cluster = snapshot
            .cluster
            .value()
            .filter(|_| matches!(self, Self::Version(_)))?;
        let condition = cluster.status.topology_reconciled.as_ref()?;
        topology::is_deferred(condition).then(|| {
            format!(
                "workers stay at the old version: {}",
                condition.message_or_reason()
            )
        })
    }

    fn missing(&self, snapshot: &Snapshot, now: Timestamp) -> Vec<String> {
        let Snapshot {
            control_plane,
            machines,
            ..
        } = snapshot;
        if let Self::Replaced(machine) = self {
            return missing_for_replacement(control_plane, machines, machine);
        }
        if !control_plane.has_compared_machines() {
            let lasts = snapshot.unprocessed_since().map_or_else(
                || " yet".to_owned(),
                |since| format!(" for {}", format_age(since, now)),
            );
            return vec![format!(
                "{CONTROL_PLANE_CONTROLLER} has not processed the change{lasts}"
            )];
        }
        let desired = match self {
            Self::Replicas(replicas) => *replicas,
            Self::RolledOut | Self::Version(_) | Self::Replaced(_) => control_plane.desired_replicas(),
        };
        let counts = [
            (control_plane.status.up_to_date_replicas, "up to date"),
            (control_plane.status.ready_replicas, "ready"),
        ];
        let mut missing: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count < desired)
            .map(|(count, what)| format!("Machines {what}: {count} of {desired}"))
            .collect();
        if missing.is_empty() {
            missing.extend(outdated_despite_counts(control_plane, machines));
        }
        if control_plane.status.replicas != desired {
            missing.push(format!(
                "number of Machines: {}, desired {desired}",
                control_plane.status.replicas
            ));
        }
        let deleting = machines
            .iter()
            .filter(|machine| machine.deletion_timestamp().is_some());
        missing
            .extend(deleting.map(|machine| format!("Machine {} has not been deleted yet", machine.name())));
        if !matches!(self, Self::Replicas(_)) {
            // The controller writes the condition and the counts together, so both may be outdated. The Machines' creation
            // times are always current.
            if missing.is_empty() && control_plane.is_condition_true("RollingOut") {
                missing.push("the controller has not completed the rollout yet".to_owned());
            }
            if let Some(after) = control_plane.spec.rollout_after.filter(|after| *after <= now) {
                let old = machines.iter().filter(|machine| {
                    machine.deletion_timestamp().is_none()
                        && machine
                            .creation_timestamp()
                            .is_some_and(|created| created < after)
                });
                missing.extend(
                    old.map(|machine| format!("Machine {} has not been replaced yet", machine.name())),
                );
            }
        }
        missing.extend(missing_from_topology(snapshot));
        if matches!(self, Self::Version(_)) {
            missing.extend(unfinished_topology(snapshot));
        }
        if missing.is_empty() {
            // For a moment, the counts still contain a Machine that no longer exists.
            let more = counts.iter().filter(|(count, _)| *count > desired);
            missing.extend(more.map(|(count, what)| format!("Machines {what}: {count}, desired {desired}")));
        }
        missing
    }
}

/// What the topology controller has not carried over to the control plane yet: one line each. Until then, the control plane is
/// complete only by its own spec.
fn missing_from_topology(snapshot: &Snapshot) -> Vec<String> {
    if let Some(failure) = snapshot.cluster.failure() {
        return vec![format!(
            "it is unknown whether the topology controller has updated the control plane from the Cluster's topology: {}",
            failure.message
        )];
    }
    let Some(topology) = snapshot.topology() else {
        return Vec::new();
    };
    let spec = &snapshot.control_plane.spec;
    let version = topology
        .version
        .as_ref()
        .filter(|version| *version != spec.version());
    let version = version.map(|version| {
        let problem = Problem::TopologyVersion {
            version: version.clone(),
        };
        format!("{}; the version is still {}", problem.message(), spec.version())
    });
    version
        .into_iter()
        .chain(snapshot.pending_topology_values())
        .collect()
}

/// What the topology controller still waits for, such as the upgrade of workers.
fn unfinished_topology(snapshot: &Snapshot) -> Option<String> {
    let cluster = snapshot
        .cluster
        .value()
        .filter(|cluster| cluster.spec.topology.is_some())?;
    let condition = cluster.status.topology_reconciled.as_ref()?;
    if !cluster.is_topology_seen() {
        return Some(UNSEEN_TOPOLOGY.to_owned());
    }
    if condition.is_true() || topology::is_deferred(condition) {
        return None;
    }
    Some(format!(
        "Cluster API's topology controller is not done: {}",
        condition.message_or_reason()
    ))
}

/// Returns the blocker that stops a pending change until a person acts.
fn stopping_blocker(snapshot: &Snapshot) -> Option<Problem> {
    let spec = &snapshot.control_plane.spec;
    let lacks_template = || {
        let is_missing = snapshot.lacks_template(spec);
        is_missing.then(|| Problem::no_template(&spec.infrastructure_ref))
    };
    reported_pause(&snapshot.control_plane, snapshot.cluster_paused_by()).or_else(lacks_template)
}

/// Machines that are not up to date although the control plane's status counts enough up-to-date Machines:
/// one line each. The controller writes the counts after it has read the Machines, so the counts may be
/// outdated.
fn outdated_despite_counts(
    control_plane: &KubeadmControlPlane,
    machines: &[Machine],
) -> impl Iterator<Item = String> {
    let counted = format!(
        "Cluster API's kubeadm control plane controller counts {} of {} Machines as up to date",
        control_plane.status.up_to_date_replicas,
        control_plane.desired_replicas()
    );
    let staying = machines.iter().filter(|machine| !machine.is_deleting());
    staying.filter_map(move |machine| {
        let why = why_outdated(control_plane, machine)?;
        Some(format!(
            "Machine {} is not up to date ({why}), although {counted}",
            machine.name()
        ))
    })
}

/// Why a Machine differs from the spec, according to its version and its condition `UpToDate`. `None` if
/// neither says so.
fn why_outdated(control_plane: &KubeadmControlPlane, machine: &Machine) -> Option<String> {
    let desired = control_plane.spec.version.as_ref();
    if let (Some(version), Some(desired)) = (&machine.spec.version, desired)
        && version != desired
    {
        return Some(format!("version {version}, desired {desired}"));
    }
    let condition = machine.condition("UpToDate")?;
    (!condition.is_true()).then(|| match condition.message_or_reason() {
        message if message.is_empty() => "its condition UpToDate is not True".to_owned(),
        message => format!("its condition UpToDate is not True: {message}"),
    })
}

/// The parts that are missing until a Machine is replaced. Counts the Machines, because the control plane's status lags behind
/// a deletion.
fn missing_for_replacement(
    control_plane: &KubeadmControlPlane,
    machines: &[Machine],
    replaced: &str,
) -> Vec<String> {
    if machines.iter().any(|machine| machine.name() == replaced) {
        return vec![format!("Machine {replaced} has not been deleted yet")];
    }
    let staying = machines
        .iter()
        .filter(|machine| machine.deletion_timestamp().is_none());
    let (ready, coming): (Vec<&Machine>, Vec<&Machine>) =
        staying.partition(|machine| machine.ready() == Some(true));
    let desired = usize::try_from(control_plane.desired_replicas()).unwrap_or_default();
    let missing = desired.saturating_sub(ready.len());
    let mut what: Vec<String> = coming
        .iter()
        .take(missing)
        .map(|machine| format!("Machine {} is not ready yet", machine.name()))
        .collect();
    if missing > coming.len() {
        what.push(format!("Machines not created yet: {}", missing - coming.len()));
    }
    what
}

/// Cluster API's messages about changes in progress: one line for each.
pub fn reported_reasons(control_plane: &KubeadmControlPlane) -> Vec<String> {
    ["RollingOut", "ScalingUp", "ScalingDown", "Remediating"]
        .into_iter()
        .filter_map(|kind| control_plane.condition(kind))
        .filter(|condition| condition.is_true() && !condition.message.is_empty())
        .map(|condition: &Condition| format!("Cluster API: {}", condition.message_or_reason()))
        .collect()
}

/// The control plane Nodes for which the controller finds no Machine, one line each
/// (`updateStaticPodConditions` in `controlplane/kubeadm/pkg/workload_cluster_conditions.go` of Cluster API v1.14).
pub fn nodes_without_machine(control_plane: &KubeadmControlPlane) -> Vec<String> {
    let condition = control_plane.condition("ControlPlaneComponentsHealthy");
    let lines = condition
        .into_iter()
        .flat_map(|condition| condition.message.lines());
    lines
        .map(|line| line.trim().trim_start_matches("* "))
        .filter(|line| {
            line.starts_with("Control plane Node ")
                && line.ends_with(" does not have a corresponding Machine")
        })
        .map(|line| {
            format!(
                "Cluster API: {line}; for what to do, see: kubectl kcp status {} -n {}",
                control_plane.name(),
                control_plane.namespace()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        ConditionStatus::{False, True, Unknown},
        cluster::Topology,
        metadata::Time,
    };

    use super::{
        WaitCondition, WaitCondition::Replaced, WaitCondition::Replicas, WaitCondition::RolledOut,
        WaitCondition::Version, WaitProgress, WaitProgress::Impossible, WaitProgress::Met,
        WaitProgress::WaitingFor,
    };
    use crate::{
        problem::Problem,
        snapshot::{Reading, Snapshot},
        testing::{
            objects::{
                compare_without_record, condition, healthy, minutes_ago, new_machine, now, pause, set,
            },
            plan::{cluster, template},
            snapshot::failure,
        },
    };

    fn in_topology(snapshot: &mut Snapshot, version: &str) {
        let mut cluster = cluster("");
        cluster.spec.topology = Some(Topology {
            version: Some(version.to_owned()),
            ..Topology::default()
        });
        snapshot.cluster = Reading::Read(cluster);
    }

    /// A topology with the version of the control plane.
    fn topology_of(snapshot: &mut Snapshot) -> &mut Topology {
        in_topology(snapshot, "v1.34.1");
        snapshot.cluster_mut().spec.topology.as_mut().expect("a topology")
    }

    fn topology_reports(snapshot: &mut Snapshot, reason: &str) {
        in_topology(snapshot, "v1.34.1");
        let mut condition = condition("TopologyReconciled", False, "MachineDeployment md-0");
        condition.reason = reason.to_owned();
        snapshot.cluster_mut().status.topology_reconciled = Some(condition);
    }

    fn waiting(what: &[&str]) -> WaitProgress {
        WaitingFor(what.iter().map(|what| (*what).to_owned()).collect())
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn a_goal_is_reached_when_nothing_is_missing() {
        type Case = (&'static str, WaitCondition, fn(&mut Snapshot), WaitProgress);
        let cases: Vec<Case> = vec![
            ("scaled", Replicas(3), |_| {}, Met),
            ("rolled_out", RolledOut, |_| {}, Met),
            (
                "not_seen_by_the_controller",
                Replicas(3),
                |s| s.control_plane.metadata.generation = Some(8),
                waiting(&["Cluster API's kubeadm control plane controller has not processed the change yet"]),
            ),
            (
                "compared_but_not_recorded",
                RolledOut,
                |s| compare_without_record(&mut s.control_plane),
                Met,
            ),
            (
                "a_machine_starts",
                Replicas(3),
                |s| s.control_plane.status.ready_replicas = 2,
                waiting(&["Machines ready: 2 of 3"]),
            ),
            (
                "a_machine_too_many",
                Replicas(3),
                |s| s.control_plane.status.replicas = 4,
                waiting(&["number of Machines: 4, desired 3"]),
            ),
            (
                "a_machine_goes",
                Replicas(3),
                |s| s.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                waiting(&["Machine c1-cp-m1 has not been deleted yet"]),
            ),
            (
                "scaled_by_somebody_else",
                Replicas(3),
                |s| s.control_plane.spec.replicas = Some(5),
                Impossible("another client has changed replicas to 5".to_owned()),
            ),
            (
                "paused_and_complete",
                RolledOut,
                |s| pause(&mut s.control_plane.metadata),
                Met,
            ),
            (
                "the_cluster_is_paused_during_a_rollout",
                RolledOut,
                |s| {
                    let paused = condition("Paused", True, "Cluster spec.paused is set to true");
                    set(&mut s.control_plane.status.conditions, paused);
                    s.control_plane.status.up_to_date_replicas = 2;
                },
                Impossible(
                    "the Cluster is paused: no controller reconciles the control plane; resume the Cluster: kubectl patch cluster c1 -n d --type=merge -p '{\"spec\":{\"paused\":false}}'"
                        .to_owned(),
                ),
            ),
            (
                "resumed_a_moment_ago",
                RolledOut,
                |s| {
                    let message = "KubeadmControlPlane has the cluster.x-k8s.io/paused annotation";
                    set(
                        &mut s.control_plane.status.conditions,
                        condition("Paused", True, message),
                    );
                    s.control_plane.status.up_to_date_replicas = 2;
                },
                waiting(&["Machines up to date: 2 of 3"]),
            ),
            (
                "the_topology_has_not_set_the_version",
                RolledOut,
                |s| in_topology(s, "v1.35.0"),
                waiting(&[
                    "Cluster API's topology controller has not set the control plane's version to v1.35.0 yet; the version is still v1.34.1",
                ]),
            ),
            (
                "the_topology_has_other_replicas",
                Replicas(5),
                |s| topology_of(s).control_plane.replicas = Some(5),
                waiting(&[
                    "Machines up to date: 3 of 5",
                    "Machines ready: 3 of 5",
                    "number of Machines: 3, desired 5",
                    "Cluster API's topology controller has not set the control plane's replicas to 5 yet",
                ]),
            ),
            (
                "the_topology_has_a_time_of_a_rollout",
                RolledOut,
                |s| topology_of(s).control_plane.rollout.after = Some(minutes_ago(1)),
                waiting(&["Cluster API's topology controller has not set the control plane's rollout time to \
                    2026-08-21T11:59:00Z yet"]),
            ),
            (
                "the_workers_of_the_topology_are_upgraded",
                Version("v1.34.1".to_owned()),
                |s| topology_reports(s, "ClusterUpgrading"),
                waiting(&["Cluster API's topology controller is not done: MachineDeployment md-0"]),
            ),
            (
                "the_workers_of_the_topology_are_deferred",
                Version("v1.34.1".to_owned()),
                |s| topology_reports(s, "MachineDeploymentsUpgradeDeferred"),
                Impossible("workers stay at the old version: MachineDeployment md-0".to_owned()),
            ),
            (
                "a_rollout_is_complete_before_the_workers",
                RolledOut,
                |s| topology_reports(s, "ClusterUpgrading"),
                Met,
            ),
            ("the_topology_has_set_the_version", RolledOut, |s| in_topology(s, "v1.34.1"), Met),
            (
                "the_topology_is_unknown",
                RolledOut,
                |s| s.cluster = Reading::Failed(failure("Cluster/c1", "forbidden")),
                waiting(&["it is unknown whether the topology controller has updated the control plane from the Cluster's topology: forbidden"]),
            ),
            (
                "the_template_is_missing",
                Replicas(3),
                |s| {
                    s.control_plane.spec.infrastructure_ref = template("t1");
                    s.templates = [(template("t1"), Reading::Read(false))].into();
                    s.control_plane.status.ready_replicas = 2;
                },
                Impossible(format!(
                    "{}; {}",
                    Problem::no_template(&template("t1")).message(),
                    Problem::no_template(&template("t1"))
                        .hint("d", "c1-cp")
                        .unwrap_or_default()
                )),
            ),
            (
                "paused_during_a_rollout",
                RolledOut,
                |s| {
                    pause(&mut s.control_plane.metadata);
                    s.control_plane.status.up_to_date_replicas = 2;
                },
                Impossible(
                    "the control plane is paused: no controller reconciles it; resume the control plane: kubectl kcp rollout \
                     resume c1-cp -n d"
                        .to_owned(),
                ),
            ),
            (
                "the_counts_contain_a_deleted_machine",
                RolledOut,
                |s| s.control_plane.status.up_to_date_replicas = 4,
                waiting(&["Machines up to date: 4, desired 3"]),
            ),
            ("upgraded", Version("v1.34.1".to_owned()), |_| {}, Met),
            (
                "upgrade_rolls_out",
                Version("v1.34.1".to_owned()),
                |s| {
                    set(
                        &mut s.control_plane.status.conditions,
                        condition("RollingOut", True, ""),
                    );
                },
                waiting(&["the controller has not completed the rollout yet"]),
            ),
            (
                "upgraded_by_somebody_else",
                Version("v1.34.1".to_owned()),
                |s| s.control_plane.spec.version = Some("v1.35.0".to_owned()),
                Impossible("another client has changed the version to v1.35.0".to_owned()),
            ),
            (
                "deleted",
                RolledOut,
                |s| s.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                Impossible("the control plane is being deleted".to_owned()),
            ),
            (
                "made_anew",
                RolledOut,
                |s| s.control_plane.metadata.uid = Some("u2".to_owned()),
                Impossible("the control plane was deleted and created again".to_owned()),
            ),
            (
                "still_rolling_out",
                RolledOut,
                |s| {
                    set(
                        &mut s.control_plane.status.conditions,
                        condition("RollingOut", True, ""),
                    );
                },
                waiting(&["the controller has not completed the rollout yet"]),
            ),
            (
                "a_machine_older_than_the_rollout",
                RolledOut,
                |s| {
                    s.control_plane.spec.rollout_after = Some(minutes_ago(1));
                    for machine in &mut s.machines[1..] {
                        machine.metadata.creation_timestamp = Some(Time(now()));
                    }
                },
                waiting(&["Machine c1-cp-m1 has not been replaced yet"]),
            ),
            (
                "an_outdated_count_and_a_machine_with_the_old_version",
                RolledOut,
                |s| s.machines[1].spec.version = Some("v1.33.4".to_owned()),
                waiting(&[
                    "Machine c1-cp-m2 is not up to date (version v1.33.4, desired v1.34.1), although Cluster API's \
                    kubeadm control plane controller counts 3 of 3 Machines as up to date",
                ]),
            ),
            (
                "an_outdated_count_and_a_machine_that_is_not_up_to_date",
                RolledOut,
                |s| {
                    set(
                        &mut s.machines[2].status.conditions,
                        condition("UpToDate", False, "* Flavour"),
                    );
                },
                waiting(&[
                    "Machine c1-cp-m3 is not up to date (its condition UpToDate is not True: Flavour), although \
                    Cluster API's kubeadm control plane controller counts 3 of 3 Machines as up to date",
                ]),
            ),
            (
                "a_machine_whose_state_the_controller_does_not_know",
                Replicas(3),
                |s| {
                    set(
                        &mut s.machines[2].status.conditions,
                        condition("UpToDate", Unknown, ""),
                    );
                },
                waiting(&[
                    "Machine c1-cp-m3 is not up to date (its condition UpToDate is not True: Reason), although Cluster \
                    API's kubeadm control plane controller counts 3 of 3 Machines as up to date",
                ]),
            ),
            (
                "a_rollout_planned_for_later",
                RolledOut,
                |s| s.control_plane.spec.rollout_after = Some(minutes_ago(-60)),
                Met,
            ),
        ];
        for (name, goal, change, expected) in cases {
            let mut snapshot = healthy(3);
            change(&mut snapshot);
            assert_eq!(goal.progress(&snapshot, Some("u1"), now()), expected, "{name}");
        }
    }

    #[test]
    fn a_replacement_is_judged_by_the_machines() {
        type Case = (&'static str, WaitCondition, fn(&mut Snapshot), WaitProgress);
        let cases: Vec<Case> = vec![
            ("replaced", Replaced("gone".to_owned()), |_| {}, Met),
            (
                "it_goes",
                Replaced("c1-cp-m1".to_owned()),
                |_| {},
                waiting(&["Machine c1-cp-m1 has not been deleted yet"]),
            ),
            // The controller has not reconciled yet, so the counts are still the old ones.
            (
                "its_replacement_is_not_made",
                Replaced("c1-cp-m1".to_owned()),
                |s| drop(s.machines.remove(0)),
                waiting(&["Machines not created yet: 1"]),
            ),
            (
                "its_replacement_comes_up",
                Replaced("c1-cp-m1".to_owned()),
                |s| s.machines[0] = new_machine("c1-cp-m4"),
                waiting(&["Machine c1-cp-m4 is not ready yet"]),
            ),
            (
                "beside_it_another_goes",
                Replaced("gone".to_owned()),
                |s| {
                    s.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
                    s.machines[1] = new_machine("c1-cp-m4");
                },
                waiting(&["Machine c1-cp-m4 is not ready yet", "Machines not created yet: 1"]),
            ),
        ];
        for (name, goal, change, expected) in cases {
            let mut snapshot = healthy(3);
            change(&mut snapshot);
            assert_eq!(goal.progress(&snapshot, Some("u1"), now()), expected, "{name}");
        }
    }
}
