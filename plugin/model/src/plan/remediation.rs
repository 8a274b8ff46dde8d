//! Which Machine is replaced because it is unhealthy, and what keeps it.
//!
//! As `reconcileUnhealthyMachines` of Cluster API: one Machine at a time, before any rollout or scaling, without its
//! preflight.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::plan::{
    quorum::Change,
    spec::RemediationLimits,
    state::{COMPONENT_CONDITIONS, HealthCheck, LABELS, Replica, State},
};

/// What remediation comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// The Machine that comes first.
    pub machine: String,
    /// What keeps it from being replaced; none when it is replaced.
    pub kept_by: Option<Obstacle>,
}

/// What keeps a Machine from being replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Obstacle {
    /// It is being deleted already.
    BeingDeleted,
    /// The replacement of another has yet to be made.
    AnotherInProgress,
    /// The managed topology goes to another version first.
    TopologyVersion,
    /// It was tried not long ago.
    TriedRecently {
        /// When it may be tried again.
        until: Timestamp,
    },
    /// It was tried as often as is allowed.
    TriedTooOften {
        /// How often.
        retries: i64,
    },
    /// There is no other Machine.
    LastMachine,
    /// Another Machine is coming up.
    AnotherComingUp {
        /// Which.
        machine: String,
    },
    /// Another Machine is being deleted.
    AnotherBeingDeleted {
        /// Which.
        machine: String,
    },
    /// etcd's members are not known.
    MembersUnknown,
    /// No other Machine has all its components working.
    NoOtherWorks,
    /// etcd could lose its quorum.
    Quorum,
}

/// What remediation is limited by beside the state.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'t> {
    /// The control plane's own limits.
    pub limits: &'t RemediationLimits,
    /// Whether the first Machine has ever come up.
    pub initialized: bool,
    /// Whether the managed topology goes to another version first.
    pub topology_moves: bool,
    /// What time it is.
    pub now: Timestamp,
}

/// What remediation comes to; none when no Machine is to be replaced.
pub fn outlook(state: &State, terms: Terms<'_>) -> Option<Outlook> {
    let waiting = state
        .replicas
        .iter()
        .filter(|replica| replica.awaits_remediation());
    let first = waiting.min_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.age_order(b)))?;
    Some(Outlook {
        machine: first.name.clone(),
        kept_by: obstacle(state, first, terms),
    })
}

/// The most broken first: marked, without a node, then by the conditions that do not hold.
fn order(replica: &Replica) -> impl Ord {
    let conditions = COMPONENT_CONDITIONS
        .iter()
        .map(|(condition, _)| *condition)
        .chain([LABELS]);
    let sound: Vec<bool> = conditions
        .map(|condition| !replica.has_fault(condition))
        .collect();
    (
        replica.health != HealthCheck::AwaitsRemediationFirst,
        replica.node.is_some(),
        sound,
    )
}

fn obstacle(state: &State, first: &Replica, terms: Terms<'_>) -> Option<Obstacle> {
    if first.is_deleting() {
        return Some(Obstacle::BeingDeleted);
    }
    if state.remediation_in_progress {
        return Some(Obstacle::AnotherInProgress);
    }
    if terms.topology_moves {
        return Some(Obstacle::TopologyVersion);
    }
    if let Some(obstacle) = retry_obstacle(first, terms) {
        return Some(obstacle);
    }
    // A control plane that has never come up has nothing to lose.
    if terms.initialized {
        danger(state, first)
    } else {
        None
    }
}

fn retry_obstacle(first: &Replica, Terms { limits, now, .. }: Terms<'_>) -> Option<Obstacle> {
    let last = first.remediation_for.as_ref()?;
    let since = last.time?;
    let ends = |period: SignedDuration| since.checked_add(period).unwrap_or(Timestamp::MAX);
    if ends(limits.min_healthy_period) <= now {
        return None;
    }
    let until = ends(limits.retry_period);
    if until > now {
        return Some(Obstacle::TriedRecently { until });
    }
    let too_often = limits.max_retry.is_some_and(|most| last.retries >= most);
    too_often.then_some(Obstacle::TriedTooOften {
        retries: last.retries,
    })
}

fn danger(state: &State, first: &Replica) -> Option<Obstacle> {
    if state.replicas.len() <= 1 {
        return Some(Obstacle::LastMachine);
    }
    let coming_up = |replica: &&Replica| replica.node.is_none() && replica.health == HealthCheck::Passed;
    if let Some(other) = state.replicas.iter().find(coming_up) {
        return Some(Obstacle::AnotherComingUp {
            machine: other.name.clone(),
        });
    }
    if let Some(other) = state.replicas.iter().find(|replica| replica.is_deleting()) {
        return Some(Obstacle::AnotherBeingDeleted {
            machine: other.name.clone(),
        });
    }
    // With an etcd that runs elsewhere the controller knows no members either, and never remediates (v1.14).
    if state.members.as_ref().is_none_or(Vec::is_empty) {
        return Some(Obstacle::MembersUnknown);
    }
    let other_works = |replica: &Replica| replica.name != first.name && replica.runs_components();
    if !state.replicas.iter().any(other_works) {
        return Some(Obstacle::NoOtherWorks);
    }
    // What no node is known of takes no member with it: the controller goes on.
    let removed = first.node.as_deref().map(Change::Removed)?;
    (!state.is_safe(removed)).then_some(Obstacle::Quorum)
}

#[cfg(test)]
mod tests {
    use super::{Obstacle, Outlook, RemediationLimits, State, Terms, outlook};
    use crate::{
        control_plane::example::{minutes_ago, now},
        plan::{
            example::{replicas, state},
            observed::Remediation,
        },
    };

    fn look(state: &State) -> Option<Outlook> {
        look_under(state, &RemediationLimits::default())
    }

    fn look_under(state: &State, limits: &RemediationLimits) -> Option<Outlook> {
        outlook(
            state,
            Terms {
                limits,
                initialized: true,
                topology_moves: false,
                now: now(),
            },
        )
    }

    /// `r` awaits remediation, `R` is marked for it besides, `p` has no node, `e` its member is not healthy.
    #[test]
    fn the_most_broken_comes_first() {
        for (machines, first) in [
            ("m1 m2 m3r", Some("m3")),
            ("m1 m2 m3", None),
            // A component failed, and no health check has said so.
            ("m1 m2 m3f", None),
            ("m1r m2R m3pr", Some("m2")),
            ("m1re m2pr m3", Some("m2")),
            ("m1rf m2re m3", Some("m2")),
            ("m1r m2rf m3", Some("m2")),
            ("m1r m2r m3", Some("m1")),
        ] {
            let outlook = look(&state(machines)).map(|outlook| outlook.machine);
            assert_eq!(outlook.as_deref(), first, "{machines}");
        }
    }

    #[test]
    fn what_keeps_a_machine_from_being_replaced() {
        let coming_up = |machine: &str| Obstacle::AnotherComingUp {
            machine: machine.to_owned(),
        };
        let cases = [
            ("m1 m2 m3r", None),
            ("m1 m2 m3rx", Some(Obstacle::BeingDeleted)),
            ("m1r", Some(Obstacle::LastMachine)),
            ("m1 m2 m3r m4p", Some(coming_up("m4"))),
            // One without a node that is unhealthy itself does not count as coming up.
            ("m1 m2 m3pr", None),
            (
                "m1 m2 m3x m4r",
                Some(Obstacle::AnotherBeingDeleted {
                    machine: "m3".to_owned(),
                }),
            ),
            ("m1f m2f m3r", Some(Obstacle::NoOtherWorks)),
            ("m1 m2e m3re", Some(Obstacle::Quorum)),
            ("m1 m2 m3re", None),
            ("m1 m2 m3 m4e m5re", None),
            ("m1 m2 m3e m4e m5re", Some(Obstacle::Quorum)),
            ("m1 m2r", None),
            ("m1e m2r", Some(Obstacle::Quorum)),
            ("m1 m2l m3r", Some(Obstacle::Quorum)),
        ];
        for (machines, kept_by) in cases {
            assert_eq!(
                look(&state(machines)).expect("one waits").kept_by,
                kept_by,
                "{machines}"
            );
        }
    }

    #[test]
    fn a_control_plane_that_never_came_up_has_nothing_to_lose() {
        let limits = RemediationLimits::default();
        let mut terms = Terms {
            limits: &limits,
            initialized: false,
            topology_moves: false,
            now: now(),
        };
        let only = state("m1pr");
        assert_eq!(outlook(&only, terms).expect("one waits").kept_by, None);
        terms.topology_moves = true;
        assert_eq!(
            outlook(&only, terms).expect("one waits").kept_by,
            Some(Obstacle::TopologyVersion)
        );
    }

    #[test]
    fn another_remediation_is_waited_for() {
        let mut state = state("m1 m2 m3r");
        state.remediation_in_progress = true;
        assert_eq!(
            look(&state).expect("one waits").kept_by,
            Some(Obstacle::AnotherInProgress)
        );
    }

    #[test]
    fn an_etcd_elsewhere_is_never_remediated() {
        let state = State {
            members: None,
            ..state("m1 m2 m3r")
        };
        assert_eq!(
            look(&state).expect("one waits").kept_by,
            Some(Obstacle::MembersUnknown)
        );
    }

    #[test]
    fn retries_count_within_the_time_that_a_machine_has_to_stay_healthy() {
        let limits = RemediationLimits {
            max_retry: Some(2),
            retry_period: jiff::SignedDuration::from_mins(10),
            ..RemediationLimits::default()
        };
        let recently = Obstacle::TriedRecently {
            until: minutes_ago(-5),
        };
        for (minutes, retries, kept_by) in [
            (Some(5), 0, Some(recently)),
            (Some(10), 1, None),
            (Some(11), 2, Some(Obstacle::TriedTooOften { retries: 2 })),
            (Some(59), 3, Some(Obstacle::TriedTooOften { retries: 3 })),
            (Some(60), 3, None),
            (None, 3, None),
        ] {
            let mut state = state("m1 m2");
            state.replicas.extend(replicas("m3r"));
            for replica in &mut state.replicas {
                replica.remediation_for = Some(Remediation {
                    machine: "m0".to_owned(),
                    time: minutes.map(minutes_ago),
                    retries,
                });
            }
            let outlook = look_under(&state, &limits).expect("one waits");
            assert_eq!(outlook.kept_by, kept_by, "{minutes:?} minutes, {retries} retries");
        }
    }
}
