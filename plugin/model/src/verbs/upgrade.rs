//! The decision of `upgrade`, which changes the Kubernetes version.

use kcp_rules::api::DecodeError;
use serde_json::{Value, json};

use crate::{
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::{preflight, refusal_while_paused},
    },
    kubelet_skew::{self, Workers},
    plan::{Plan, options::with_leading_v},
    release_changes::{API_GUIDE, outdated_tags, removals},
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
};

#[derive(Clone, Copy, Debug)]
pub struct UpgradeOptions<'u> {
    /// The desired Kubernetes version, with or without the leading `v`.
    pub version: &'u str,
    pub force: bool,
    /// The `MachineDeployments` and `MachinePools` of the Cluster, with the versions of their Machines.
    pub workers: &'u Workers,
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
    let patch = json!({ "spec": { "version": version } });
    let observed = &snapshot.observed;
    let from = observed.control_plane.spec.version();
    let preflight = preflight(snapshot, &patch, options.force, context)?;
    let workers = options
        .workers
        .clone()
        .with_nodes(&snapshot.observed.workload, &observed.machines);
    let assessment = assess(
        from,
        &version,
        &observed.control_plane.spec.kubeadm_config_spec.fields,
        &workers,
    );
    let consequences = preflight.consequences();
    let decision = if from == version {
        Decision::Unchanged(format!("the version is already {version}"))
    } else if let Some(refusal) = refusal(preflight.refusal, &assessment) {
        Decision::Refused(refusal)
    } else if let Some(refusal) = refusal_while_paused(observed, options.force) {
        Decision::Refused(refusal)
    } else {
        let from_to = format!("from {from} to {version}");
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

/// Assesses the effects of an upgrade. `config` is the `kubeadmConfigSpec`.
pub fn assess(from: &str, to: &str, config: &Value, workers: &Workers) -> Assessment {
    let unsupported_workers = kubelet_skew::unsupported_workers(&workers.workers, to);
    let removed = removals(from, to).into_iter().map(|message| Notice {
        message,
        source: Some(API_GUIDE),
    });
    let tags = outdated_tags(config, to).into_iter().map(|outdated| Notice {
        message: outdated.message(to),
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
        notices: removed.chain(tags).chain(unread).collect(),
    }
}

#[cfg(test)]
mod tests {
    use kcp_rules::view::View;
    use serde_json::json;

    use super::{
        API_GUIDE, Assessment, Decision, ObjectWrite, Refusal, RefusedBy, ReviewContext, Upgrade,
        UpgradeOptions, assess, decide,
    };
    use crate::{
        kubelet_skew::{Worker, Workers},
        snapshot::{Failure, change::ChangeSnapshot},
        testing::{
            change::{fail, snapshot},
            objects::{now, pause},
        },
    };

    fn upgrade(snapshot: &ChangeSnapshot, version: &str, force: bool, workers: &Workers) -> Upgrade {
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
        let options = UpgradeOptions {
            version,
            force,
            workers,
        };
        decide(snapshot, options, context).expect("decodes")
    }

    fn workers(version: &str) -> Workers {
        Workers {
            workers: vec![Worker {
                object: "MachineDeployment/md-0".to_owned(),
                version: version.to_owned(),
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
                (
                    Decision::Refused(Refusal {
                        why, refused_by: by, ..
                    }),
                    Some((expected_by, lines)),
                ) => {
                    assert_eq!(by, expected_by, "{name}");
                    let are_said = why.len() == lines.len()
                        && why.iter().zip(&lines).all(|(line, end)| line.ends_with(end));
                    assert!(are_said, "{name}: {why:?}");
                }
                (decision, _) => panic!("{name}: {decision:?}"),
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
            assess("v1.34.2", "v1.34.4", &json!({}), &Workers::default()),
            Assessment::default()
        );
    }

    #[test]
    fn an_upgrade_with_every_notice() {
        let config = json!({"clusterConfiguration": {
            "apiServer": {"extraArgs": [{"name": "cloud-provider", "value": "external"}]},
            "dns": {"imageTag": "v1.10.1"}}});
        let workers = Workers {
            workers: vec![Worker {
                object: "Node/w1".to_owned(),
                version: "v1.29.3".to_owned(),
            }],
            read_failures: vec!["could not read MachinePools: forbidden".to_owned()],
        };
        let Assessment { refusals, notices } = assess("v1.32.4", "v1.33.6", &config, &workers);
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
                    "clusterConfiguration.dns.imageTag pins CoreDNS at v1.10.1, but kubeadm v1.33.6 installs v1.12.0 \
                     or newer by default: use a newer tag, or remove the field",
                    None
                ),
                (
                    "could not read MachinePools: forbidden; worker nodes may be too old for v1.33.6",
                    None
                ),
            ]
        );
    }
}
