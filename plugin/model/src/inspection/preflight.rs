//! Decides whether the controller would start each kind of change now, from the blockers of a plan's first step and from the
//! preflight checks that Cluster API's proposal "Kubeadm Based Control Plane Management" requires but the controller no
//! longer makes.

use jiff::Timestamp;
use kcp_api::KubeadmControlPlaneSpec;

use crate::{
    change::replaceable::replacement_blockers,
    checks::{
        Check, Checked, all, find,
        finding::{CheckOutcome, Finding, machine_object, node_object},
        machine_grace::are_machines_read,
        membership::Membership,
        remediation::{remediation_context, state},
    },
    inspection::{BlockedBy, NeverEnds, Permission, Preflight, Remediation},
    plan::{
        blockers::{blockers, reconciliation_blockers, unreachable_workload},
        messages, remediation,
        simulate::first_change,
        state::{HealthCheck, PlanState},
        step::{Action, Context, NoPlan},
    },
    problem::Problem,
    quorum::Change,
    snapshot::Snapshot,
};

/// The ids of the checks that report sources that could not be read.
const SOURCE_CHECKS: [&str; 4] = [
    "management-unreadable",
    "workload-unreachable",
    "etcd-unreachable",
    "permissions-missing",
];

/// The ids of the checks that fail if etcd members contradict each other.
const DISPUTE_CHECKS: [&str; 2] = ["etcd-clusters-differ", "etcd-member-lists-differ"];

pub(super) fn preflight(observed: &Snapshot, checks: &[Checked], now: Timestamp) -> Preflight {
    let inputs = PreflightInputs {
        observed,
        checks,
        state: state(observed, now),
        now,
    };
    let mut rollout = inputs.rollout();
    let endless = blockers_from_checks(
        checks,
        |check| check.id == "rollout-endless",
        CheckOutcome::Fail,
        |_, _| true,
    );
    if !endless.is_empty() {
        rollout.allowed = Some(false);
        rollout.blocked_by.extend(endless);
    }
    Preflight {
        scale_up: inputs.scale_up(),
        scale_down: inputs.scale_down(),
        rollout,
        remediation: inputs
            .state
            .replicas
            .iter()
            .map(|replica| Remediation {
                machine: replica.name.clone(),
                permission: inputs.remediation(&replica.name),
            })
            .collect(),
        replacement: inputs
            .state
            .replicas
            .iter()
            .filter(|replica| !replica.is_deleting())
            .map(|replica| Remediation {
                machine: replica.name.clone(),
                permission: inputs.replacement(&replica.name),
            })
            .collect(),
    }
}

/// What the controller would do first.
struct FirstStep {
    blockers: Vec<Problem>,
    /// The Machine that the controller would delete. `None` if it would delete no Machine, or would choose one
    /// of several.
    deletes: Option<String>,
}

impl FirstStep {
    fn blocked(blocker: Problem) -> Self {
        Self {
            blockers: vec![blocker],
            deletes: None,
        }
    }
}

struct PreflightInputs<'o> {
    observed: &'o Snapshot,
    checks: &'o [Checked],
    state: PlanState,
    now: Timestamp,
}

fn with_replicas(spec: KubeadmControlPlaneSpec, replicas: usize) -> KubeadmControlPlaneSpec {
    let replicas = i64::try_from(replicas).ok();
    KubeadmControlPlaneSpec { replicas, ..spec }
}

impl PreflightInputs<'_> {
    fn spec(&self) -> &KubeadmControlPlaneSpec {
        &self.observed.control_plane.spec
    }

    fn scale_up(&self) -> Permission {
        let spec = self.spec().clone();
        let replicas = self.state.replicas.len() + 1;
        let first = self.first_step(self.state.clone(), &with_replicas(spec, replicas));
        self.permission(&first.blockers, |_, _| true)
    }

    fn scale_down(&self) -> Permission {
        let replicas = self.state.replicas.len().saturating_sub(1);
        let spec = self.spec().clone();
        let first = if replicas == 0 && are_machines_read(self.observed) {
            FirstStep::blocked(Problem::LastMachine)
        } else {
            self.first_step(self.state.clone(), &with_replicas(spec, replicas))
        };
        self.permission_to_delete(&first)
    }

    /// Whether the controller would delete a Machine. Ignores findings about the Machine that the controller
    /// would delete, as the plans of the verbs do.
    fn permission_to_delete(&self, first: &FirstStep) -> Permission {
        let going = first.deletes.as_deref().and_then(|name| self.state.replica(name));
        let Some(going) = going else {
            return self.permission(&first.blockers, |_, _| true);
        };
        let mut own = vec![machine_object(&going.name)];
        own.extend(
            going
                .member
                .iter()
                .flat_map(|node| [node_object(node), format!("EtcdMember/{node}")]),
        );
        let itself = self.observed.object_name();
        self.permission(&first.blockers, |check, finding| {
            let mut others = finding
                .objects
                .iter()
                .filter(|object| **object != itself)
                .peekable();
            // Without quorum, the controller removes no member.
            let is_of_going = others.peek().is_some() && others.all(|object| own.contains(object));
            check.id == "etcd-no-quorum" || !is_of_going
        })
    }

    fn rollout(&self) -> Permission {
        let mut state = self.state.clone();
        for replica in &mut state.replicas {
            replica.is_outdated = true;
        }
        let replicas = state.replicas.len().max(1);
        let creates_first = state.replicas.is_empty() || self.spec().max_surge > 0;
        let spec = self.spec().clone();
        let first = self.first_step(state, &with_replicas(spec, replicas));
        if creates_first {
            self.permission(&first.blockers, |_, _| true)
        } else {
            self.permission_to_delete(&first)
        }
    }

    /// Whether the controller would replace the Machine if a health check reported the Machine as unhealthy now.
    fn remediation(&self, machine: &str) -> Permission {
        let mut state = self.state.clone();
        for replica in &mut state.replicas {
            if replica.name == machine {
                replica.health = HealthCheck::AwaitsRemediationFirst;
            } else {
                // The controller remediates one Machine at a time.
                replica.health = replica.health.min(HealthCheck::AwaitsRemediation);
            }
        }
        let mut found: Vec<BlockedBy> =
            reconciliation_blockers(self.observed, &self.observed.control_plane.spec)
                .iter()
                .map(|blocker| self.blocked_by(blocker, Some(machine)))
                .collect();
        let is_stopped = |check: &Check| check.id == "controller-stopped";
        found.extend(blockers_from_checks(
            self.checks,
            is_stopped,
            CheckOutcome::Fail,
            |_, _| true,
        ));
        // Without a connection to the workload cluster, the controller stops before it looks at the etcd members.
        if let Some(blocker) = unreachable_workload(self.observed) {
            found.push(self.blocked_by(&blocker, Some(machine)));
            return permission_from(self.checks, found);
        }
        if are_members_disputed(self.observed) {
            let disputes = |check: &Check| DISPUTE_CHECKS.contains(&check.id);
            // While Machines start or are deleted, contradictions between members are only Info, but they still block a remediation.
            for outcome in [CheckOutcome::Fail, CheckOutcome::Info] {
                found.extend(blockers_from_checks(self.checks, disputes, outcome, |_, _| true));
            }
            return permission_from(self.checks, found);
        }
        let next = remediation::next_remediation(&state, remediation_context(self.observed, self.now));
        let blocker = next.and_then(|next| next.blocked_by);
        found.extend(blocker.map(|blocker| self.blocked_by(&blocker, Some(machine))));
        let permission = permission_from(self.checks, found);
        let is_begun = permission.allowed == Some(true);
        let refusal = state
            .replica(machine)
            .and_then(|replica| state.refused_removal(replica));
        let refusal = refusal.filter(|_| is_begun);
        Permission {
            never_ends: refusal.map(|refusal| NeverEnds {
                check: refusal.check_id(),
                message: refusal.to_string(),
            }),
            ..permission
        }
    }

    /// Whether `machine replace` would delete the Machine. The command makes the same decision.
    fn replacement(&self, machine: &str) -> Permission {
        let blockers = replacement_blockers(self.observed, machine, self.now);
        let found = blockers
            .iter()
            .map(|blocker| self.blocked_by(blocker, Some(machine)));
        permission_from(self.checks, found.collect())
    }

    fn first_step(&self, mut state: PlanState, spec: &KubeadmControlPlaneSpec) -> FirstStep {
        // Without Machines there are no members to remove.
        if state.replicas.is_empty() {
            state.members = state.members.map(|_| Vec::new());
        }
        let plan = self.observed;
        let votes = state.votes(Change::Unchanged);
        let steps = first_change(
            state,
            Context {
                spec,
                declared: &plan.failure_domains(),
                remediation: remediation_context(self.observed, self.now),
            },
        );
        match steps {
            Ok(steps) => FirstStep {
                blockers: blockers(plan, &plan.control_plane.spec, &steps),
                deletes: steps
                    .iter()
                    .find(|step| step.action == Action::Delete)
                    .and_then(|step| match step.names.as_slice() {
                        [only] => Some(only.clone()),
                        _ => None,
                    }),
            },
            Err(no_plan @ (NoPlan::AllHeld { .. } | NoPlan::HoldEachOther { .. })) => {
                FirstStep::blocked(Problem::NoWay {
                    why: messages::no_plan(&no_plan),
                    check: "machine-deletions-deadlocked",
                })
            }
            Err(NoPlan::LastMachine { .. } | NoPlan::OnlyLeader { .. }) => {
                FirstStep::blocked(Problem::LastMachine)
            }
            Err(NoPlan::QuorumLost { votes }) => FirstStep::blocked(Problem::Quorum { votes }),
            Err(_) => {
                FirstStep::blocked(votes.map_or(Problem::MembersUnknown, |votes| Problem::Quorum { votes }))
            }
        }
    }

    /// Combines the controller's blockers with the findings of failed preflight checks. Says why if it is unknown
    /// whether the controller would start the change.
    fn permission(&self, blockers: &[Problem], counts: impl Fn(&Check, &Finding) -> bool) -> Permission {
        // A leader that does not respond only prevents the deletion of its own Machine, and `blockers` already contains this.
        let members = self.observed.members();
        let leader = members.unreachable_leader();
        let leader = leader.map(|leader| format!("EtcdMember/{}", leader.name));
        let is_of_leader = |check: &Check, finding: &Finding| {
            check.id == "etcd-members-unresponsive"
                && leader
                    .as_ref()
                    .is_some_and(|leader| finding.objects.contains(leader))
        };
        let found = blockers_from_checks(
            self.checks,
            |check| check.is_preflight,
            CheckOutcome::Fail,
            |check, finding| !is_of_leader(check, finding) && counts(check, finding),
        );
        let mut all: Vec<BlockedBy> = blockers
            .iter()
            // The etcd checks report the cause of these blockers.
            .filter(|blocker| {
                !matches!(
                    blocker,
                    Problem::Silent { .. }
                        | Problem::Alarm { .. }
                        | Problem::NoMember { .. }
                        | Problem::MembersDisputed
                )
            })
            .map(|blocker| self.blocked_by(blocker, None))
            .collect();
        // If a blocker and a check report the same problem, the check has more details.
        all.retain(|blocker| {
            let covers = |other: &BlockedBy| {
                other.check == blocker.check
                    && blocker
                        .objects
                        .iter()
                        .all(|object| other.objects.contains(object))
            };
            !found.iter().any(covers)
        });
        all.extend(found);
        permission_from(self.checks, all)
    }

    /// Describes a blocker for the report. `machine` is the Machine to remediate, if any.
    fn blocked_by(&self, blocker: &Problem, machine: Option<&str>) -> BlockedBy {
        let object = match (blocker, machine) {
            (Problem::TriedRecently { .. } | Problem::TriedTooOften { .. }, Some(name)) => {
                machine_object(name)
            }
            _ => blocker.object(&self.observed.control_plane),
        };
        BlockedBy {
            check: blocker.id(),
            objects: vec![object],
            message: blocker.message(),
        }
    }
}

fn permission_from(checks: &[Checked], blockers: Vec<BlockedBy>) -> Permission {
    if !blockers.is_empty() {
        return Permission {
            allowed: Some(false),
            blocked_by: blockers,
            never_ends: None,
        };
    }
    let is_open = checks.iter().any(|checked| {
        checked.outcome == CheckOutcome::Unknown && find(checked.id).is_some_and(|check| check.is_preflight)
    });
    let unread = if is_open {
        blockers_from_checks(
            checks,
            |check| check.is_preflight || SOURCE_CHECKS.contains(&check.id),
            CheckOutcome::Unknown,
            |_, _| true,
        )
    } else {
        Vec::new()
    };
    Permission {
        allowed: unread.is_empty().then_some(true),
        blocked_by: unread,
        never_ends: None,
    }
}

fn blockers_from_checks(
    checks: &[Checked],
    is_relevant: impl Fn(&Check) -> bool,
    outcome: CheckOutcome,
    counts: impl Fn(&Check, &Finding) -> bool,
) -> Vec<BlockedBy> {
    all()
        .filter(|check| is_relevant(check))
        .filter_map(|check| Some((check, checks.iter().find(|checked| checked.id == check.id)?)))
        .flat_map(|(check, checked)| checked.findings.iter().map(move |finding| (check, finding)))
        .filter(|(check, finding)| finding.outcome == outcome && counts(check, finding))
        .map(|(check, finding)| BlockedBy {
            check: check.id,
            objects: finding.objects.clone(),
            message: finding.message.clone(),
        })
        .collect()
}

/// Whether the etcd members contradict each other. A remediation could then remove the member with the data.
fn are_members_disputed(observed: &Snapshot) -> bool {
    let survey = observed.etcd.value().filter(|survey| survey.stacked);
    survey.is_some_and(|survey| Membership::new(survey).is_disputed())
}

#[cfg(test)]
mod tests;
