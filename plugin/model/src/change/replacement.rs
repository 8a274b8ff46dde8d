//! Allows only one replacement of a Machine at a time. An annotation on the control plane names the Machine that
//! `machine replace` deletes; until that Machine is replaced, other changes are refused.
//!
//! Two deletions at the same time can cost etcd its quorum, and Cluster API's controller then waits forever.

use jiff::{SignedDuration, Timestamp};
use kcp_api::{Machine, Object as _, names::annotation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    change::decision::{Decision, Refusal, RefusedBy},
    join_times::{DEFAULT_JOIN_LIMIT, JoinLimit},
    problem::Problem,
    snapshot::{EtcdMember, EtcdMembers, Snapshot},
    staleness::age,
};

/// A replacement counts as abandoned if the Machine has not been deleted this long after the announcement.
/// The command that announced the replacement has probably ended.
pub const ABANDONED_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// The value of the annotation `machine-replacement`, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    pub machine: String,
    pub uid: String,
    /// When the replacement was announced, according to the API server's clock.
    pub time: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplacementState {
    /// No Machine is being replaced.
    Idle,
    /// A Machine is being replaced. Other changes are refused.
    InProgress {
        machine: String,
        /// What the replacement waits for, such as `the new Machine does not exist yet`.
        waits_for: String,
    },
    /// The replacement was announced, but its Machine was not deleted within [`ABANDONED_AFTER`].
    Abandoned(Replacement),
}

impl Replacement {
    pub fn new(machine: &impl kcp_api::Object, time: Timestamp) -> Self {
        Self {
            machine: machine.name().to_owned(),
            uid: machine.uid().to_owned(),
            time: time.round(jiff::Unit::Second).unwrap_or(time),
        }
    }

    /// The replacement that the annotation announces. `None` if the annotation is absent or cannot be decoded.
    fn announced(observed: &Snapshot) -> Option<Self> {
        let value = observed
            .control_plane
            .annotation(annotation::MACHINE_REPLACEMENT)?;
        serde_json::from_str(value).ok()
    }

    /// The merge patch of the control plane that announces the replacement.
    pub fn announcement(&self) -> Value {
        let value = serde_json::to_string(self).unwrap_or_default();
        json!({"metadata": {"annotations": {annotation::MACHINE_REPLACEMENT: value}}})
    }

    /// The merge patch of the Machine that withdraws a replacement. It changes the Machine's resource version, so that a
    /// late deletion fails with a conflict.
    pub fn withdrawal(&self) -> Value {
        json!({"metadata": {"annotations": {annotation::REPLACEMENT_WITHDRAWN: self.time.to_string()}}})
    }

    fn is_withdrawn(&self, machine: &Machine) -> bool {
        machine.annotation(annotation::REPLACEMENT_WITHDRAWN) == Some(self.time.to_string().as_str())
    }
}

/// Returns the state of the announced replacement. `target` is the Machine that the command changes; the replacement of
/// this Machine never blocks the command.
///
/// Nothing blocks the replacement of a Machine whose etcd member is dead: the removal of a dead member costs etcd nothing, and until
/// then, etcd may admit no new member, so the announced replacement could wait for ever.
pub fn replacement_state(observed: &Snapshot, target: Option<&str>, now: Timestamp) -> ReplacementState {
    let announced = announced_state(observed, target, now);
    let is_in_progress = matches!(announced, ReplacementState::InProgress { .. });
    if is_in_progress && target.is_some_and(|target| has_dead_member(observed, target)) {
        return ReplacementState::Idle;
    }
    announced
}

/// Whether etcd's other members are not connected to the member of the Machine.
pub fn has_dead_member(observed: &Snapshot, machine: &str) -> bool {
    matches!(with_member(observed, machine), Some((_, Some(member))) if member.is_dead())
}

/// Whether the Machine is being deleted and etcd has already removed its member.
pub fn has_left_etcd(observed: &Snapshot, machine: &str) -> bool {
    matches!(with_member(observed, machine), Some((machine, None)) if machine.is_deleting())
}

/// The Machine and its etcd member. `None` if the members or the Machine's Node are unknown.
fn with_member<'o>(observed: &'o Snapshot, machine: &str) -> Option<(&'o Machine, Option<EtcdMember>)> {
    let mut machines = observed.machines.iter();
    let machine = machines.find(|other| other.name() == machine)?;
    let node = observed.node_of(machine)?;
    let EtcdMembers::Read(members) = observed.members() else {
        return None;
    };
    let member = members.into_iter().find(|member| member.name == node);
    Some((machine, member))
}

fn announced_state(observed: &Snapshot, target: Option<&str>, now: Timestamp) -> ReplacementState {
    let Some(replacement) = Replacement::announced(observed) else {
        return ReplacementState::Idle;
    };
    let in_progress = |waits_for: String| ReplacementState::InProgress {
        machine: replacement.machine.clone(),
        waits_for,
    };
    let mut machines = observed.machines.iter();
    let Some(machine) = machines.find(|machine| machine.uid() == replacement.uid) else {
        return match missing_part(observed, &replacement, target, now) {
            Some(waits_for) => in_progress(waits_for),
            None => ReplacementState::Idle,
        };
    };
    if machine.is_deleting() {
        in_progress("the Machine is being deleted".to_owned())
    } else if target == Some(machine.name()) || replacement.is_withdrawn(machine) {
        ReplacementState::Idle
    } else if now.duration_since(replacement.time).abs() < ABANDONED_AFTER {
        in_progress("the Machine is about to be deleted".to_owned())
    } else {
        ReplacementState::Abandoned(replacement)
    }
}

/// What the new Machine still lacks, such as its node. `None` if the replacement is complete.
fn missing_part(
    observed: &Snapshot,
    replacement: &Replacement,
    target: Option<&str>,
    now: Timestamp,
) -> Option<String> {
    let staying = observed.machines.iter().filter(|machine| !machine.is_deleting());
    let is_new = |machine: &&Machine| {
        machine
            .creation_timestamp()
            .is_some_and(|created| created >= replacement.time)
    };
    let members = observed.members();
    // A member that is still missing after this limit is a separate problem.
    let limit = JoinLimit::of(observed).limit.max(DEFAULT_JOIN_LIMIT);
    let is_old = |machine: &Machine| {
        let created = machine.creation_timestamp();
        created.is_some_and(|created| age(created, now) > limit)
    };
    let has_joined = |machine: &Machine| {
        let Some(node) = machine.node() else {
            return false;
        };
        match &members {
            EtcdMembers::External => true,
            // A voter that becomes unhealthy later is a separate problem.
            EtcdMembers::Read(members) => {
                let mut members = members.iter();
                members.any(|member| member.name == node && !member.is_learner) || is_old(machine)
            }
            EtcdMembers::Unread => machine.is_condition_true("EtcdMemberHealthy") || is_old(machine),
        }
    };
    // The first Machine that was created after the announcement is the replacement. Later Machines belong to
    // other changes.
    let new = observed.machines.iter().filter(is_new);
    let Some(new) = new.min_by_key(|machine| machine.creation_timestamp()) else {
        let is_missing = staying.count() < observed.control_plane.spec.replica_count();
        return is_missing.then(|| "the new Machine does not exist yet".to_owned());
    };
    if new.is_deleting() || target == Some(new.name()) || has_joined(new) {
        return None;
    }
    let what = if new.has_node() {
        "its etcd member has not joined yet"
    } else {
        "its node has not joined the cluster yet"
    };
    Some(format!("the new Machine {} exists, but {what}", new.name()))
}

/// Returns the refusal of a change while another Machine is being replaced. `None` if no other Machine is being
/// replaced.
pub fn refusal_during_replacement(
    observed: &Snapshot,
    target: Option<&str>,
    now: Timestamp,
) -> Option<Refusal> {
    let ReplacementState::InProgress { machine, waits_for } = replacement_state(observed, target, now) else {
        return None;
    };
    let (namespace, name) = (observed.control_plane.namespace(), observed.control_plane.name());
    let blocker = Problem::ReplacementInProgress { machine, waits_for };
    let mut refusal = Refusal::new(RefusedBy::Command, vec![blocker.message()]);
    refusal.remedies.push(format!(
        "wait until the Machine is replaced; watch with: kubectl kcp status {name} -n {namespace} --watch"
    ));
    Some(refusal)
}

/// The decision about a Machine while another Machine is being replaced. `refusal` is the result of
/// [`refusal_during_replacement`]. `--force` does not override `refusal`, so `refusal` takes precedence over
/// any refusal that `--force` overrides.
pub fn apply_replacement_refusal(decision: Decision, refusal: Option<Refusal>) -> Decision {
    let is_open = match &decision {
        Decision::Write(_) => true,
        Decision::Refused(own) => own.refused_by == RefusedBy::Preflight,
        Decision::Unchanged(_) => false,
    };
    match refusal {
        Some(refusal) if is_open => Decision::Refused(refusal),
        _ => decision,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kcp_api::{ConditionStatus::True, metadata::Time, names::annotation};

    use super::{
        Replacement,
        ReplacementState::{self, Abandoned, Idle, InProgress},
        apply_replacement_refusal, refusal_during_replacement, replacement_state,
    };
    use crate::{
        change::decision::{Decision, Refusal, RefusedBy},
        snapshot::{EtcdMembers, Snapshot, etcd::EtcdMember},
        testing::{
            objects::{annotate, condition, minutes_ago, now, set},
            plan::observed,
        },
    };

    fn replacement(time: Timestamp) -> Replacement {
        Replacement {
            machine: "m1".to_owned(),
            uid: "u1".to_owned(),
            time,
        }
    }

    /// Three Machines; the replacement of the first one was announced some minutes ago.
    fn announced(minutes: i64) -> Snapshot {
        let mut observed = observed();
        for (machine, uid) in observed.machines.iter_mut().zip(["u1", "u2", "u3"]) {
            machine.metadata.uid = Some(uid.to_owned());
        }
        let value = serde_json::to_string(&replacement(minutes_ago(minutes))).expect("serializes");
        annotate(
            &mut observed.control_plane.metadata,
            annotation::MACHINE_REPLACEMENT,
            &value,
        );
        observed
    }

    /// Replaces the first Machine with a new Machine that has no node.
    fn replaced(observed: &mut Snapshot) {
        let machine = &mut observed.machines[0];
        machine.metadata.name = Some("m4".to_owned());
        machine.metadata.uid = Some("u4".to_owned());
        machine.metadata.creation_timestamp = Some(Time(minutes_ago(1)));
        machine.status.node_name = None;
        machine.status.conditions.clear();
    }

    fn joined(observed: &mut Snapshot) {
        replaced(observed);
        let new = &mut observed.machines[0].status;
        new.node_name = Some("node-m4".to_owned());
        set(&mut new.conditions, condition("EtcdMemberHealthy", True, ""));
    }

    fn has_member(observed: &mut Snapshot, is_learner: bool) {
        replaced(observed);
        observed.machines[0].status.node_name = Some("node-m4".to_owned());
        observed.etcd_members = EtcdMembers::Read(vec![EtcdMember {
            name: "node-m4".to_owned(),
            is_learner,
            fault: Some("has no leader".to_owned()),
            ..EtcdMember::default()
        }]);
    }

    /// The member on Machine `m2` does not respond.
    fn has_dead_member(observed: &mut Snapshot) {
        let member = |name: &str, fault: Option<&str>| EtcdMember {
            name: name.to_owned(),
            fault: fault.map(str::to_owned),
            ..EtcdMember::default()
        };
        observed.etcd_members = EtcdMembers::Read(vec![
            member("node-m2", Some("does not respond")),
            member("node-m3", None),
        ]);
    }

    fn waits_for(text: &str) -> ReplacementState {
        InProgress {
            machine: "m1".to_owned(),
            waits_for: text.to_owned(),
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn a_replacement_lasts_until_the_new_machine_has_joined() {
        type Case = (
            &'static str,
            i64,
            fn(&mut Snapshot),
            Option<&'static str>,
            ReplacementState,
        );
        let cases: Vec<Case> = vec![
            (
                "just announced",
                1,
                |_| {},
                None,
                waits_for("the Machine is about to be deleted"),
            ),
            ("just announced, same Machine", 1, |_| {}, Some("m1"), Idle),
            (
                "just announced, other Machine",
                1,
                |_| {},
                Some("m2"),
                waits_for("the Machine is about to be deleted"),
            ),
            (
                "abandoned",
                2,
                |_| {},
                None,
                Abandoned(replacement(minutes_ago(2))),
            ),
            (
                "announced in the future",
                -2,
                |_| {},
                None,
                Abandoned(replacement(minutes_ago(-2))),
            ),
            (
                "withdrawn",
                2,
                |o| {
                    let time = minutes_ago(2).to_string();
                    annotate(
                        &mut o.machines[0].metadata,
                        annotation::REPLACEMENT_WITHDRAWN,
                        &time,
                    );
                },
                None,
                Idle,
            ),
            (
                "withdrawn before",
                1,
                |o| {
                    let time = minutes_ago(2).to_string();
                    annotate(
                        &mut o.machines[0].metadata,
                        annotation::REPLACEMENT_WITHDRAWN,
                        &time,
                    );
                },
                None,
                waits_for("the Machine is about to be deleted"),
            ),
            (
                "deleting",
                9,
                |o| o.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(8))),
                Some("m2"),
                waits_for("the Machine is being deleted"),
            ),
            (
                "deleted",
                9,
                |o| drop(o.machines.remove(0)),
                None,
                waits_for("the new Machine does not exist yet"),
            ),
            (
                "starting",
                9,
                replaced,
                Some("m2"),
                waits_for("the new Machine m4 exists, but its node has not joined the cluster yet"),
            ),
            ("starting, the new one itself", 9, replaced, Some("m4"), Idle),
            (
                "without a member",
                9,
                |o| {
                    replaced(o);
                    o.machines[0].status.node_name = Some("node-m4".to_owned());
                },
                None,
                waits_for("the new Machine m4 exists, but its etcd member has not joined yet"),
            ),
            (
                "long without a member",
                12,
                |o| {
                    replaced(o);
                    o.machines[0].status.node_name = Some("node-m4".to_owned());
                    o.machines[0].metadata.creation_timestamp = Some(Time(minutes_ago(11)));
                },
                None,
                Idle,
            ),
            (
                "the new Machine is deleted later",
                9,
                |o| {
                    joined(o);
                    o.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(0)));
                },
                None,
                Idle,
            ),
            (
                "with a learner",
                9,
                |o| has_member(o, true),
                None,
                waits_for("the new Machine m4 exists, but its etcd member has not joined yet"),
            ),
            (
                "with a voter that has failed",
                9,
                |o| has_member(o, false),
                None,
                Idle,
            ),
            (
                "without a replacement, a dead member",
                9,
                |o| {
                    o.machines.remove(0);
                    has_dead_member(o);
                },
                Some("m2"),
                Idle,
            ),
            (
                "without a replacement, a live member",
                9,
                |o| {
                    o.machines.remove(0);
                    has_dead_member(o);
                },
                Some("m3"),
                waits_for("the new Machine does not exist yet"),
            ),
            ("joined", 9, joined, None, Idle),
            (
                "joined, and then scaled up",
                9,
                |o| {
                    joined(o);
                    o.control_plane.spec.replicas = Some(5);
                },
                None,
                Idle,
            ),
            (
                "joined, and another Machine starts in a rollout",
                9,
                |o| {
                    joined(o);
                    let mut another = o.machines[0].clone();
                    another.metadata.name = Some("m5".to_owned());
                    another.metadata.uid = Some("u5".to_owned());
                    another.metadata.creation_timestamp = Some(Time(minutes_ago(0)));
                    another.status.node_name = None;
                    o.machines.insert(0, another);
                },
                None,
                Idle,
            ),
            (
                "not a record",
                1,
                |o| {
                    annotate(
                        &mut o.control_plane.metadata,
                        annotation::MACHINE_REPLACEMENT,
                        "?",
                    );
                },
                None,
                Idle,
            ),
        ];
        for (name, minutes, change, target, expected) in cases {
            let mut observed = announced(minutes);
            change(&mut observed);
            assert_eq!(replacement_state(&observed, target, now()), expected, "{name}");
        }
        assert_eq!(replacement_state(&observed(), None, now()), Idle);
    }

    #[test]
    fn a_replacement_counts_more_than_what_force_overrides() {
        let refusal = |refused_by| Refusal::new(refused_by, vec![format!("{refused_by:?}")]);
        let replacement = || refusal_during_replacement(&announced(1), None, now());
        let refused = |refusal| Decision::Refused(refusal);
        let by_replacement = || refused(replacement().expect("in progress"));
        for (decision, expected) in [
            (refused(refusal(RefusedBy::Preflight)), by_replacement()),
            (
                refused(refusal(RefusedBy::Command)),
                refused(refusal(RefusedBy::Command)),
            ),
            (
                Decision::Unchanged("so".to_owned()),
                Decision::Unchanged("so".to_owned()),
            ),
        ] {
            assert_eq!(
                apply_replacement_refusal(decision.clone(), replacement()),
                expected
            );
            assert_eq!(apply_replacement_refusal(decision.clone(), None), decision);
        }
    }

    #[test]
    fn a_change_is_refused_with_the_reason() {
        let refusal = refusal_during_replacement(&announced(1), None, now()).expect("refused");
        assert_eq!(
            refusal.why,
            ["Machine m1 is being replaced: the Machine is about to be deleted"]
        );
        assert_eq!(refusal_during_replacement(&announced(1), Some("m1"), now()), None);
        // A takeover first withdraws the announcement.
        assert_eq!(refusal_during_replacement(&announced(2), None, now()), None);
    }
}
