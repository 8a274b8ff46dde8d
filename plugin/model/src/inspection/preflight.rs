//! What may be done now: by what the controller goes by, and by the preflight checks that Cluster API's proposal asks
//! for and the controller has dropped.

pub mod blocker;

use blocker::{control_plane, of_controller, of_obstacle};
use jiff::Timestamp;

use crate::{
    checks::{
        Check, all, components::machines_without_etcd, etcd_quorum::is_without_etcd,
        machine_grace::are_machines_read, membership::Membership, rollout::up_to_date,
    },
    inspection::{Blocker, Checked, Finding, Outcome, Permission, Preflight, Remediation},
    plan::{
        course::{Choice, Step},
        deletion_order::Group,
        failure_domain::Why,
        preflight as plan,
        quorum::Change,
        remediation::{self, Terms},
        state::{Deletion, HealthCheck, Replica, State},
        step::{Action, Purpose},
    },
    snapshot::Observed,
};

/// The control plane as decisions look at it: etcd's members are those that the survey has found, or else one for each
/// Machine, unhealthy where its pod is known not to be well.
pub fn state(observed: &Observed, now: Timestamp) -> State {
    let verdicts = up_to_date(observed, now);
    let is_outdated = |name: &str| {
        let verdict = verdicts.iter().find(|verdict| verdict.machine == name);
        verdict.is_some_and(|verdict| !verdict.reasons.is_empty())
    };
    let mut state = State::of(&observed.management.control_plane, is_outdated);
    let survey = observed.etcd.read().filter(|survey| survey.stacked);
    let members = survey.map(|survey| Membership::of(survey).members(observed, now));
    if state.members.is_none() {
        return state;
    }
    if let Some(members) = members.filter(|members| !members.is_empty()) {
        state.members = Some(members);
    } else {
        let without_etcd = machines_without_etcd(observed);
        let broken: Vec<String> = state
            .replicas
            .iter()
            .filter(|replica| {
                has_failed(replica, "EtcdPodHealthy") || without_etcd.contains(replica.name.as_str())
            })
            .map(|replica| replica.name.clone())
            .collect();
        let is_without_etcd = is_without_etcd(observed);
        for member in state.members.iter_mut().flatten() {
            let is_broken = member.machine.as_ref().is_some_and(|name| broken.contains(name));
            member.is_healthy &= !is_broken && !is_without_etcd;
        }
    }
    state
}

fn has_failed(replica: &Replica, condition: &str) -> bool {
    let mut faults = replica.faults.iter();
    faults.any(|fault| fault.condition == condition && fault.is_false)
}

fn terms(observed: &Observed, now: Timestamp) -> Terms<'_> {
    let of = &observed.management.control_plane;
    Terms {
        limits: &of.spec.remediation,
        initialized: of.control_plane.initialized,
        topology_moves: plan::topology_version(of, &of.spec).is_some(),
        now,
    }
}

/// Which Machine is replaced next because it is unhealthy, and what keeps it; none when none waits for that.
pub fn next_remediation(observed: &Observed, now: Timestamp) -> Option<remediation::Outlook> {
    remediation::outlook(&state(observed, now), terms(observed, now))
}

/// What may be done now.
pub fn preflight(observed: &Observed, checks: &[Checked], now: Timestamp) -> Preflight {
    let state = state(observed, now);
    let scale_up = permission(checks, scale_up(observed, &state), |_| true);
    let marked: Vec<String> = state
        .replicas
        .iter()
        .filter(|replica| replica.deletion == Deletion::Marked)
        .map(|replica| format!("Machine/{}", replica.name))
        .collect();
    // What is wrong with the Machine that goes does not count.
    let scale_down = permission(checks, scale_down(observed, &state), |finding| {
        marked.is_empty() || !finding.objects.iter().any(|object| marked.contains(object))
    });
    let mut rollout = if observed.management.control_plane.spec.max_surge > 0 {
        scale_up.clone()
    } else {
        scale_down.clone()
    };
    let endless: Vec<Blocker> = failing(checks, |check| check.id == "rollout-ends", Outcome::Fail, &|_| {
        true
    });
    if !endless.is_empty() {
        rollout.allowed = Some(false);
        rollout.blocked_by.extend(endless);
    }
    Preflight {
        scale_up,
        scale_down,
        rollout,
        remediation: state
            .replicas
            .iter()
            .map(|replica| Remediation {
                machine: replica.name.clone(),
                permission: remediated(observed, checks, &state, &replica.name, now),
            })
            .collect(),
    }
}

/// What keeps the controller, and what the checks of the preflight have found; or what keeps us from telling.
fn permission(
    checks: &[Checked],
    mut blockers: Vec<Blocker>,
    counts: impl Fn(&Finding) -> bool,
) -> Permission {
    let found = failing(checks, |check| check.is_preflight, Outcome::Fail, &counts);
    // Of what both tell, the check knows more.
    blockers.retain(|blocker| {
        let is_told = |other: &Blocker| {
            other.check == blocker.check
                && blocker
                    .objects
                    .iter()
                    .all(|object| other.objects.contains(object))
        };
        !found.iter().any(is_told)
    });
    blockers.extend(found);
    decided(checks, blockers)
}

fn decided(checks: &[Checked], blockers: Vec<Blocker>) -> Permission {
    if !blockers.is_empty() {
        return Permission {
            allowed: Some(false),
            blocked_by: blockers,
        };
    }
    let is_open = checks
        .iter()
        .any(|checked| checked.outcome == Outcome::Unknown && is_preflight(checked));
    let unread = if is_open {
        failing(
            checks,
            |check| check.is_preflight || SOURCES.contains(&check.id),
            Outcome::Unknown,
            &|_| true,
        )
    } else {
        Vec::new()
    };
    Permission {
        allowed: unread.is_empty().then_some(true),
        blocked_by: unread,
    }
}

/// Checks of what the others need.
const SOURCES: [&str; 4] = [
    "management-readable",
    "workload-reachable",
    "etcd-reachable",
    "permissions",
];

fn is_preflight(checked: &Checked) -> bool {
    crate::checks::find(checked.id).is_some_and(|check| check.is_preflight)
}

fn failing(
    checks: &[Checked],
    is_wanted: impl Fn(&Check) -> bool,
    outcome: Outcome,
    counts: &dyn Fn(&Finding) -> bool,
) -> Vec<Blocker> {
    let wanted = all().filter(|check| is_wanted(check));
    wanted
        .filter_map(|check| checks.iter().find(|checked| checked.id == check.id))
        .flat_map(|checked| checked.findings.iter().map(|finding| (checked.id, finding)))
        .filter(|(_, finding)| finding.outcome == outcome && counts(finding))
        .map(|(check, finding)| Blocker {
            check,
            objects: finding.objects.clone(),
            message: finding.message.clone(),
        })
        .collect()
}

fn wait(purpose: Purpose, names: Vec<String>) -> Step {
    step(Action::Wait, purpose, names)
}

fn step(action: Action, purpose: Purpose, names: Vec<String>) -> Step {
    Step {
        action,
        purpose,
        names,
        choice: Choice::None,
        failure_domains: Vec::new(),
        why: Why::Given,
        group: None::<Group>,
        may_differ: false,
        replicas: 0,
        votes: None,
    }
}

/// What the controller waits for before it adds or removes a Machine.
fn waits(state: &State, is_counted: impl Fn(&Replica) -> bool) -> Vec<Step> {
    let names = |is_wanted: &dyn Fn(&Replica) -> bool| -> Vec<String> {
        let wanted = state.replicas.iter().filter(|replica| is_wanted(replica));
        wanted.map(|replica| replica.name.clone()).collect()
    };
    // Without any Machine known, every member looks like one of none.
    let orphans = if state.replicas.is_empty() {
        Vec::new()
    } else {
        state.orphans()
    };
    vec![
        wait(
            Purpose::RemoveMember,
            orphans.iter().map(|member| member.name.clone()).collect(),
        ),
        wait(Purpose::FinishDeletion, names(&Replica::is_deleting)),
        wait(Purpose::FinishUpdate, names(&|replica| replica.is_updating)),
        wait(
            Purpose::Recover,
            names(&|replica| !replica.is_deleting() && is_counted(replica)),
        ),
    ]
}

fn blockers(observed: &Observed, steps: &[Step]) -> Vec<Blocker> {
    let of = &observed.management.control_plane;
    plan::blockers(of, &of.spec, steps)
        .into_iter()
        // The checks of etcd know why.
        .filter(|blocker| {
            !matches!(
                blocker,
                plan::Blocker::Silent { .. } | plan::Blocker::Alarm { .. }
            )
        })
        .map(|blocker| of_controller(observed, &blocker))
        .collect()
}

fn scale_up(observed: &Observed, state: &State) -> Vec<Blocker> {
    if state.replicas.is_empty() {
        let first = step(Action::Create, Purpose::Initialize, Vec::new());
        return blockers(observed, &[first]);
    }
    // After a Machine was deleted to be replaced, the controller asks for less.
    let is_replacing = state.remediation_in_progress
        && state.replicas.iter().any(Replica::runs_components)
        && state.is_safe(Change::Added);
    let mut steps = waits(state, |_| !is_replacing);
    steps.push(step(Action::Create, Purpose::ScaleUp, Vec::new()));
    blockers(observed, &steps)
}

fn scale_down(observed: &Observed, state: &State) -> Vec<Blocker> {
    let mut steps = waits(state, |replica| replica.deletion != Deletion::Marked);
    steps.push(step(Action::Delete, Purpose::ScaleDown, Vec::new()));
    let mut blockers = blockers(observed, &steps);
    if state.replicas.len() <= 1 && are_machines_read(observed) {
        blockers.push(Blocker {
            check: "etcd-quorum",
            objects: vec![control_plane(observed)],
            message: "there is no other Machine".to_owned(),
        });
    }
    blockers
}

/// Checks of whether members contradict each other.
const DISPUTES: [&str; 2] = ["etcd-one-cluster", "etcd-member-lists"];

/// Whether nobody can say which members there are: the one that is removed may be the one who holds the data.
fn are_members_disputed(observed: &Observed) -> bool {
    let survey = observed.etcd.read().filter(|survey| survey.stacked);
    survey.is_some_and(|survey| Membership::of(survey).is_disputed())
}

/// Whether a Machine would be replaced if a health check found it unhealthy now.
fn remediated(
    observed: &Observed,
    checks: &[Checked],
    state: &State,
    machine: &str,
    now: Timestamp,
) -> Permission {
    let mut state = state.clone();
    for replica in &mut state.replicas {
        if replica.name == machine {
            replica.health = HealthCheck::AwaitsRemediationFirst;
        } else {
            // One at a time: what else waits comes later.
            replica.health = replica.health.min(HealthCheck::AwaitsRemediation);
        }
    }
    let asked = step(Action::Delete, Purpose::Remediate, vec![machine.to_owned()]);
    let mut blockers = blockers(observed, &[asked]);
    if are_members_disputed(observed) {
        let disputes = |check: &Check| DISPUTES.contains(&check.id);
        // While Machines come and go a dispute is no fault, and nothing to build on either.
        for outcome in [Outcome::Fail, Outcome::Info] {
            blockers.extend(failing(checks, disputes, outcome, &|_| true));
        }
        return decided(checks, blockers);
    }
    let outlook = remediation::outlook(&state, terms(observed, now));
    blockers.extend(
        outlook
            .and_then(|outlook| outlook.kept_by)
            .map(|obstacle| of_obstacle(observed, machine, &obstacle)),
    );
    decided(checks, blockers)
}

#[cfg(test)]
mod tests;
