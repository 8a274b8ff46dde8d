//! `upgrade`: another Kubernetes version.

use kcp_rules::api::DecodeError;
use serde_json::{Value, json};

use crate::{
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::preflight,
    },
    kubelet_skew::{self, Workers},
    plan::{Plan, options::with_leading_v},
    release_changes::{outdated_tags, removals},
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
};

#[derive(Clone, Copy, Debug)]
pub struct UpgradeOptions<'u> {
    /// With or without its leading `v`.
    pub version: &'u str,
    pub force: bool,
    /// The workers of `MachineDeployments` and `MachinePools`, without nodes.
    pub makers: &'u Workers,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Upgrade {
    pub plan: Plan,
    pub assessment: Assessment,
    pub decision: Decision,
}

/// What an upgrade means beyond the control plane's own Machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// Workers that the new API servers could not serve, a line each. Never overridden.
    pub refusals: Vec<String>,
    pub notices: Vec<Notice>,
}

/// Something to know, or to change before the upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub message: String,
    pub source: Option<&'static str>,
}

impl Upgrade {
    /// Whether two upgrades start from the same spec, take the same steps and come with the same warnings.
    pub fn is_same(&self, other: &Self) -> bool {
        self.plan.current == other.plan.current
            && self.plan.steps == other.plan.steps
            && self.plan.blockers == other.plan.blockers
            && self.assessment == other.assessment
            && self.warnings() == other.warnings()
    }

    /// The decision if the user confirmed another upgrade; `confirmed` is none if nobody was asked.
    pub fn confirmed_as(self, confirmed: Option<&Self>) -> Decision {
        match confirmed {
            Some(confirmed) if matches!(self.decision, Decision::Write(_)) && !self.is_same(confirmed) => {
                Decision::Refused(Refusal::new(
                    RefusedBy::Command,
                    vec![
                        "the upgrade is no longer the one that you confirmed: run the command again"
                            .to_owned(),
                    ],
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

/// Decides on a control plane. `context.view` is [`ChangeSnapshot::view`].
pub fn decide(
    snapshot: &ChangeSnapshot,
    options: UpgradeOptions<'_>,
    context: ReviewContext<'_>,
) -> Result<Upgrade, DecodeError> {
    let version = with_leading_v(options.version);
    let observed = &snapshot.observed;
    let from = observed.control_plane.spec.version();
    let patch = json!({ "spec": { "version": version } });
    let preflight = preflight(snapshot, &patch, options.force, context)?;
    let workers = options
        .makers
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
        Decision::Unchanged(format!("version is {version} already"))
    } else if let Some(refusal) = refusal(preflight.refusal, &assessment) {
        Decision::Refused(refusal)
    } else {
        let from_to = format!("from {from} to {version}");
        Decision::Write(Proposal {
            write: ObjectWrite::patch(patch),
            done: format!("upgraded {from_to}"),
            warnings: preflight.warnings,
            consequences,
            event: ChangeEvent {
                reason: "Upgraded",
                action: "Upgrade",
                done: "upgraded",
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

/// Adds the workers that could not be served. `--force` does not override them, so they outrank the preflight.
fn refusal(preflight: Option<Refusal>, assessment: &Assessment) -> Option<Refusal> {
    let workers = assessment.refusals.clone();
    match preflight {
        None if workers.is_empty() => None,
        None => Some(Refusal::new(RefusedBy::Command, workers)),
        Some(mut refusal) => {
            if refusal.by == RefusedBy::Preflight && !workers.is_empty() {
                refusal.by = RefusedBy::Command;
            }
            refusal.why.extend(workers);
            Some(refusal)
        }
    }
}

/// Assesses an upgrade of a control plane whose `kubeadmConfigSpec` is `config`.
pub fn assess(from: &str, to: &str, config: &Value, workers: &Workers) -> Assessment {
    let unserved = kubelet_skew::unserved(&workers.known, to);
    let removed = removals(from, to, config).into_iter().map(|removal| Notice {
        message: removal.message(),
        source: Some(removal.source),
    });
    let tags = outdated_tags(config, to).into_iter().map(|outdated| Notice {
        message: outdated.message(to),
        source: None,
    });
    let unread = workers.unread.iter().map(|line| Notice {
        message: format!("{line}; workers may be too old for {to}"),
        source: None,
    });
    Assessment {
        refusals: unserved
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
        Assessment, Decision, ObjectWrite, Refusal, RefusedBy, ReviewContext, Upgrade, UpgradeOptions,
        assess, decide,
    };
    use crate::{
        kubelet_skew::{Worker, Workers},
        snapshot::{Failure, change::ChangeSnapshot},
        testing::{
            change::{fail, snapshot},
            objects::now,
        },
    };

    fn upgrade(snapshot: &ChangeSnapshot, version: &str, force: bool, makers: &Workers) -> Upgrade {
        let view = View {
            machines: snapshot.reviewed_machines().into(),
            cluster: None.into(),
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
            makers,
        };
        decide(snapshot, options, context).expect("decodes")
    }

    fn workers(version: &str) -> Workers {
        Workers {
            known: vec![Worker {
                object: "MachineDeployment/md-0".to_owned(),
                version: version.to_owned(),
            }],
            unread: Vec::new(),
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
                ["etcd cannot lose a member during steps 1, 3 and 5"]
            );
            assert_eq!(upgrade.plan.steps().len(), 6);
        }
        let same = upgrade(&snapshot(), "1.34.2", false, &Workers::default());
        assert_eq!(
            same.decision,
            Decision::Unchanged("version is v1.34.2 already".to_owned())
        );
    }

    #[test]
    fn force_overrides_the_preflight_only() {
        let (young, old) = (workers("v1.34.0"), workers("v1.31.0"));
        let mut unhealthy = snapshot();
        fail(&mut unhealthy, 2, "EtcdPodHealthy", "crashed");
        let blocked = "EtcdPodHealthy of Machine m2 is False: crashed";
        let behind = "MachineDeployment/md-0: kubelet v1.31.0 would be 4 minor versions behind an API server of v1.35.0, and \
                      3 are allowed; upgrade the workers first";
        let skips = "(version-skips-minor)";
        let lowered = "(version-lowered)";
        let command = RefusedBy::Command;
        for (name, snapshot, version, makers, force, expected) in [
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
            let decision = upgrade(snapshot, version, force, makers).decision;
            match (decision, expected) {
                (Decision::Write(_), None) => {}
                (Decision::Refused(Refusal { why, by, .. }), Some((expected_by, lines))) => {
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
        let is_same = |snapshot: &ChangeSnapshot, makers: &Workers| {
            upgrade(snapshot, "v1.35.0", true, makers).is_same(&confirmed)
        };
        assert!(is_same(&snapshot(), &Workers::default()));
        let mut unhealthy = snapshot();
        fail(&mut unhealthy, 2, "EtcdPodHealthy", "crashed");
        assert!(!is_same(&unhealthy, &Workers::default()));
        assert!(!is_same(&snapshot(), &workers("v1.31.0")));
        let mut fewer = snapshot();
        fewer.observed.machines.pop();
        assert!(!is_same(&fewer, &Workers::default()));
        // The steps are the same, but the user confirmed an upgrade from another version.
        let mut moved = snapshot();
        moved.observed.control_plane.spec.version = Some("v1.34.9".to_owned());
        assert!(!is_same(&moved, &Workers::default()));
        let mut unread = snapshot();
        unread.etcd_unread = Some(Failure {
            object: "Secret/c1-etcd".to_owned(),
            message: "it is not there".to_owned(),
            hint: None,
            forbidden: None,
        });
        assert!(!is_same(&unread, &Workers::default()));
    }

    #[test]
    fn only_what_wconfirmed_as_can_come_about_otherwise() {
        let confirmed = upgrade(&snapshot(), "v1.35.0", false, &Workers::default());
        let mut moved = snapshot();
        moved.observed.control_plane.spec.version = Some("v1.34.9".to_owned());
        let decision = |snapshot: &ChangeSnapshot, confirmed: Option<&Upgrade>| {
            upgrade(snapshot, "v1.35.0", false, &Workers::default()).confirmed_as(confirmed)
        };
        let same = decision(&snapshot(), Some(&confirmed));
        assert!(matches!(same, Decision::Write(_)), "{same:?}");
        let otherwise = decision(&moved, Some(&confirmed));
        assert!(
            matches!(&otherwise, Decision::Refused(refusal) if refusal.by == RefusedBy::Command
                && refusal.why == ["the upgrade is no longer the one that you confirmed: run the command again"]),
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
            assess("v1.33.6", "v1.34.2", &json!({}), &Workers::default()),
            Assessment::default()
        );
    }

    #[test]
    fn an_upgrade_with_every_notice() {
        let config = json!({"clusterConfiguration": {
            "apiServer": {"extraArgs": [{"name": "cloud-provider", "value": "external"}]},
            "dns": {"imageTag": "v1.10.1"}}});
        let workers = Workers {
            known: vec![Worker {
                object: "Node/w1".to_owned(),
                version: "v1.29.3".to_owned(),
            }],
            unread: vec!["MachinePools were not read: forbidden".to_owned()],
        };
        let Assessment { refusals, notices } = assess("v1.32.4", "v1.33.6", &config, &workers);
        assert_eq!(
            refusals,
            [
                "Node/w1: kubelet v1.29.3 would be 4 minor versions behind an API server of v1.33.6, and 3 are allowed; \
              upgrade the workers first"
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
                    "from v1.33 on, kube-apiserver does not start with --cloud-provider, which is set: remove it",
                    Some("https://github.com/kubernetes/kubernetes/pull/130162")
                ),
                (
                    "CoreDNS stays at v1.10.1, which clusterConfiguration.dns.imageTag pins; kubeadm of v1.33.6 brings \
                     v1.12.0 or newer: raise or remove the tag",
                    None
                ),
                (
                    "MachinePools were not read: forbidden; workers may be too old for v1.33.6",
                    None
                ),
            ]
        );
    }
}
