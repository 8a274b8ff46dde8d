//! The decision of `upgrade`, which changes the Kubernetes version.

use kcp_api::{KubeadmControlPlane, Reference};
use kcp_rules::{api::DecodeError, syntax::parse_version};
use serde_json::{Value, json};

use crate::{
    addon_update::kept_addons,
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::{preflight, refusal_while_paused},
    },
    kubelet_skew,
    machine_image::{self, Templates},
    merge_patch,
    ownership::{Ownership, ownership},
    plan::{
        Plan,
        effect::template_changes,
        options::{infrastructure_template, with_leading_v},
    },
    release_changes::{API_GUIDE, UsedApis, outdated_etcd, removals},
    review::ReviewContext,
    snapshot::{Workers, change::ChangeSnapshot},
};

#[derive(Clone, Copy, Debug)]
pub struct UpgradeOptions<'u> {
    /// The desired Kubernetes version, with or without the leading `v`.
    pub version: &'u str,
    pub force: bool,
    /// The `MachineDeployments` and `MachinePools` of the Cluster, with the versions of their Machines.
    pub workers: &'u Workers,
    pub templates: &'u Templates,
    pub used_apis: &'u UsedApis,
    /// The API version of the control plane's JSON.
    pub api_version: &'u str,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Upgrade {
    pub plan: Plan,
    pub assessment: Assessment,
    pub decision: Decision,
}

/// The effects of an upgrade on objects other than the control plane's Machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// The workers that the new API servers do not support: one line for each. `--force` does not override them.
    pub refusals: Vec<String>,
    pub notices: Vec<Notice>,
}

/// Information that the user sees before the upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub message: String,
    pub source: Option<&'static str>,
}

impl Upgrade {
    /// Whether two upgrades have the same current spec, steps, blockers, assessment and warnings.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.plan.current == other.plan.current
            && self.plan.steps == other.plan.steps
            && self.plan.blockers == other.plan.blockers
            && self.assessment == other.assessment
            && self.warnings() == other.warnings()
    }

    /// Returns the decision after the prompt: a refusal if the upgrade has changed since the user confirmed it.
    /// `confirmed` is none if no prompt was shown.
    pub fn into_confirmed_decision(self, confirmed: Option<&Self>) -> Decision {
        match confirmed {
            Some(confirmed)
                if matches!(self.decision, Decision::Write(_)) && !self.is_equivalent(confirmed) =>
            {
                Decision::Refused(Refusal::new(
                    RefusedBy::Command,
                    vec!["the upgrade plan changed after you confirmed it: run the command again".to_owned()],
                ))
            }
            _ => self.decision,
        }
    }

    fn warnings(&self) -> &[String] {
        match &self.decision {
            Decision::Write(proposal) => &proposal.warnings,
            Decision::Unchanged(_) | Decision::Refused(_) => &[],
        }
    }
}

/// Decides whether an upgrade may be written. `context.view` must come from [`ChangeSnapshot::view`].
pub fn decide(
    snapshot: &ChangeSnapshot,
    options: UpgradeOptions<'_>,
    context: ReviewContext<'_>,
) -> Result<Upgrade, DecodeError> {
    let version = with_leading_v(options.version);
    let observed = &snapshot.observed;
    let from = observed.control_plane.spec.version();
    let current = &observed.control_plane.spec.infrastructure_ref;
    let template = options.templates.new.as_ref();
    let template = template.filter(|(name, _)| *name != current.name);
    let mut spec = json!({ "version": version });
    if let Some((name, _)) = template {
        merge_patch::apply(&mut spec, &infrastructure_template(options.api_version, name));
    }
    let patch = json!({ "spec": spec });
    let mut preflight = preflight(snapshot, &patch, options.force, context)?;
    if let (Some((name, new)), Ok(before)) = (template, &options.templates.current) {
        let reference = Reference {
            name: name.clone(),
            ..current.clone()
        };
        let changes = template_changes(before, new, &reference);
        preflight.plan.desired.changes.extend(changes);
    }
    let workers = options
        .workers
        .clone()
        .with_nodes(&snapshot.observed.workload, &observed.machines);
    let mut assessment = assess(
        from,
        &version,
        &observed.control_plane.spec.kubeadm_config_spec.fields,
        &workers,
        Some(options.used_apis),
    );
    let kept = kept(&observed.control_plane, options.templates, &version);
    assessment.notices.extend(kept);
    let consequences = preflight.consequences();
    // If the Cluster has a version that the control plane does not have yet, an upgrade to the current version takes it back.
    let is_other_pending = observed
        .topology()
        .is_some_and(|topology| topology.version.as_ref() != Some(&version));
    let is_in_topology = matches!(
        ownership(&snapshot.json, &patch, context.field_manager)?,
        Ownership::FromCluster(_)
    );
    let decision = if from == version && template.is_none() && !is_other_pending {
        Decision::Unchanged(format!("the version is already {version}"))
    } else if let Some(refusal) = refusal(preflight.refusal, &assessment) {
        Decision::Refused(refusal)
    } else if let Some(refusal) = refusal_while_paused(observed, options.force) {
        Decision::Refused(refusal)
    } else if is_in_topology && skips_minor(from, &version) {
        let why = "the ClusterClass does not list the versions in between, and Cluster API upgrades one minor version at a time";
        Decision::Refused(Refusal::new(RefusedBy::Command, vec![why.to_owned()]))
    } else {
        let from_to = match template {
            Some((name, _)) if from == version => format!("to infrastructure template {name}"),
            Some((name, _)) => format!("from {from} to {version}, with infrastructure template {name}"),
            None => format!("from {from} to {version}"),
        };
        Decision::Write(Proposal {
            write: ObjectWrite::patch(patch),
            outcome: format!("upgraded {from_to}"),
            warnings: preflight.warnings,
            consequences,
            event: ChangeEvent {
                reason: "Upgraded",
                action: "Upgrade",
                note_verb: "upgraded",
                detail: from_to,
            },
        })
    };
    Ok(Upgrade {
        plan: preflight.plan,
        assessment,
        decision,
    })
}

/// Turns an upgrade to the next minor version into an upgrade to a later version. The topology controller upgrades over the
/// versions in between.
pub fn over_several_versions(decision: Decision, from: &str, to: &str) -> Decision {
    let Decision::Write(proposal) = decision else {
        return decision;
    };
    let from_to = format!("from {from} to {to}");
    Decision::Write(Proposal {
        write: ObjectWrite::patch(json!({"spec": {"version": to}})),
        outcome: format!("upgraded {from_to}"),
        event: ChangeEvent {
            detail: from_to,
            ..proposal.event
        },
        ..proposal
    })
}

fn skips_minor(from: &str, to: &str) -> bool {
    match (parse_version(from), parse_version(to)) {
        (Ok(from), Ok(to)) => (to.major, to.minor) > (from.major, from.minor.saturating_add(1)),
        _ => false,
    }
}

/// What the upgrade does not change.
fn kept(control_plane: &KubeadmControlPlane, templates: &Templates, to: &str) -> Vec<Notice> {
    let Templates { current, new } = templates;
    let (template, from) = (
        &control_plane.spec.infrastructure_ref,
        control_plane.spec.version(),
    );
    let stays = new.as_ref().is_none_or(|(name, _)| *name == template.name);
    let image = stays.then(|| machine_image::notice(template, current, from, to));
    let kept = kept_addons(control_plane).into_iter().chain(image.flatten());
    kept.map(|message| Notice {
        message,
        source: None,
    })
    .collect()
}

/// Adds the unsupported workers to the refusal, which then no longer suggests `--force`, because `--force` does not
/// override them.
fn refusal(preflight: Option<Refusal>, assessment: &Assessment) -> Option<Refusal> {
    let workers = assessment.refusals.clone();
    match preflight {
        None if workers.is_empty() => None,
        None => Some(Refusal::new(RefusedBy::Command, workers)),
        Some(mut refusal) => {
            if refusal.refused_by == RefusedBy::Preflight && !workers.is_empty() {
                refusal.refused_by = RefusedBy::Command;
            }
            refusal.why.extend(workers);
            Some(refusal)
        }
    }
}

/// Assesses the effects of an upgrade. `config` is the `kubeadmConfigSpec`. `used` is none if no API server was asked.
pub fn assess(
    from: &str,
    to: &str,
    config: &Value,
    workers: &Workers,
    used: Option<&UsedApis>,
) -> Assessment {
    let unsupported_workers = kubelet_skew::unsupported_workers(&workers.workers, to);
    let removed = removals(from, to, used);
    let removed = removed
        .in_use
        .into_iter()
        .chain(removed.unused)
        .map(|message| Notice {
            message,
            source: Some(API_GUIDE),
        });
    let etcd = outdated_etcd(config, to).map(|message| Notice {
        message,
        source: None,
    });
    let unread = workers.read_failures.iter().map(|line| Notice {
        message: format!("{line}; worker nodes may be too old for {to}"),
        source: None,
    });
    Assessment {
        refusals: unsupported_workers
            .iter()
            .map(|skewed| kubelet_skew::message(skewed, to))
            .collect(),
        notices: removed.chain(etcd).chain(unread).collect(),
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::names::annotation;
    use kcp_rules::view::View;
    use serde_json::{Value, json};

    use super::{
        API_GUIDE, Assessment, Decision, ObjectWrite, Refusal, RefusedBy, ReviewContext, Upgrade,
        UpgradeOptions, assess, decide,
    };
    use crate::{
        addon_update::{SKIP_CORE_DNS, SKIP_KUBE_PROXY},
        machine_image::Templates,
        release_changes::UsedApis,
        snapshot::{Failure, Workers, change::ChangeSnapshot, workers::Worker},
        testing::{
            change::{fail, snapshot},
            objects::{annotate, now, pause},
        },
    };

    fn upgrade(snapshot: &ChangeSnapshot, version: &str, force: bool, workers: &Workers) -> Upgrade {
        upgrade_with(snapshot, version, None, force, workers)
    }

    /// An upgrade to another infrastructure template.
    fn upgrade_with(
        snapshot: &ChangeSnapshot,
        version: &str,
        template: Option<&str>,
        force: bool,
        workers: &Workers,
    ) -> Upgrade {
        let view = View {
            machines: snapshot.view().machines,
            cluster: Some(None),
            ..View::default()
        };
        let context = ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &view,
            configuration: None,
        };
        let object = |image: &str| json!({"spec": {"template": {"spec": {"image": image}}}});
        let templates = Templates {
            current: Ok(object("old")),
            new: template.map(|name| (name.to_owned(), object("new"))),
        };
        let options = UpgradeOptions {
            version,
            force,
            workers,
            templates: &templates,
            used_apis: &UsedApis::default(),
            api_version: "controlplane.cluster.x-k8s.io/v1beta2",
        };
        decide(snapshot, options, context).expect("decodes")
    }

    fn workers(version: &str) -> Workers {
        Workers {
            workers: vec![Worker {
                object: "MachineDeployment/md-0".to_owned(),
                version: version.to_owned(),
                machines: None,
            }],
            read_failures: Vec::new(),
        }
    }

    #[test]
    fn writes_the_version_and_an_event() {
        for version in ["v1.35.0", "1.35.0"] {
            let upgrade = upgrade(&snapshot(), version, false, &workers("v1.34.0"));
            let Decision::Write(proposal) = upgrade.decision else {
                panic!("not written: {:?}", upgrade.decision);
            };
            assert_eq!(
                proposal.write,
                ObjectWrite::patch(json!({"spec": {"version": "v1.35.0"}}))
            );
            assert_eq!(
                proposal.event.note("alice"),
                "upgraded by alice from v1.34.2 to v1.35.0"
            );
            assert_eq!(
                proposal.consequences,
                ["etcd tolerates no member failure while each new Machine joins"]
            );
            assert_eq!(upgrade.plan.steps().len(), 6);
        }
        let same = upgrade(&snapshot(), "1.34.2", false, &Workers::default());
        assert_eq!(
            same.decision,
            Decision::Unchanged("the version is already v1.34.2".to_owned())
        );
    }

    #[test]
    fn a_template_is_written_with_the_version() {
        let upgrade = |version: &str, template: &str| {
            upgrade_with(&snapshot(), version, Some(template), false, &workers("v1.34.0"))
        };
        let changed = upgrade("v1.35.0", "t2");
        let fields: Vec<&str> = changed
            .plan
            .desired
            .changes
            .iter()
            .map(|change| change.field.as_str())
            .collect();
        assert_eq!(
            fields,
            [
                "spec.machineTemplate.spec.infrastructureRef.name",
                "spec.version",
                "spec.template.spec.image"
            ]
        );
        let notices = &changed.assessment.notices;
        assert!(
            !notices.iter().any(|notice| notice.message.contains("template")),
            "{notices:?}"
        );
        for (version, detail) in [
            (
                "v1.35.0",
                "from v1.34.2 to v1.35.0, with infrastructure template t2",
            ),
            ("v1.34.2", "to infrastructure template t2"),
        ] {
            let Decision::Write(proposal) = upgrade(version, "t2").decision else {
                panic!("not written to {version}");
            };
            let spec = json!({"version": version, "machineTemplate": {"spec": {"infrastructureRef": {"name": "t2"}}}});
            assert_eq!(proposal.write, ObjectWrite::patch(json!({ "spec": spec })));
            assert_eq!(
                proposal.event.note("alice"),
                format!("upgraded by alice {detail}")
            );
        }
        let name = &snapshot().observed.control_plane.spec.infrastructure_ref.name;
        assert_eq!(
            upgrade("v1.34.2", name).decision,
            Decision::Unchanged("the version is already v1.34.2".to_owned())
        );
    }

    #[test]
    fn the_preview_says_what_stays() {
        let mut snapshot = snapshot();
        for annotation in [SKIP_KUBE_PROXY, SKIP_CORE_DNS] {
            annotate(&mut snapshot.observed.control_plane.metadata, annotation, "");
        }
        let notices = upgrade(&snapshot, "v1.35.0", false, &workers("v1.34.0"))
            .assessment
            .notices;
        let messages: Vec<&str> = notices.iter().map(|notice| notice.message.as_str()).collect();
        insta::assert_snapshot!(messages.join("\n"), @r"
        could not read the kubelet versions of the nodes: the workload cluster was not read; worker nodes may be too old for v1.35.0
        because of annotation controlplane.cluster.x-k8s.io/skip-kube-proxy, Cluster API does not update kube-proxy: update kube-proxy yourself
        because of annotation controlplane.cluster.x-k8s.io/skip-coredns, Cluster API does not update CoreDNS: update CoreDNS yourself
        the infrastructure template stays StandInMachineTemplate example; if it names an image of v1.34.2, new Machines get the old kubelet: choose another template with --infrastructure-template
        ");
    }

    #[test]
    fn force_overrides_the_preflight_only() {
        let (young, old) = (workers("v1.34.0"), workers("v1.31.0"));
        let mut unhealthy = snapshot();
        fail(&mut unhealthy, 2, "EtcdPodHealthy", "crashed");
        let mut paused = snapshot();
        pause(&mut paused.observed.control_plane.metadata);
        let blocked = "EtcdPodHealthy of Machine m2 is False: crashed";
        let stopped = "the control plane is paused: no controller reconciles it";
        let behind = "MachineDeployment/md-0: kubelet v1.31.0 would be 4 minor versions behind API server v1.35.0, but Kubernetes supports at most 3; upgrade the worker nodes first";
        let skips = "(version-skips-minor)";
        let lowered = "(version-lowered)";
        let command = RefusedBy::Command;
        for (name, snapshot, version, workers, force, expected) in [
            (
                "preflight",
                &unhealthy,
                "v1.35.0",
                &young,
                false,
                Some((RefusedBy::Preflight, vec![blocked])),
            ),
            ("preflight_overridden", &unhealthy, "v1.35.0", &young, true, None),
            (
                "pause",
                &paused,
                "v1.35.0",
                &young,
                false,
                Some((RefusedBy::Preflight, vec![stopped])),
            ),
            ("pause_overridden", &paused, "v1.35.0", &young, true, None),
            (
                "workers",
                &snapshot(),
                "v1.35.0",
                &old,
                false,
                Some((command, vec![behind])),
            ),
            (
                "workers_never_overridden",
                &snapshot(),
                "v1.35.0",
                &old,
                true,
                Some((command, vec![behind])),
            ),
            (
                "both",
                &unhealthy,
                "v1.35.0",
                &old,
                false,
                Some((command, vec![blocked, behind])),
            ),
            (
                "both_in_part_overridden",
                &unhealthy,
                "v1.35.0",
                &old,
                true,
                Some((command, vec![behind])),
            ),
            (
                "rules",
                &snapshot(),
                "v1.36.0",
                &young,
                true,
                Some((RefusedBy::Rules, vec![skips])),
            ),
            (
                "downgrade",
                &snapshot(),
                "v1.33.0",
                &Workers::default(),
                true,
                Some((RefusedBy::Rules, vec![lowered])),
            ),
        ] {
            let decision = upgrade(snapshot, version, force, workers).decision;
            match (decision, expected) {
                (Decision::Write(_), None) => {}
                (Decision::Refused(Refusal { why, refused_by, .. }), Some((expected_by, lines))) => {
                    assert_eq!(refused_by, expected_by, "{name}");
                    let are_said = why.len() == lines.len()
                        && why.iter().zip(&lines).all(|(line, end)| line.ends_with(end));
                    assert!(are_said, "{name}: {why:?}");
                }
                (decision, _) => panic!("{name}: {decision:?}"),
            }
        }
    }

    #[test]
    fn a_pause_allows_no_downgrade() {
        let paused = || {
            let mut paused = snapshot();
            pause(&mut paused.observed.control_plane.metadata);
            let mut object: Value = serde_json::from_str(&paused.json).expect("JSON");
            object["metadata"]["annotations"][annotation::PAUSED] = "".into();
            paused.json = object.to_string();
            paused
        };
        let joined = "Machine m1 has joined at v1.34.2, and etcd data cannot be downgraded; during the pause, the rule version-lowered \
                      only warns";
        for (version, expected) in [("v1.33.0", Some(joined)), ("v1.35.0", None)] {
            let decision = upgrade(&paused(), version, true, &workers("v1.33.0")).decision;
            match (decision, expected) {
                (Decision::Write(_), None) => {}
                (Decision::Refused(Refusal { why, .. }), Some(line)) => {
                    assert!(why.iter().any(|why| why == line), "{why:?}");
                }
                (decision, _) => panic!("{version}: {decision:?}"),
            }
        }
    }

    #[test]
    fn tells_two_upgrades_apart() {
        let confirmed = upgrade(&snapshot(), "v1.35.0", false, &Workers::default());
        let is_equivalent = |snapshot: &ChangeSnapshot, workers: &Workers| {
            upgrade(snapshot, "v1.35.0", true, workers).is_equivalent(&confirmed)
        };
        assert!(is_equivalent(&snapshot(), &Workers::default()));
        let mut unhealthy = snapshot();
        fail(&mut unhealthy, 2, "EtcdPodHealthy", "crashed");
        assert!(!is_equivalent(&unhealthy, &Workers::default()));
        assert!(!is_equivalent(&snapshot(), &workers("v1.31.0")));
        let mut fewer = snapshot();
        fewer.observed.machines.pop();
        assert!(!is_equivalent(&fewer, &Workers::default()));
        // The steps are the same, but the user confirmed an upgrade from another version.
        let mut moved = snapshot();
        moved.observed.control_plane.spec.version = Some("v1.34.9".to_owned());
        assert!(!is_equivalent(&moved, &Workers::default()));
        let mut unread = snapshot();
        unread.etcd_failure = Some(Failure {
            object: "Secret/c1-etcd".to_owned(),
            message: "it is not there".to_owned(),
            hint: None,
            ..Failure::default()
        });
        assert!(!is_equivalent(&unread, &Workers::default()));
    }

    #[test]
    fn only_what_the_user_confirmed_is_written() {
        let confirmed = upgrade(&snapshot(), "v1.35.0", false, &Workers::default());
        let mut moved = snapshot();
        moved.observed.control_plane.spec.version = Some("v1.34.9".to_owned());
        let decision = |snapshot: &ChangeSnapshot, confirmed: Option<&Upgrade>| {
            upgrade(snapshot, "v1.35.0", false, &Workers::default()).into_confirmed_decision(confirmed)
        };
        let same = decision(&snapshot(), Some(&confirmed));
        assert!(matches!(same, Decision::Write(_)), "{same:?}");
        let otherwise = decision(&moved, Some(&confirmed));
        assert!(
            matches!(&otherwise, Decision::Refused(refusal) if refusal.refused_by == RefusedBy::Command
                && refusal.why == ["the upgrade plan changed after you confirmed it: run the command again"]),
            "{otherwise:?}"
        );
        let nobody_was_asked = decision(&moved, None);
        assert!(
            matches!(nobody_was_asked, Decision::Write(_)),
            "{nobody_was_asked:?}"
        );
    }

    #[test]
    fn an_upgrade_without_notices() {
        assert_eq!(
            assess("v1.34.2", "v1.34.4", &json!({}), &Workers::default(), None),
            Assessment::default()
        );
    }

    #[test]
    fn an_upgrade_with_every_notice() {
        let config = json!({"clusterConfiguration": {
            "apiServer": {"extraArgs": [{"name": "cloud-provider", "value": "external"}]}}});
        let workers = Workers {
            workers: vec![Worker {
                object: "Node/w1".to_owned(),
                version: "v1.29.3".to_owned(),
                machines: None,
            }],
            read_failures: vec!["could not read MachinePools: forbidden".to_owned()],
        };
        let Assessment { refusals, notices } = assess(
            "v1.32.4",
            "v1.33.6",
            &config,
            &workers,
            Some(&UsedApis::unread("forbidden".to_owned())),
        );
        assert_eq!(
            refusals,
            [
                "Node/w1: kubelet v1.29.3 would be 4 minor versions behind API server v1.33.6, but Kubernetes supports at most 3; upgrade the worker nodes first"
            ]
        );
        let reported: Vec<_> = notices
            .iter()
            .map(|notice| (notice.message.as_str(), notice.source))
            .collect();
        assert_eq!(
            reported,
            [
                (
                    "v1.33 no longer serves SelfSubjectReview in authentication.k8s.io/v1beta1: stop using it",
                    Some(API_GUIDE)
                ),
                (
                    "could not read which of these APIs clients use: forbidden",
                    Some(API_GUIDE)
                ),
                (
                    "could not read MachinePools: forbidden; worker nodes may be too old for v1.33.6",
                    None
                ),
            ]
        );
    }
}
