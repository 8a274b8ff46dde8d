//! Decides which unhealthy Machine the controller replaces next, and what blocks this remediation.
//!
//! The decision follows `reconcileUnhealthyMachines` of Cluster API: the controller remediates one Machine at a time,
//! before rollouts and scaling, and without their preflight checks.

use jiff::{SignedDuration, Timestamp};
use kcp_api::{KubeadmControlPlaneSpec, control_plane::RemediationLimits};
use serde::Serialize;

use crate::{
    controller_release::Behaviour,
    plan::state::{HealthCheck, LABELS_AND_TAINTS, PlanState, Replica, component_conditions},
    problem::Problem,
    quorum::{Change, Votes},
    snapshot::Snapshot,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Outlook"))]
#[serde(rename_all = "camelCase")]
pub struct NextRemediation {
    pub machine: String,
    /// What blocks the remediation. `None` if the controller replaces the Machine now.
    #[serde(rename = "keptBy")]
    pub blocked_by: Option<Problem>,
}

#[derive(Clone, Copy, Debug)]
pub struct RemediationContext<'t> {
    pub limits: &'t RemediationLimits,
    /// Whether the control plane has been initialized.
    pub initialized: bool,
    /// The version that the Cluster's topology requires first. `None` if no version is pending.
    pub topology_version: Option<&'t str>,
    pub now: Timestamp,
}

impl<'t> RemediationContext<'t> {
    pub fn new(observed: &'t Snapshot, spec: &'t KubeadmControlPlaneSpec, now: Timestamp) -> Self {
        Self {
            limits: &spec.remediation,
            initialized: observed.control_plane.status.initialized,
            topology_version: observed.topology_version(spec),
            now,
        }
    }
}

/// Returns the next remediation. `None` if no Machine waits for one.
pub fn next_remediation(state: &PlanState, terms: RemediationContext<'_>) -> Option<NextRemediation> {
    let terms = RemediationContext {
        now: state.waited_until.map_or(terms.now, |clock| clock.max(terms.now)),
        ..terms
    };
    let waiting = state
        .replicas
        .iter()
        .filter(|replica| replica.awaits_remediation());
    let first = waiting.min_by(|a, b| {
        remediation_order(a)
            .cmp(&remediation_order(b))
            .then_with(|| a.age_order(b))
    })?;
    Some(NextRemediation {
        machine: first.name.clone(),
        blocked_by: remediation_blocker(state, first, terms),
    })
}

/// Returns a key that sorts the most urgent remediation first: annotated Machines, then Machines without a node, then
/// Machines by their failed conditions.
fn remediation_order(replica: &Replica) -> impl Ord {
    let conditions = component_conditions(true).chain([LABELS_AND_TAINTS]);
    let sound: Vec<bool> = conditions
        .map(|condition| !replica.has_fault(condition))
        .collect();
    (
        replica.health != HealthCheck::AwaitsRemediationFirst,
        replica.node.is_some(),
        sound,
    )
}

fn remediation_blocker(state: &PlanState, first: &Replica, terms: RemediationContext<'_>) -> Option<Problem> {
    if first.is_deleting() {
        return Some(Problem::BeingDeleted {
            machine: first.name.clone(),
            message: None,
        });
    }
    if state.has_malformed_remediation {
        return Some(Problem::MalformedRemediation { machine: None });
    }
    if state.has_remediation_in_progress {
        return Some(Problem::AnotherInProgress);
    }
    if let Some(version) = terms.topology_version {
        return Some(Problem::TopologyVersion {
            version: version.to_owned(),
        });
    }
    if let Some(blocker) = retry_blocker(first, terms) {
        return Some(blocker);
    }
    // A control plane that was never initialized has no data.
    if terms.initialized {
        loss_blocker(state, first)
    } else {
        None
    }
}

fn retry_blocker(
    first: &Replica,
    RemediationContext { limits, now, .. }: RemediationContext<'_>,
) -> Option<Problem> {
    let last = first.remediation_for.as_ref()?;
    if last.is_malformed {
        return Some(Problem::MalformedRemediation {
            machine: Some(first.name.clone()),
        });
    }
    let since = last.timestamp?;
    let ends = |period: SignedDuration| since.checked_add(period).unwrap_or(Timestamp::MAX);
    // From this time on, earlier remediations no longer count.
    let forgotten = ends(limits.min_healthy_period);
    if forgotten <= now {
        return None;
    }
    let is_exhausted = limits.max_retry.is_some_and(|most| last.retry_count >= most);
    let retry = ends(limits.retry_period);
    if retry > now {
        let until = if is_exhausted {
            forgotten
        } else {
            retry.min(forgotten)
        };
        return Some(Problem::TriedRecently { until });
    }
    is_exhausted.then_some(Problem::TriedTooOften {
        retries: last.retry_count,
        until: forgotten,
    })
}

fn loss_blocker(state: &PlanState, first: &Replica) -> Option<Problem> {
    if state.replicas.len() <= 1 {
        return Some(Problem::LastMachine);
    }
    let coming_up = |replica: &&Replica| replica.node.is_none() && replica.health == HealthCheck::Passed;
    if let Some(other) = state.replicas.iter().find(coming_up) {
        return Some(Problem::AnotherComingUp {
            machine: other.name.clone(),
        });
    }
    if let Some(other) = state.replicas.iter().find(|replica| replica.is_deleting()) {
        return Some(Problem::AnotherBeingDeleted {
            machine: other.name.clone(),
        });
    }
    match &state.members {
        // The controller lists no members of an external etcd, and stops because the list is empty.
        None if state.release.has(Behaviour::RequiresMemberList) => {
            return Some(Problem::ExternalEtcd {
                machine: first.name.clone(),
            });
        }
        Some(members) if members.is_empty() => return Some(Problem::MembersUnknown),
        _ => {}
    }
    if let Some(message) = state.unread_by_controller.clone() {
        return Some(Problem::MembersUnreadByController { message });
    }
    if let Some(blocker) = state.leader_blocker(first) {
        return Some(blocker);
    }
    if state.release.has(Behaviour::RequiresWorkingMachine) && !state.works_without(first) {
        return Some(Problem::NoOtherWorks);
    }
    // If no node belongs to the Machine, the controller does not find its etcd member and does not check the quorum.
    let removed = first.member.as_deref().map(Change::Removed)?;
    // Without quorum, the controller cannot list the members.
    if let Some(votes) = state.members.as_deref().and_then(Votes::lost_quorum_votes) {
        let blocker = state.quorum_blocker(removed);
        return blocker.or(Some(Problem::Quorum { votes }));
    }
    // The controller does not know that a listed member is dead. etcd may refuse the removal later.
    state.as_seen_by_controller().quorum_blocker(removed)
}

#[cfg(test)]
mod tests {
    use kcp_api::Remediation;

    use super::{
        NextRemediation, PlanState, Problem, RemediationContext, RemediationLimits, next_remediation,
    };
    use crate::{
        controller_release::Release,
        quorum::Votes,
        testing::{
            objects::{minutes_ago, now},
            plan::{replicas, state},
        },
    };

    fn look(state: &PlanState) -> Option<NextRemediation> {
        look_under(state, &RemediationLimits::default())
    }

    fn look_under(state: &PlanState, limits: &RemediationLimits) -> Option<NextRemediation> {
        next_remediation(
            state,
            RemediationContext {
                limits,
                initialized: true,
                topology_version: None,
                now: now(),
            },
        )
    }

    /// `r` awaits remediation, `R` also has the annotation, `p` has no node, and `e` has an unhealthy etcd
    /// member.
    #[test]
    fn the_most_broken_comes_first() {
        for (machines, first) in [
            ("m1 m2 m3r", Some("m3")),
            ("m1 m2 m3", None),
            // A component has failed, but no health check has reported it.
            ("m1 m2 m3f", None),
            ("m1r m2R m3pr", Some("m2")),
            ("m1re m2pr m3", Some("m2")),
            ("m1rf m2re m3", Some("m2")),
            ("m1r m2rf m3", Some("m2")),
            ("m1r m2r m3", Some("m1")),
        ] {
            let next = look(&state(machines)).map(|next| next.machine);
            assert_eq!(next.as_deref(), first, "{machines}");
        }
    }

    #[test]
    fn what_keeps_a_machine_from_being_replaced() {
        let quorum = |voters, unhealthy, starting| {
            let votes = Votes {
                voters,
                unhealthy,
                starting,
            };
            Some(Problem::Quorum { votes })
        };
        let coming_up = |machine: &str| Problem::AnotherComingUp {
            machine: machine.to_owned(),
        };
        let cases = [
            ("m1 m2 m3r", None),
            (
                "m1 m2 m3rx",
                Some(Problem::BeingDeleted {
                    machine: "m3".to_owned(),
                    message: None,
                }),
            ),
            ("m1r", Some(Problem::LastMachine)),
            ("m1 m2 m3r m4p", Some(coming_up("m4"))),
            // A Machine without a node that is itself unhealthy does not count as starting.
            ("m1 m2 m3pr", None),
            (
                "m1 m2 m3x m4r",
                Some(Problem::AnotherBeingDeleted {
                    machine: "m3".to_owned(),
                }),
            ),
            ("m1f m2f m3r", Some(Problem::NoOtherWorks)),
            ("m1 m2e m3re", quorum(2, 1, 0)),
            ("m1 m2 m3re", None),
            // The controller does not know that the member of the other Machine is dead.
            ("m1 m2s m3r", None),
            ("m1 m2 m3 m4e m5re", None),
            ("m1 m2 m3e m4e m5re", quorum(4, 2, 0)),
            ("m1 m2r", None),
            ("m1e m2r", quorum(1, 1, 0)),
            ("m1 m2l m3r", quorum(1, 0, 1)),
        ];
        for (machines, blocked_by) in cases {
            assert_eq!(
                look(&state(machines)).expect("one waits").blocked_by,
                blocked_by,
                "{machines}"
            );
        }
    }

    #[test]
    fn a_control_plane_that_never_came_up_has_nothing_to_lose() {
        let limits = RemediationLimits::default();
        let mut terms = RemediationContext {
            limits: &limits,
            initialized: false,
            topology_version: None,
            now: now(),
        };
        let only = state("m1pr");
        assert_eq!(
            next_remediation(&only, terms).expect("one waits").blocked_by,
            None
        );
        terms.topology_version = Some("v1.35.0");
        assert_eq!(
            next_remediation(&only, terms).expect("one waits").blocked_by,
            Some(Problem::TopologyVersion {
                version: "v1.35.0".to_owned()
            })
        );
    }

    #[test]
    fn another_remediation_is_waited_for() {
        let mut state = state("m1 m2 m3r");
        state.has_remediation_in_progress = true;
        assert_eq!(
            look(&state).expect("one waits").blocked_by,
            Some(Problem::AnotherInProgress)
        );
    }

    #[test]
    fn a_record_that_cannot_be_decoded_stops_the_controller() {
        let mut of_control_plane = state("m1 m2 m3r");
        of_control_plane.has_remediation_in_progress = true;
        of_control_plane.has_malformed_remediation = true;
        let blocked_by = |state: &PlanState| look(state).expect("one waits").blocked_by;
        assert_eq!(
            blocked_by(&of_control_plane),
            Some(Problem::MalformedRemediation { machine: None })
        );
        let mut of_machine = state("m1 m2 m3r");
        of_machine.replicas[2].remediation_for = Some(Remediation {
            is_malformed: true,
            ..Remediation::default()
        });
        assert_eq!(
            blocked_by(&of_machine),
            Some(Problem::MalformedRemediation {
                machine: Some("m3".to_owned())
            })
        );
    }

    #[test]
    fn since_v1_13_an_etcd_elsewhere_is_never_remediated() {
        let never = Problem::ExternalEtcd {
            machine: "m3".to_owned(),
        };
        for (release, blocked_by) in [
            (Release::LATEST, Some(never.clone())),
            (Release::new(13, 0), Some(never)),
            (Release::new(12, 10), None),
        ] {
            let state = PlanState {
                members: None,
                release,
                ..state("m1 m2 m3r")
            };
            assert_eq!(
                look(&state).expect("one waits").blocked_by,
                blocked_by,
                "{release}"
            );
        }
    }

    #[test]
    fn before_v1_13_no_other_machine_needs_to_work() {
        let blocked_by = |release| {
            let state = PlanState {
                release,
                ..state("m1f m2f m3r")
            };
            look(&state).expect("one waits").blocked_by
        };
        assert_eq!(blocked_by(Release::new(13, 0)), Some(Problem::NoOtherWorks));
        assert_eq!(blocked_by(Release::new(12, 10)), None);
    }

    #[test]
    fn since_v1_14_an_unreachable_leader_keeps_only_its_own_machine() {
        let blocked_by = |release, machines: &str| {
            let state = PlanState {
                release,
                unreachable_leader: Some("node-m1".to_owned()),
                ..state(machines)
            };
            look(&state).expect("one waits").blocked_by
        };
        let member = || "node-m1".to_owned();
        let of_own = Problem::LeaderUnreachable {
            member: member(),
            machine: Some("m1".to_owned()),
        };
        let of_any = Problem::LeaderUnreachable {
            member: member(),
            machine: None,
        };
        assert_eq!(blocked_by(Release::new(14, 0), "m1 m2 m3r"), None);
        assert_eq!(blocked_by(Release::new(14, 0), "m1r m2 m3"), Some(of_own));
        assert_eq!(blocked_by(Release::new(13, 6), "m1 m2 m3r"), Some(of_any.clone()));
        assert_eq!(blocked_by(Release::new(11, 5), "m1r m2 m3"), Some(of_any));
    }

    #[test]
    fn a_controller_that_cannot_read_etcd_counts_no_votes() {
        let message = "Failed to get answer from the etcd cluster".to_owned();
        let mut state = state("m1u m2u m3ru");
        state.unread_by_controller = Some(message.clone());
        assert_eq!(
            look(&state).expect("one waits").blocked_by,
            Some(Problem::MembersUnreadByController { message })
        );
    }

    #[test]
    fn retries_count_within_the_time_that_a_machine_has_to_stay_healthy() {
        let limits = RemediationLimits {
            max_retry: Some(2),
            retry_period: jiff::SignedDuration::from_mins(10),
            ..RemediationLimits::default()
        };
        let recently = Problem::TriedRecently {
            until: minutes_ago(-5),
        };
        let exhausted = |retries, until| Some(Problem::TriedTooOften { retries, until });
        for (minutes, retries, blocked_by) in [
            (Some(5), 0, Some(recently)),
            // The retry would exceed the maximum.
            (
                Some(5),
                2,
                Some(Problem::TriedRecently {
                    until: minutes_ago(-55),
                }),
            ),
            (Some(10), 1, None),
            (Some(11), 2, exhausted(2, minutes_ago(-49))),
            (Some(59), 3, exhausted(3, minutes_ago(-1))),
            (Some(60), 3, None),
            (None, 3, None),
        ] {
            let mut state = state("m1 m2");
            state.replicas.extend(replicas("m3r"));
            for replica in &mut state.replicas {
                replica.remediation_for = Some(Remediation {
                    machine: "m0".to_owned(),
                    timestamp: minutes.map(minutes_ago),
                    retry_count: retries,
                    is_malformed: false,
                });
            }
            let next = look_under(&state, &limits).expect("one waits");
            assert_eq!(
                next.blocked_by, blocked_by,
                "{minutes:?} minutes, {retries} retries"
            );
        }
    }
}
