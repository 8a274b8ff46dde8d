//! Groups the Machines of a control plane by version, template, and the reasons why they are outdated.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _, Reference, machine::Infrastructure};

use kcp_control_plane::{
    plan::rollout_reason::{Comparison, Gap, Reason, compare_machine},
    rollout_events::RolloutEvents,
    snapshot::Snapshot,
};

/// The generations of Machines that a control plane has now.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    pub namespace: String,
    pub name: String,
    /// The generations of Machines, oldest first.
    pub generations: Vec<Generation>,
    /// When someone last requested a rollout of every Machine, or when a planned rollout begins.
    pub rollout_after: Option<Timestamp>,
    /// The Events about the control plane, its Machines and its deleted Machines. `None` if they could not be read.
    pub events: Option<RolloutEvents>,
    /// The time at which the Machines were read.
    pub at: Timestamp,
}

/// Machines with the same version and template that are all up to date, or all outdated for the same reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The Kubernetes version of the Machines.
    pub version: Option<String>,
    /// The infrastructure template of the Machines, if it is known.
    pub template: Option<Reference>,
    /// Why the Machines are outdated; empty if they are up to date.
    pub reasons: Vec<Reason>,
    /// The facts that could not be read, so that it is unknown whether the Machines are up to date. Such
    /// Machines count as up to date.
    pub gaps: Vec<Gap>,
    /// The Machines of this generation, oldest first.
    pub members: Vec<Member>,
}

/// A Machine of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub created: Option<Timestamp>,
    /// When the deletion of the Machine was requested; `None` if the Machine is not being deleted.
    pub deleting_since: Option<Timestamp>,
}

impl Generation {
    /// Whether the Machines of this generation are up to date.
    pub const fn is_current(&self) -> bool {
        self.reasons.is_empty()
    }

    /// When the first and the last Machine of this generation were created.
    pub fn creation_times(&self) -> Option<(Timestamp, Timestamp)> {
        let times = || self.members.iter().filter_map(|member| member.created);
        times().min().zip(times().max())
    }

    fn new(machine: &Machine, reasons: Vec<Reason>, gaps: Vec<Gap>) -> Self {
        Self {
            version: machine.spec.version.clone(),
            template: match &machine.infrastructure {
                Infrastructure::ClonedFrom(template) => Some(template.clone()),
                Infrastructure::Missing | Infrastructure::Unannotated => None,
            },
            reasons,
            gaps,
            members: Vec::new(),
        }
    }

    /// Whether both generations are the same. It is enough to compare the reasons, because they include a
    /// different version or template.
    fn is_like(&self, other: &Self) -> bool {
        self.reasons == other.reasons && self.gaps == other.gaps
    }
}

/// Groups the Machines of a control plane into generations.
pub fn history(observed: &Snapshot, events: Option<RolloutEvents>, now: Timestamp) -> History {
    let control_plane = &observed.control_plane;
    let comparison = Comparison {
        current: &observed.control_plane.spec,
        desired: &observed.control_plane.spec,
        is_observed: control_plane.is_observed(),
        is_paused: observed.is_paused(),
        now,
    };
    let mut machines: Vec<&Machine> = observed.machines.iter().collect();
    let age = |machine: &&Machine| (machine.creation_timestamp(), machine.name().to_owned());
    machines.sort_by_cached_key(age);
    let mut generations: Vec<Generation> = Vec::new();
    for machine in machines {
        let verdict = compare_machine(machine, comparison);
        let own = Generation::new(machine, verdict.reasons, verdict.gaps);
        let member = Member {
            name: machine.name().to_owned(),
            created: machine.creation_timestamp(),
            deleting_since: machine.deletion_timestamp(),
        };
        match generations.iter_mut().find(|other| other.is_like(&own)) {
            Some(generation) => generation.members.push(member),
            None => generations.push(Generation {
                members: vec![member],
                ..own
            }),
        }
    }
    History {
        namespace: control_plane.namespace().to_owned(),
        name: control_plane.name().to_owned(),
        generations,
        rollout_after: control_plane.spec.rollout_after,
        events,
        at: now,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use kcp_api::{Machine, machine::Infrastructure, metadata::Time};
    use kcp_control_plane::{
        rollout_events::{DeletedMachine, KnownBy, RolloutEvent, RolloutEvents},
        snapshot::Snapshot,
        testing::{
            objects::{minutes_ago, now},
            plan::{machine, observed, template},
        },
    };

    use crate::commands::rollout::history::{History, history};

    /// Two Machines of an older version, one of which is being deleted, and two Machines of the desired version.
    pub(crate) fn snapshot_during_rollout() -> Snapshot {
        let older = |name: &str, hours| {
            let mut machine = machine(name, "a", hours);
            machine.spec.version = Some("v1.33.4".to_owned());
            machine.infrastructure = Infrastructure::ClonedFrom(template("t0"));
            machine
        };
        let mut leaving = older("m1", 50);
        leaving.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        let mut observed = observed();
        observed.machines = vec![
            machine("m4", "b", 1),
            leaving,
            machine("m3", "c", 2),
            older("m2", 48),
        ];
        observed
    }

    /// The Events about that rollout, during which one Machine was deleted.
    pub(crate) fn events_during_rollout() -> RolloutEvents {
        let event = |minutes, (kind, name): (&str, &str), deleted, reason: &str, note: &str| RolloutEvent {
            first: minutes_ago(minutes),
            last: minutes_ago(minutes),
            kind: kind.to_owned(),
            name: name.to_owned(),
            deleted,
            warning: reason.starts_with("Failed"),
            reason: reason.to_owned(),
            note: note.to_owned(),
            reporter: None,
        };
        let drained = "success draining Machine's node \"node-m0\"";
        RolloutEvents {
            events: vec![
                event(58, ("Machine", "m0"), true, "SuccessfulSetNodeRef", "node-m0"),
                event(
                    50,
                    ("KubeadmControlPlane", "c1-cp"),
                    false,
                    "RolloutStarted",
                    "rollout started by alice",
                ),
                event(40, ("Machine", "m0"), true, "SuccessfulDrainNode", drained),
                event(
                    9,
                    ("Machine", "m4"),
                    false,
                    "FailedDrainNode",
                    "error draining Machine's node",
                ),
            ],
            deleted_machines: vec![DeletedMachine {
                name: "m0".to_owned(),
                known_by: KnownBy::Name,
                node: Some("node-m0".to_owned()),
                joined: Some(minutes_ago(58)),
                last_seen: minutes_ago(40),
            }],
        }
    }

    fn members(history: &History) -> Vec<(Vec<&str>, bool)> {
        let generations = history.generations.iter().map(|generation| {
            let names = generation.members.iter().map(|member| member.name.as_str());
            (names.collect(), generation.is_current())
        });
        generations.collect()
    }

    #[test]
    fn groups_machines_into_generations() {
        type Case = (
            &'static str,
            fn(&mut Machine),
            &'static [(&'static [&'static str], bool)],
        );
        let all: &[(&[&str], bool)] = &[(&["m1", "m2", "m3"], true)];
        let apart: &[(&[&str], bool)] = &[(&["m1", "m3"], true), (&["m2"], false)];
        let cases: &[Case] = &[
            ("alike", |_| {}, all),
            (
                "another_version",
                |m| m.spec.version = Some("v1.33.4".to_owned()),
                apart,
            ),
            (
                "another_template",
                |m| m.infrastructure = Infrastructure::ClonedFrom(template("t0")),
                apart,
            ),
            (
                "unknown_template",
                |m| m.infrastructure = Infrastructure::Missing,
                &[(&["m1", "m3"], true), (&["m2"], true)],
            ),
            (
                "of_another_age",
                |m| m.metadata.creation_timestamp = Some(Time(minutes_ago(60 * 24 * 300))),
                &[(&["m2", "m1", "m3"], true)],
            ),
        ];
        for (name, change, expected) in cases {
            let mut observed = observed();
            change(&mut observed.machines[1]);
            let history = history(&observed, None, now());
            let expected: Vec<_> = expected
                .iter()
                .map(|(names, current)| (names.to_vec(), *current))
                .collect();
            assert_eq!(members(&history), expected, "{name}");
        }
    }

    #[test]
    fn a_restart_separates_older_machines_from_newer() {
        let mut observed = observed();
        let after = minutes_ago(4 * 60 + 30);
        observed.control_plane.spec.rollout_after = Some(after);
        observed.control_plane.spec.rollout_after = Some(after);
        let history = history(&observed, None, now());
        assert_eq!(members(&history), [(vec!["m1"], false), (vec!["m2", "m3"], true)]);
        assert_eq!(history.rollout_after, Some(after));
    }

    #[test]
    fn the_age_of_a_generation_is_that_of_its_machines() {
        let history = history(&snapshot_during_rollout(), None, now());
        assert_eq!(
            members(&history),
            [(vec!["m1", "m2"], false), (vec!["m3", "m4"], true)]
        );
        let created: Vec<_> = history
            .generations
            .iter()
            .map(crate::commands::rollout::history::Generation::creation_times)
            .collect();
        let hours = |from: i64, to: i64| Some((minutes_ago(from * 60), minutes_ago(to * 60)));
        assert_eq!(created, [hours(50, 48), hours(2, 1)]);
    }
}
