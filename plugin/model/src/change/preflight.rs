//! Decides whether a command may write a change. The decision depends on the admission rules, the field owners, and the
//! controller's plan.

use jiff::Timestamp;
use kcp_api::Object as _;
use kcp_rules::{api::DecodeError, syntax::parse_version};
use serde_json::Value;

use crate::{
    addon_update::{ImpossibleUpdate, impossible_updates},
    change::{
        decision::{Refusal, RefusedBy},
        quorum_guard::QuorumGuard,
    },
    checks::{self, finding::CheckOutcome},
    drain::forecast,
    ownership::{Ownership, ownership},
    plan::{self, Plan, blockers::processing_blockers, fragile::fragile_periods, messages, options::desired},
    problem::{Problem, pauses},
    review::{Review, ReviewContext, review_patch},
    snapshot::{Snapshot, change::ChangeSnapshot},
    topology::{self, delaying_annotations},
};

#[derive(Clone, Debug, PartialEq)]
pub struct Preflight {
    pub refusal: Option<Refusal>,
    pub warnings: Vec<String>,
    pub plan: Plan,
    /// One line for each problem that blocks a node drain of the plan, and for each loss that such a drain
    /// causes.
    pub drains: Vec<String>,
}

impl Preflight {
    /// Returns one line for each period in which etcd tolerates no member failure, one for the time that a
    /// new Machine takes, and the lines of `drains`.
    pub fn consequences(&self) -> Vec<String> {
        let mut lines = fragile_periods(&self.plan);
        lines.extend(self.plan.join_estimate().map(|times| times.message()));
        lines.extend(self.plan.startup_warnings().iter().cloned());
        lines.extend(self.drains.iter().cloned());
        lines
    }
}

fn review(
    snapshot: &ChangeSnapshot,
    patch: &Value,
    context: ReviewContext<'_>,
) -> Result<Review, DecodeError> {
    review_patch(&snapshot.json, patch, context)
}

/// Checks whether a merge patch may be written. With `force`, it may be written even if the controller cannot take its
/// first step now.
pub fn preflight(
    snapshot: &ChangeSnapshot,
    patch: &Value,
    force: bool,
    context: ReviewContext<'_>,
) -> Result<Preflight, DecodeError> {
    preflight_reviewed(snapshot, patch, review(snapshot, patch, context)?, force, context)
}

/// Like [`preflight`], for a patch that the admission rules have already reviewed.
pub fn preflight_reviewed(
    snapshot: &ChangeSnapshot,
    patch: &Value,
    Review {
        denials,
        mut warnings,
    }: Review,
    force: bool,
    context: ReviewContext<'_>,
) -> Result<Preflight, DecodeError> {
    let desired = desired(&snapshot.json, patch, &denials)?;
    let ownership = ownership(&snapshot.json, patch, context.field_manager)?;
    let plan = match ownership {
        Ownership::FromCluster(_) => {
            let mut observed = snapshot.observed.clone();
            if patch.pointer("/spec/version").is_some() {
                // The command writes the Cluster, so the controller will see the new version in the Cluster, too. While the topology
                // controller fails, Cluster API would accept no other version afterwards, not even the old one.
                observed.set_topology_version(desired.spec.version());
            } else {
                // The topology controller may fail because of the value that this change corrects.
                warnings.extend(topology::remove_error(&mut observed));
            }
            plan::plan(&observed, &desired, context.now)
        }
        _ => plan::plan(&snapshot.observed, &desired, context.now),
    };
    let guard = QuorumGuard::new(&plan);

    warnings.extend(snapshot.warnings());
    warnings.extend(unknown_facts(snapshot, context.now));
    let impossible = impossible_updates(&snapshot.observed, &desired.spec, Some(patch));
    warnings.extend(impossible.iter().map(ImpossibleUpdate::warning));
    warnings.extend(delaying_annotations(&snapshot.observed, &desired.spec));
    // A rule may deny a change only until the controller has processed the spec, so the refusal says why the
    // controller has not processed it.
    let unprocessed = if denials.is_empty() {
        Vec::new()
    } else {
        processing_blockers(&snapshot.observed)
    };
    let mut refusals = vec![
        (RefusedBy::Rules, denials),
        (
            RefusedBy::Command,
            unprocessed.iter().map(Problem::message).collect(),
        ),
    ];
    match ownership.warnings(snapshot.control_plane().cluster()) {
        Ok(applied) => warnings.extend(applied),
        Err(why) => refusals.push((RefusedBy::Command, vec![why])),
    }
    let lowered = lowered_while_paused(&snapshot.observed, plan.desired.spec.version());
    refusals.push((RefusedBy::Command, Vec::from_iter(lowered)));
    let obstacles: Vec<String> = plan.obstacles().into_iter().map(|(message, _)| message).collect();
    let is_forced = force && matches!(guard, QuorumGuard::Blocked(_));
    match &guard {
        QuorumGuard::Clear => {}
        QuorumGuard::NoWay(_) => refusals.push((RefusedBy::Command, guard.why())),
        QuorumGuard::AtRisk { .. } => refusals.push((RefusedBy::Command, obstacles.clone())),
        QuorumGuard::Blocked(_) if force => {}
        QuorumGuard::Blocked(_) => refusals.push((RefusedBy::Preflight, obstacles.clone())),
    }
    refusals.retain(|(_, why)| !why.is_empty());
    match (&guard, refusals.last_mut()) {
        (QuorumGuard::Clear, Some((_, why))) => why.extend(obstacles),
        (QuorumGuard::Clear, None) => warnings.extend(obstacles),
        (QuorumGuard::Blocked(_), _) if is_forced => warnings.extend(obstacles),
        _ => {}
    }
    warnings.extend(paused_later(&snapshot.observed, &plan));
    let refused_by = refusals.first().map(|(refused_by, _)| *refused_by);
    let why = refusals.into_iter().flat_map(|(_, why)| why).collect();
    Ok(Preflight {
        refusal: refused_by.map(|refused_by| Refusal {
            why,
            refused_by,
            remedies: unique(
                unprocessed
                    .iter()
                    .filter_map(|blocker| blocker.hint(&plan.namespace, &plan.name))
                    .chain(remedies(&guard, &plan, force)),
            ),
        }),
        warnings,
        drains: forecast(&snapshot.observed, &plan.deleted_machines()),
        plan,
    })
}

/// Why a lower minor version may not be written during a pause. The rules then only warn, because no controller acts on the version
/// before the pause ends. `None` if no Machine has joined at a higher minor version, or nothing is paused.
fn lowered_while_paused(observed: &Snapshot, desired: &str) -> Option<String> {
    let minor = |version: &str| parse_version(version).ok().map(|it| (it.major, it.minor));
    let desired = minor(desired)?;
    let is_above = |version: &str| minor(version).is_some_and(|found| found > desired);
    if pauses(observed).is_empty() || !is_above(observed.control_plane.spec.version()) {
        return None;
    }
    let mut joined = observed.machines.iter().filter(|machine| machine.has_node());
    joined.find_map(|machine| {
        let version = machine.spec.version.as_deref().filter(|version| is_above(version))?;
        Some(format!(
            "Machine {} has joined at {version}, and etcd data cannot be downgraded; during the pause, the rule version-lowered only \
             warns",
            machine.name()
        ))
    })
}

/// The paused Machines that stop the plan at a later step: one line for each.
fn paused_later(observed: &Snapshot, plan: &Plan) -> Vec<String> {
    let deleted = plan.deleted_machines();
    let machines = observed.machines.iter().filter(|machine| machine.is_paused());
    let blockers = machines.map(|machine| Problem::MachinePaused {
        machine: machine.name().to_owned(),
    });
    let is_later = |blocker: &Problem| {
        blocker
            .machine()
            .is_some_and(|name| deleted.certain.contains(name))
            && !plan.blockers.contains(blocker)
    };
    blockers
        .filter(is_later)
        .map(|blocker| format!("the change starts, but stops later: {}", blocker.message()))
        .collect()
}

/// Returns one warning for each reason why `status` does not know a fact on which the decision relies.
fn unknown_facts(snapshot: &ChangeSnapshot, now: Timestamp) -> Vec<String> {
    let observed = &snapshot.observed;
    // The snapshot's own warnings say that the conditions of the Machines are used instead.
    let uses_conditions = snapshot.etcd_failure.is_some() || observed.workload.value().is_none();
    let mut unknown: Vec<String> = Vec::new();
    for check in checks::all().filter(|check| check.is_preflight) {
        let checked = check.run(observed, now);
        let findings = checked.findings.iter();
        let found = findings.filter(|finding| finding.outcome == CheckOutcome::Unknown);
        unknown.extend(found.map(|finding| finding.message.clone()));
        let reason = checked
            .reason
            .filter(|_| checked.outcome == CheckOutcome::Unknown);
        let reason = reason.filter(|_| !uses_conditions);
        let reason = reason.map(|reason| format!("{reason}; using the Machines' conditions instead"));
        unknown.extend(reason.filter(|reason| !unknown.contains(reason)));
    }
    unknown
}

/// Returns what the user can do: one line for each remedy.
fn remedies(guard: &QuorumGuard, plan: &Plan, force: bool) -> Vec<String> {
    match guard {
        QuorumGuard::Blocked(_) if force => Vec::new(),
        QuorumGuard::NoWay(no_plan) => {
            let hint = messages::no_plan_hint(no_plan, &plan.namespace, &plan.name);
            hint.into_iter().collect()
        }
        QuorumGuard::Clear | QuorumGuard::Blocked(_) | QuorumGuard::AtRisk { .. } => plan
            .obstacles()
            .into_iter()
            .filter_map(|(_, hint)| hint)
            .collect(),
    }
}

fn unique(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for line in lines {
        if !unique.contains(&line) {
            unique.push(line);
        }
    }
    unique
}

/// The refusal while the control plane or its Cluster is paused, so that no controller acts on the change. `None` with `force`.
pub fn refusal_while_paused(observed: &Snapshot, force: bool) -> Option<Refusal> {
    let pauses = pauses(observed);
    (!force && !pauses.is_empty())
        .then(|| Refusal::because_of(&pauses, RefusedBy::Preflight, &observed.control_plane))
}

/// Checks a change that the controller does not act on. Such a change has no plan, so this function checks
/// only the admission rules and the field owners. Returns the warnings, or the refusal.
pub fn preflight_without_plan(
    snapshot: &ChangeSnapshot,
    patch: &Value,
    context: ReviewContext<'_>,
) -> Result<Result<Vec<String>, Refusal>, DecodeError> {
    let Review {
        denials,
        mut warnings,
    } = review(snapshot, patch, context)?;
    if !denials.is_empty() {
        return Ok(Err(Refusal::new(RefusedBy::Rules, denials)));
    }
    let ownership = ownership(&snapshot.json, patch, context.field_manager)?;
    Ok(match ownership.warnings(snapshot.control_plane().cluster()) {
        Ok(applied) => {
            warnings.extend(applied);
            Ok(warnings)
        }
        Err(why) => Err(Refusal::new(RefusedBy::Command, vec![why])),
    })
}

#[cfg(test)]
mod tests {
    use kcp_api::ConditionStatus::False;
    use kcp_rules::view::View;
    use serde_json::{Value, json};

    use super::{Preflight, Problem, preflight_reviewed, preflight_without_plan};
    use crate::{
        change::decision::{Refusal, RefusedBy},
        review::{Review, ReviewContext},
        snapshot::{EtcdMember, EtcdMembers, Failure, Reading, change::ChangeSnapshot},
        testing::{
            change::{fail, snapshot},
            objects::{condition, now, pause, set},
        },
    };

    fn of(snapshot: &ChangeSnapshot, replicas: i64, review: &Review, force: bool) -> Preflight {
        let patch = json!({"spec": {"replicas": replicas}});
        preflight_reviewed(snapshot, &patch, review.clone(), force, context(&View::default()))
            .expect("decodes")
    }

    fn context(view: &View) -> ReviewContext<'_> {
        ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view,
            configuration: None,
        }
    }

    fn applied_by(snapshot: &mut ChangeSnapshot, manager: &str) {
        let mut object: Value = serde_json::from_str(&snapshot.json).expect("JSON");
        object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:replicas": {}, "f:version": {}}}}]);
        snapshot.json = object.to_string();
    }

    fn refused(by: RefusedBy, why: &[&str]) -> Refusal {
        let why = why.iter().map(ToString::to_string).collect();
        Refusal::new(by, why)
    }

    const EVEN: &str = "spec.replicas: 4 (replicas-even)";
    const SICK: &str = "EtcdPodHealthy of Machine m2 is False: crashed";

    #[test]
    fn every_reason_is_given_and_only_the_preflight_is_overridden() {
        let well = Review::default();
        let even = Review {
            denials: vec![EVEN.to_owned()],
            warnings: vec!["look".to_owned()],
        };
        let mut sick = snapshot();
        fail(&mut sick, 2, "EtcdPodHealthy", "crashed");
        let mut sick_and_owned = snapshot();
        fail(&mut sick_and_owned, 2, "EtcdPodHealthy", "crashed");
        applied_by(&mut sick_and_owned, "capi-topology");
        let none: &[&str] = &[];
        for (name, snapshot, review, force, refusal, warnings) in [
            ("well", &snapshot(), &well, false, None, none),
            (
                "the rules",
                &snapshot(),
                &even,
                true,
                Some(refused(RefusedBy::Rules, &[EVEN])),
                &["look"],
            ),
            (
                "the preflight",
                &sick,
                &well,
                false,
                Some(refused(RefusedBy::Preflight, &[SICK])),
                none,
            ),
            ("the preflight, overridden", &sick, &well, true, None, &[SICK]),
            // The change is written to the Cluster.
            (
                "a topology and the preflight",
                &sick_and_owned,
                &well,
                false,
                Some(refused(RefusedBy::Preflight, &[SICK])),
                none,
            ),
        ] {
            let preflight = of(snapshot, 5, review, force);
            assert_eq!(preflight.refusal, refusal, "{name}");
            assert_eq!(preflight.warnings, warnings, "{name}");
        }
    }

    #[test]
    fn a_refusal_lists_the_blockers_that_plan_lists() {
        let mut blocked = snapshot();
        fail(&mut blocked, 2, "EtcdPodHealthy", "crashed");
        let sick = SICK.to_owned();
        let paused = "the control plane is paused: no controller reconciles it".to_owned();
        let lines = |snapshot: &ChangeSnapshot, force| {
            let preflight = of(snapshot, 5, &Review::default(), force);
            let planned: Vec<String> = preflight.plan.blockers.iter().map(Problem::message).collect();
            let mut why = preflight.refusal.map(|refusal| refusal.why).unwrap_or_default();
            why.extend(preflight.warnings);
            (planned, why)
        };
        for force in [false, true] {
            assert_eq!(lines(&blocked, force), (vec![sick.clone()], vec![sick.clone()]));
        }
        pause(&mut blocked.observed.control_plane.metadata);
        for force in [false, true] {
            let (planned, why) = lines(&blocked, force);
            assert_eq!(planned, why, "force: {force}");
            assert!(
                planned.contains(&sick) && planned.contains(&paused),
                "{planned:?}"
            );
        }
    }

    #[test]
    fn what_could_cost_the_quorum_is_not_forced() {
        let member = |node: &str| EtcdMember {
            name: node.to_owned(),
            fault: (node == "node-m2").then(|| "does not respond: gone".to_owned()),
            ..EtcdMember::default()
        };
        let mut cut_off = snapshot();
        cut_off.observed.etcd_members =
            EtcdMembers::Read(["node-m1", "node-m2", "node-m3"].map(member).to_vec());
        for force in [false, true] {
            let preflight = of(&cut_off, 1, &Review::default(), force);
            let mut refusal = refused(
                RefusedBy::Command,
                &[
                    "etcd member node-m2 of Machine m2 does not respond: gone",
                    "the conditions do not show this problem now, so the controller would begin a deletion that \
                     never ends: etcd refuses to remove a running member while member node-m2 of Machine m2 does not respond",
                ],
            );
            let way_out = "repair the member, or replace its Machine: kubectl kcp machine replace m2 -n d";
            refusal.remedies.push(way_out.to_owned());
            assert_eq!(preflight.refusal, Some(refusal), "{force}");
        }
    }

    #[test]
    fn plan_and_verbs_give_the_same_reasons() {
        let silent = |number: usize, node: &str| EtcdMember {
            name: node.to_owned(),
            fault: (node == format!("node-m{number}")).then(|| "does not respond: gone".to_owned()),
            ..EtcdMember::default()
        };
        for (replicas, has_risk) in [(1, true), (3, false), (5, true)] {
            let mut frozen = snapshot();
            let members = ["node-m1", "node-m2", "node-m3"].map(|node| silent(2, node));
            frozen.observed.etcd_members = EtcdMembers::Read(members.to_vec());
            let preflight = of(&frozen, replicas, &Review::default(), false);
            let planned: Vec<String> = preflight
                .plan
                .obstacles()
                .into_iter()
                .map(|(line, _)| line)
                .collect();
            let refused = preflight.refusal.map(|refusal| refusal.why).unwrap_or_default();
            assert_eq!(planned, refused, "{replicas}");
            assert_eq!(preflight.plan.is_blocked(), has_risk, "{replicas}");
            // The step that waits says that the controller does not wait.
            let is_undetected = preflight.plan.steps().first().map(|step| step.is_undetected);
            assert_eq!(is_undetected, has_risk.then_some(true), "{replicas}");
        }
    }

    /// The rules deny a scale until the controller has processed the spec. The refusal says why the
    /// controller has not processed it.
    #[test]
    fn a_denial_says_why_the_spec_is_not_processed() {
        let review = Review {
            denials: vec![
                "Cluster API has not processed the last change yet (replicas-during-rollout)".to_owned(),
            ],
            warnings: Vec::new(),
        };
        let mut unprocessed = snapshot();
        let reference = unprocessed.observed.control_plane.spec.infrastructure_ref.clone();
        let missing = Problem::no_template(&reference);
        unprocessed.observed.templates = [(reference, Reading::Read(false))].into();
        let refusal = |snapshot: &ChangeSnapshot| of(snapshot, 5, &review, false).refusal.expect("refused");
        // The spec is processed: the template is not the reason.
        assert_eq!(refusal(&unprocessed).why, review.denials);
        unprocessed.observed.control_plane.metadata.generation = Some(8);
        let refusal = refusal(&unprocessed);
        assert_eq!(refusal.why, [review.denials, vec![missing.message()]].concat());
        assert_eq!(refusal.refused_by, RefusedBy::Rules);
        assert_eq!(refusal.remedies, Vec::from_iter(missing.hint("d", "c1-cp")));
    }

    #[test]
    fn what_status_reports_as_unknown_is_a_warning() {
        let mut unprocessed = snapshot();
        unprocessed.observed.control_plane.metadata.generation = Some(8);
        let warnings = of(&unprocessed, 5, &Review::default(), false).warnings;
        let start =
            "Cluster API's kubeadm control plane controller has not processed generation 8 of the spec";
        assert!(
            matches!(&warnings[..], [only] if only.starts_with(start)),
            "{warnings:?}"
        );

        let mut without_pods = snapshot();
        without_pods.observed.workload = crate::testing::snapshot::observed().workload;
        let failure = crate::testing::snapshot::failure("Pod", "forbidden");
        without_pods.observed.workload().static_pods = Reading::Failed(failure);
        let warnings = of(&without_pods, 5, &Review::default(), false).warnings;
        assert_eq!(
            warnings,
            ["could not read static pods; using the Machines' conditions instead"]
        );
    }

    #[test]
    fn what_to_do_about_it_is_told() {
        let remedies = |snapshot: &ChangeSnapshot, force| {
            let refusal = of(snapshot, 5, &Review::default(), force).refusal;
            refusal.map(|refusal| refusal.remedies)
        };
        let mut uncertified = snapshot();
        let conditions = &mut uncertified.observed.control_plane.status.conditions;
        set(conditions, condition("CertificatesAvailable", False, "no"));
        let see = "see condition CertificatesAvailable: kubectl describe kcp c1-cp -n d".to_owned();
        assert_eq!(remedies(&uncertified, false), Some(vec![see]));
        assert_eq!(remedies(&uncertified, true), None);
        let mut lost = snapshot();
        let silent = |node: &str| EtcdMember {
            name: node.to_owned(),
            fault: Some("gone".to_owned()),
            ..EtcdMember::default()
        };
        lost.observed.etcd_members =
            EtcdMembers::Read(["node-m1", "node-m2", "node-m3"].map(silent).to_vec());
        let etcd =
            "recover etcd yourself, because the controller cannot; to see how: kubectl kcp status c1-cp -n d"
                .to_owned();
        assert_eq!(remedies(&lost, true), Some(vec![etcd]));
        let mut sick = snapshot();
        fail(&mut sick, 2, "EtcdPodHealthy", "crashed");
        assert_eq!(remedies(&sick, false), Some(Vec::new()));
    }

    #[test]
    fn a_secret_that_the_controller_cannot_use_either_stops_every_change() {
        let cause = |secret: &str| Failure {
            hint: Some(format!("restore {secret}")),
            is_unusable_secret: true,
            ..crate::testing::snapshot::failure(secret, "is wrong")
        };
        let mut wrong_ca = snapshot();
        wrong_ca.observed.etcd = crate::testing::snapshot::observed().etcd;
        for queried in &mut wrong_ca.observed.survey().queried {
            queried.response = Err(cause("Secret/c1-etcd"));
        }
        let mut malformed_ca = snapshot();
        malformed_ca.observed.etcd = Reading::Failed(cause("Secret/c1-etcd"));
        let mut expired = snapshot();
        expired.observed.workload = Reading::Failed(cause("Secret/c1-kubeconfig"));
        let mut elsewhere = snapshot();
        let unreachable = crate::testing::snapshot::failure("Secret/c1-kubeconfig", "cannot connect");
        elsewhere.observed.workload = Reading::Failed(unreachable);
        for (name, snapshot, secret) in [
            ("wrong CA", &wrong_ca, Some("Secret/c1-etcd")),
            ("malformed CA", &malformed_ca, Some("Secret/c1-etcd")),
            ("expired kubeconfig", &expired, Some("Secret/c1-kubeconfig")),
            ("only this machine fails", &elsewhere, None),
        ] {
            let refusal = secret.map(|secret| Refusal {
                why: vec![format!("{secret}: is wrong")],
                refused_by: RefusedBy::Preflight,
                remedies: vec![format!("restore {secret}")],
            });
            let preflight = of(snapshot, 5, &Review::default(), false);
            assert_eq!(preflight.refusal, refusal, "{name}");
            let forced = of(snapshot, 5, &Review::default(), true);
            assert_eq!(forced.refusal, None, "{name}");
            let idle_plan = of(snapshot, 3, &Review::default(), false).plan;
            assert_eq!(idle_plan.problems.is_empty(), secret.is_none(), "{name}");
        }
    }

    #[test]
    fn says_what_was_not_read_and_who_puts_it_back() {
        let mut snapshot = snapshot();
        applied_by(&mut snapshot, "argocd-controller");
        snapshot.etcd_failure = Some(Failure {
            object: "Secret/c1-etcd".to_owned(),
            message: "it is not there".to_owned(),
            hint: None,
            ..Failure::default()
        });
        let preflight = of(&snapshot, 5, &Review::default(), false);
        assert_eq!(
            preflight.warnings,
            [
                "could not read the etcd members: Secret/c1-etcd: it is not there; using the Machines' conditions instead",
                "argocd-controller (Argo CD) also applies spec.replicas and will revert this change: change the value \
                 in the applied manifest too"
            ]
        );
        assert_eq!(preflight.refusal, None);
    }

    #[test]
    fn from_one_member_the_consequence_is_told() {
        let mut snapshot = snapshot();
        snapshot.observed.machines.truncate(1);
        let preflight = of(&snapshot, 3, &Review::default(), false);
        assert_eq!(
            preflight.consequences(),
            ["etcd tolerates no member failure until the second new Machine has joined"]
        );
    }

    fn owned_by(manager: &str) -> ChangeSnapshot {
        let mut snapshot = snapshot();
        applied_by(&mut snapshot, manager);
        snapshot
    }

    fn permitted(snapshot: &ChangeSnapshot, replicas: i64) -> Result<Vec<String>, Refusal> {
        let patch = json!({"spec": {"replicas": replicas}});
        preflight_without_plan(snapshot, &patch, context(&View::default())).expect("decodes")
    }

    #[test]
    fn a_change_without_a_plan_is_checked_for_rules_and_owners() {
        assert_eq!(permitted(&snapshot(), 5), Ok(Vec::new()));
        let Ok(warnings) = permitted(&owned_by("argocd-controller"), 5) else {
            panic!("denied");
        };
        assert!(
            matches!(&warnings[..], [only] if only.starts_with("argocd-controller (Argo CD) also applies spec.replicas")),
            "{warnings:?}"
        );
        assert_eq!(permitted(&owned_by("capi-topology"), 5), Ok(Vec::new()));
        for snapshot in [snapshot(), owned_by("capi-topology")] {
            let Err(Refusal { why, refused_by, .. }) = permitted(&snapshot, 4) else {
                panic!("granted");
            };
            assert_eq!(refused_by, RefusedBy::Rules);
            assert!(
                matches!(&why[..], [only] if only.ends_with("(replicas-even)")),
                "{why:?}"
            );
        }
    }

    #[test]
    fn a_version_that_is_written_to_the_cluster_is_not_pending() {
        let pending = |mut snapshot: ChangeSnapshot| {
            let version = snapshot.control_plane().spec.version().to_owned();
            snapshot.observed.set_topology(&version);
            let patch = json!({"spec": {"version": "v1.35.0"}});
            let view = View::default();
            let preflight = preflight_reviewed(&snapshot, &patch, Review::default(), false, context(&view));
            let blockers = preflight.expect("decodes").plan.blockers;
            blockers
                .iter()
                .any(|blocker| matches!(blocker, Problem::TopologyVersion { .. }))
        };
        assert!(pending(snapshot()));
        assert!(!pending(owned_by("capi-topology")));
    }

    #[test]
    fn a_topology_that_fails_is_corrected_but_not_upgraded() {
        const FAILS: &str =
            "Cluster API's topology controller cannot apply the ClusterClass to the Cluster: no template";
        let mut snapshot = owned_by("capi-topology");
        let version = snapshot.control_plane().spec.version().to_owned();
        snapshot.observed.set_topology(&version);
        let mut reported = condition("TopologyReconciled", False, "no template");
        reported.reason = "ReconcileFailed".to_owned();
        let cluster = snapshot.observed.cluster_mut();
        cluster.status.topology_reconciled = Some(reported);
        let topology = cluster.spec.topology.as_mut();
        topology.expect("set above").control_plane.replicas = Some(3);
        let judged = |spec: Value, force: bool| {
            let view = View::default();
            let patch = json!({ "spec": spec });
            let preflight = preflight_reviewed(&snapshot, &patch, Review::default(), force, context(&view));
            let Preflight {
                refusal, warnings, ..
            } = preflight.expect("decodes");
            (refusal.map(|refusal| (refusal.refused_by, refusal.why)), warnings)
        };
        assert_eq!(
            judged(json!({"replicas": 5}), false),
            (None, vec![format!("before this change: {FAILS}")])
        );
        let version = json!({"version": "v1.35.0"});
        let refused = (RefusedBy::Preflight, vec![FAILS.to_owned()]);
        assert_eq!(judged(version.clone(), false), (Some(refused), Vec::new()));
        assert_eq!(judged(version, true), (None, vec![FAILS.to_owned()]));
    }

    #[test]
    fn a_scale_waits_for_a_pending_version() {
        let mut snapshot = owned_by("capi-topology");
        snapshot.observed.set_topology("v1.36.0");
        let patch = json!({"spec": {"replicas": 5}});
        let view = View::default();
        let preflight = preflight_reviewed(&snapshot, &patch, Review::default(), false, context(&view));
        let version = Problem::TopologyVersion {
            version: "v1.36.0".to_owned(),
        };
        assert_eq!(preflight.expect("decodes").plan.blockers, [version]);
    }
}
