//! Decides whether a Machine is outdated, and for which reasons.
//!
//! The comparison follows `UpToDate` of Cluster API v1.14.2. The running controller may have another version: once it has
//! processed the current spec, its own result counts, and differences that only this comparison finds apply after an
//! update of Cluster API.

use jiff::{SignedDuration, Timestamp};
use kcp_api::{
    Condition, KubeadmControlPlaneSpec, Machine, Object as _, Reference,
    machine::{Bootstrap, Infrastructure},
};
use serde::Serialize;

use crate::{
    plan::kubeadm_config::{lacks_control_plane_of_join, outdated_paths},
    snapshot::Snapshot,
};

/// The result of comparing a Machine with the spec of its control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineDifference {
    pub machine: String,
    /// Why the Machine is outdated. Empty if the Machine is up to date.
    pub reasons: Vec<Reason>,
    /// The parts of the Machine that could not be compared. The controller assumes that they match.
    pub gaps: Vec<Gap>,
    /// The configuration paths at which the comparison of Cluster API v1.14.2 finds a difference, but the
    /// running controller does not.
    pub paths_ignored_by_controller: Vec<String>,
    /// Whether the Machine joined, but its configuration lacks `joinConfiguration.controlPlane`, so that some releases of
    /// Cluster API replace the Machine: [`crate::plan::kubeadm_config::EARLIER_RELEASES`].
    pub lacks_control_plane_of_join: bool,
}

impl MachineDifference {
    pub const fn is_outdated(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// Whether the Machine differs from the spec in fields that the Machine shows.
    pub fn differs_from_spec(&self) -> bool {
        self.reasons.iter().any(|reason| {
            matches!(
                reason,
                Reason::Version { .. } | Reason::Config { .. } | Reason::Infrastructure { .. }
            )
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Reason {
    /// The Machine's certificates expire within `certificatesExpiryDays`.
    Certificates {
        expire: Timestamp,
    },
    /// The Machine was created before the time of a rollout.
    RolloutAfter {
        after: Timestamp,
    },
    Version {
        machine: String,
        #[serde(rename = "asked")]
        desired: String,
    },
    Config {
        fields: Vec<String>,
    },
    /// The infrastructure Machine was cloned from a template other than the one in the spec.
    Infrastructure {
        /// The template from which the infrastructure Machine was cloned, as `Kind.group/name`.
        machine: String,
        /// The template in the spec, as `Kind.group/name`.
        #[serde(rename = "asked")]
        desired: String,
    },
    /// Only the controller reports the Machine as outdated. The comparison here finds no reason.
    Reported {
        message: String,
    },
}

/// Whether a Machine differs from the spec in fields that the Machine shows. False if there is no verdict on it.
pub fn differs_from_spec(verdicts: &[MachineDifference], machine: &Machine) -> bool {
    let mut own = verdicts
        .iter()
        .filter(|verdict| verdict.machine == machine.name());
    own.any(MachineDifference::differs_from_spec)
}

/// A part of a Machine that could not be compared with the spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "gap")]
pub enum Gap {
    InfrastructureMissing,
    /// The infrastructure Machine has no annotation with the name of its template.
    TemplateUnknown,
    ConfigUnreferenced,
    ConfigMissing,
    /// The bootstrap configuration and the control plane have different API versions.
    ConfigVersion,
    /// `certificatesExpiryDays` is set, but the expiry of the Machine's certificates is unknown.
    ExpiryUnknown,
}

/// The specs with which a Machine is compared, and the time of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'s> {
    pub current: &'s KubeadmControlPlaneSpec,
    pub desired: &'s KubeadmControlPlaneSpec,
    /// Whether the controller has compared the Machines with the current spec of the control plane.
    pub is_observed: bool,
    /// Whether the control plane is paused. If it is, the controller has not compared the Machines since the
    /// pause began.
    pub is_paused: bool,
    pub now: Timestamp,
}

/// Compares every Machine with `desired`. The verdicts are ordered by the names of the Machines.
pub fn verdicts(
    observed: &Snapshot,
    desired: &KubeadmControlPlaneSpec,
    now: Timestamp,
) -> Vec<MachineDifference> {
    let control_plane = &observed.control_plane;
    let comparison = Comparison {
        current: &control_plane.spec,
        desired,
        is_observed: control_plane.has_compared_machines(),
        is_paused: observed.is_paused(),
        now,
    };
    let machines = observed.machines.iter();
    let mut verdicts: Vec<MachineDifference> = machines
        .map(|machine| compare_machine(machine, comparison))
        .collect();
    verdicts.sort_by(|a, b| a.machine.cmp(&b.machine));
    verdicts
}

pub fn compare_machine(machine: &Machine, comparison: Comparison<'_>) -> MachineDifference {
    let Comparison {
        current,
        desired,
        is_observed,
        is_paused,
        now,
    } = comparison;
    let mut gaps = Vec::new();
    let mut reasons = time_reasons(machine, desired, now, &mut gaps);
    // The controller compares the texts, so a Machine without a version is outdated.
    let version = machine.spec.version.as_deref().unwrap_or_default();
    if version != desired.version() {
        reasons.push(Reason::Version {
            machine: version.to_owned(),
            desired: desired.version().to_owned(),
        });
    }
    let mut fields = config_fields(machine, desired, &mut gaps);
    let infrastructure = infrastructure(machine, desired, &mut gaps);

    let reported = machine.condition("UpToDate").filter(|_| is_observed);
    let mut after_provider_update = Vec::new();
    if reported.is_some_and(Condition::is_true) && !is_paused {
        after_provider_update = config_fields(machine, current, &mut Vec::new());
        fields.retain(|field| !after_provider_update.contains(field));
    }
    if !fields.is_empty() {
        reasons.push(Reason::Config { fields });
    }
    reasons.extend(infrastructure);
    if let Some(condition) =
        reported.filter(|condition| condition.is_false() && condition.reason != "Updating")
        && !is_explained_by(machine, current, now)
    {
        reasons.push(Reason::Reported {
            message: condition.message_or_reason(),
        });
    }
    MachineDifference {
        machine: machine.name().to_owned(),
        reasons,
        gaps,
        paths_ignored_by_controller: after_provider_update,
        lacks_control_plane_of_join: matches!(&machine.bootstrap, Bootstrap::Config(config)
            if lacks_control_plane_of_join(config)),
    }
}

/// Whether the comparison here also finds that the Machine differs from the current spec.
fn is_explained_by(machine: &Machine, current: &KubeadmControlPlaneSpec, now: Timestamp) -> bool {
    let gaps = &mut Vec::new();
    !time_reasons(machine, current, now, gaps).is_empty()
        || machine
            .spec
            .version
            .as_ref()
            .is_some_and(|version| version != current.version())
        || !config_fields(machine, current, gaps).is_empty()
        || infrastructure(machine, current, gaps).is_some()
}

fn time_reasons(
    machine: &Machine,
    desired: &KubeadmControlPlaneSpec,
    now: Timestamp,
    gaps: &mut Vec<Gap>,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    match (
        desired.certificates_expiry_days,
        machine.status.certificates_expiry_date,
    ) {
        (Some(_), None) => gaps.push(Gap::ExpiryUnknown),
        (Some(days), Some(expire)) => {
            let margin = SignedDuration::from_secs(days.saturating_mul(24 * 60 * 60));
            if now.checked_add(margin).unwrap_or(Timestamp::MAX) > expire {
                reasons.push(Reason::Certificates { expire });
            }
        }
        (None, _) => {}
    }
    if let (Some(after), Some(created)) = (desired.rollout_after, machine.creation_timestamp())
        && created < after
        && after < now
    {
        reasons.push(Reason::RolloutAfter { after });
    }
    reasons
}

fn config_fields(machine: &Machine, desired: &KubeadmControlPlaneSpec, gaps: &mut Vec<Gap>) -> Vec<String> {
    let gap = match &machine.bootstrap {
        Bootstrap::Unreferenced => Gap::ConfigUnreferenced,
        Bootstrap::Missing => Gap::ConfigMissing,
        Bootstrap::Config(config) => {
            match outdated_paths(config, &desired.kubeadm_config_spec, desired.version()) {
                Some(fields) => return fields,
                None => Gap::ConfigVersion,
            }
        }
    };
    gaps.push(gap);
    Vec::new()
}

fn infrastructure(
    machine: &Machine,
    desired: &KubeadmControlPlaneSpec,
    gaps: &mut Vec<Gap>,
) -> Option<Reason> {
    let shown = |template: &Reference| format!("{}/{}", template.group_kind(), template.name);
    match &machine.infrastructure {
        Infrastructure::Missing => gaps.push(Gap::InfrastructureMissing),
        Infrastructure::Unannotated => gaps.push(Gap::TemplateUnknown),
        Infrastructure::ClonedFrom(template) if *template != desired.infrastructure_ref => {
            return Some(Reason::Infrastructure {
                machine: shown(template),
                desired: shown(&desired.infrastructure_ref),
            });
        }
        Infrastructure::ClonedFrom(_) => {}
    }
    None
}

impl Reason {
    /// Whether the Machine must be replaced because of its age or its certificates, although it may match the spec.
    pub const fn is_time_based(&self) -> bool {
        matches!(self, Self::Certificates { .. } | Self::RolloutAfter { .. })
    }

    pub fn message(&self) -> String {
        match self {
            Self::Certificates { expire } => format!("certificates expire at {expire}"),
            Self::RolloutAfter { after } => format!("created before the rollout at {after}"),
            Self::Version { machine, desired } if machine.is_empty() => {
                format!("no version, desired {desired}")
            }
            Self::Version { machine, desired } => format!("version {machine}, desired {desired}"),
            Self::Config { fields } => format!("bootstrap configuration differs in {}", fields.join(", ")),
            Self::Infrastructure { machine, desired } => format!("cloned from {machine}, desired {desired}"),
            Self::Reported { message } => format!("the controller reports: {message}"),
        }
    }
}

impl Gap {
    pub const fn message(&self) -> &'static str {
        match self {
            Self::InfrastructureMissing => "the infrastructure Machine does not exist",
            Self::TemplateUnknown => {
                "the infrastructure Machine has no annotation with the name of its template"
            }
            Self::ConfigUnreferenced => "the Machine does not reference a bootstrap configuration",
            Self::ConfigMissing => "the bootstrap configuration does not exist",
            Self::ConfigVersion => {
                "the bootstrap configuration and the control plane have different API versions"
            }
            Self::ExpiryUnknown => "the expiry of the certificates is unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        ConditionStatus::{False, Unknown},
        KubeadmControlPlaneSpec, Machine,
        machine::{Bootstrap, Infrastructure},
    };
    use serde_json::json;

    use super::{Comparison, Gap, MachineDifference, Reason, compare_machine};
    use crate::testing::{
        objects::{condition, minutes_ago, now, set},
        plan::{config, machine, spec, template, with_replicas, with_version},
    };

    type Alteration<'a> = &'a dyn Fn(&mut Machine);

    /// Compares a Machine that is five hours old, and that the controller has not compared yet.
    fn unreported(change: impl Fn(&mut Machine), desired: &KubeadmControlPlaneSpec) -> MachineDifference {
        let mut machine = machine("m1", "a", 5);
        machine.status.conditions.clear();
        change(&mut machine);
        let current = spec();
        compare_machine(
            &machine,
            Comparison {
                current: &current,
                desired,
                is_observed: true,
                is_paused: false,
                now: now(),
            },
        )
    }

    fn other_config() -> KubeadmControlPlaneSpec {
        KubeadmControlPlaneSpec {
            kubeadm_config_spec: config(json!({"joinConfiguration": {"nodeRegistration": {"name": "o"}}})),
            ..spec()
        }
    }

    /// As in the inputs of `TestIsKubeadmConfigForJoin`: only v1.14.2 and v1.13.6 recognize the second one as joined.
    #[test]
    fn a_joined_machine_may_lack_its_mark() {
        let arguments = json!({"kubeletExtraArgs": [{"name": "cloud-provider", "value": "external"}]});
        for (join, expected) in [
            (json!({"controlPlane": {}, "nodeRegistration": arguments}), false),
            (json!({"nodeRegistration": arguments}), true),
            (json!({"controlPlane": null, "nodeRegistration": arguments}), true),
            // The Machine that initialized the cluster, or one that looks the same.
            (json!({"nodeRegistration": {"name": "n"}}), false),
            (json!({}), false),
        ] {
            let fields = json!({
                "joinConfiguration": join,
                "clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": true}},
            });
            let desired = KubeadmControlPlaneSpec {
                kubeadm_config_spec: config(json!({"joinConfiguration": {"nodeRegistration": arguments}})),
                ..spec()
            };
            let verdict = unreported(
                |m| m.bootstrap = Bootstrap::Config(config(fields.clone())),
                &desired,
            );
            assert_eq!(verdict.lacks_control_plane_of_join, expected, "{fields}");
            if expected {
                assert_eq!(verdict.reasons, [], "{fields}");
            }
        }
    }

    #[test]
    fn why_a_machine_is_to_be_replaced() {
        let field = "joinConfiguration.nodeRegistration.name".to_owned();
        let rollout_at = |minutes| KubeadmControlPlaneSpec {
            rollout_after: Some(minutes_ago(minutes)),
            ..spec()
        };
        let within_thirty_days = KubeadmControlPlaneSpec {
            certificates_expiry_days: Some(30),
            ..spec()
        };
        let expires_in = |days: i64| {
            let expire = now() + jiff::SignedDuration::from_hours(24 * days);
            (expire, move |machine: &mut Machine| {
                machine.status.certificates_expiry_date = Some(expire);
            })
        };
        let (soon, expires_soon) = expires_in(29);
        let (_, expires_late) = expires_in(30);
        let cases: &[(&str, Alteration<'_>, KubeadmControlPlaneSpec, &[Reason])] = &[
            ("as_asked", &|_| {}, spec(), &[]),
            (
                "version",
                &|_| {},
                with_version(spec(), "v1.35.0"),
                &[Reason::Version {
                    machine: "v1.34.1".to_owned(),
                    desired: "v1.35.0".to_owned(),
                }],
            ),
            (
                "no_version",
                &|machine| machine.spec.version = None,
                spec(),
                &[Reason::Version {
                    machine: String::new(),
                    desired: "v1.34.1".to_owned(),
                }],
            ),
            (
                "template",
                &|machine| machine.infrastructure = Infrastructure::ClonedFrom(template("t0")),
                spec(),
                &[Reason::Infrastructure {
                    machine: format!("{}/t0", template("t0").group_kind()),
                    desired: format!("{}/t1", template("t1").group_kind()),
                }],
            ),
            (
                "config",
                &|_| {},
                other_config(),
                &[Reason::Config { fields: vec![field] }],
            ),
            ("replicas", &|_| {}, with_replicas(spec(), 5), &[]),
            (
                "rollout_after",
                &|_| {},
                rollout_at(60),
                &[Reason::RolloutAfter {
                    after: minutes_ago(60),
                }],
            ),
            ("rollout_to_come", &|_| {}, rollout_at(-60), &[]),
            ("rollout_before_it_was_made", &|_| {}, rollout_at(600), &[]),
            (
                "expires_soon",
                &expires_soon,
                within_thirty_days.clone(),
                &[Reason::Certificates { expire: soon }],
            ),
            ("expires_late", &expires_late, within_thirty_days, &[]),
            (
                "days_beyond_all_time",
                &expires_soon,
                KubeadmControlPlaneSpec {
                    certificates_expiry_days: Some(i64::MAX),
                    ..spec()
                },
                &[Reason::Certificates { expire: soon }],
            ),
        ];
        for (name, change, desired, expected) in cases {
            assert_eq!(unreported(change, desired).reasons, *expected, "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_taken_for_as_asked() {
        type Change = fn(&mut Machine);
        let mut desired = other_config();
        desired.infrastructure_ref = template("t2");
        desired.certificates_expiry_days = Some(30);
        let known: Change = |machine| {
            machine.status.certificates_expiry_date =
                Some(now() + jiff::SignedDuration::from_hours(24 * 300));
            machine.infrastructure = Infrastructure::ClonedFrom(template("t2"));
            machine.bootstrap = Bootstrap::Config(other_config().kubeadm_config_spec);
        };
        let cases: &[(Change, Gap)] = &[
            (
                |machine| machine.infrastructure = Infrastructure::Missing,
                Gap::InfrastructureMissing,
            ),
            (
                |machine| machine.infrastructure = Infrastructure::Unannotated,
                Gap::TemplateUnknown,
            ),
            (
                |machine| machine.bootstrap = Bootstrap::Unreferenced,
                Gap::ConfigUnreferenced,
            ),
            (
                |machine| machine.bootstrap = Bootstrap::Missing,
                Gap::ConfigMissing,
            ),
            (
                |machine| {
                    let Bootstrap::Config(config) = &mut machine.bootstrap else {
                        panic!("no configuration");
                    };
                    config.version = "v1beta1".to_owned();
                },
                Gap::ConfigVersion,
            ),
            (
                |machine| machine.status.certificates_expiry_date = None,
                Gap::ExpiryUnknown,
            ),
        ];
        for (change, gap) in cases {
            let verdict = unreported(
                |machine| {
                    known(machine);
                    machine.spec.version = Some("v1.34.1".to_owned());
                    if let Bootstrap::Config(config) = &mut machine.bootstrap {
                        config.fields["clusterConfiguration"] =
                            json!({"featureGates": {"ControlPlaneKubeletLocalMode": true}});
                        config.fields["joinConfiguration"]["controlPlane"] = json!({});
                    }
                    change(machine);
                },
                &desired,
            );
            assert_eq!((verdict.reasons, verdict.gaps), (vec![], vec![gap.clone()]));
        }
    }

    /// Compares a Machine for which the controller reports this result about the current spec.
    #[test]
    fn the_word_of_the_controller_counts() {
        let field = || "joinConfiguration.nodeRegistration.name".to_owned();
        let judged = |machine: &Machine,
                      current: &KubeadmControlPlaneSpec,
                      desired: &KubeadmControlPlaneSpec,
                      is_observed| {
            compare_machine(
                machine,
                Comparison {
                    current,
                    desired,
                    is_observed,
                    is_paused: false,
                    now: now(),
                },
            )
        };
        let says_yes = machine("m1", "a", 5);
        let mut says_no = machine("m1", "a", 5);
        set(
            &mut says_no.status.conditions,
            condition("UpToDate", False, "* Flavour"),
        );
        let mut says_nothing = machine("m1", "a", 5);
        set(
            &mut says_nothing.status.conditions,
            condition("UpToDate", Unknown, ""),
        );

        // The controller reports the Machine as up to date, but v1.14 would not: an update of Cluster API would replace
        // the Machine.
        let verdict = judged(&says_yes, &other_config(), &other_config(), true);
        assert_eq!(
            (verdict.reasons, verdict.paths_ignored_by_controller),
            (vec![], vec![field()])
        );
        // The controller has not processed the spec yet, so the comparison decides.
        let verdict = judged(&says_yes, &other_config(), &other_config(), false);
        assert_eq!(
            verdict.reasons,
            [Reason::Config {
                fields: vec![field()]
            }]
        );
        assert_eq!(verdict.paths_ignored_by_controller, Vec::<String>::new());
        // The change affects fields that the controller reported as up to date.
        let verdict = judged(&says_yes, &spec(), &other_config(), true);
        assert_eq!(
            verdict.reasons,
            [Reason::Config {
                fields: vec![field()]
            }]
        );
        // The controller reports the Machine as outdated, and the comparison finds no reason.
        let reported = Reason::Reported {
            message: "Flavour".to_owned(),
        };
        assert_eq!(judged(&says_no, &spec(), &spec(), true).reasons, [reported]);
        assert_eq!(judged(&says_no, &spec(), &spec(), false).reasons, []);
        // The controller reports the Machine as outdated, and the comparison finds the reason.
        let verdict = judged(&says_no, &other_config(), &other_config(), true);
        assert_eq!(
            verdict.reasons,
            [Reason::Config {
                fields: vec![field()]
            }]
        );
        // The change reverts the difference.
        assert_eq!(judged(&says_no, &other_config(), &spec(), true).reasons, []);
        // The controller reports Unknown, so the comparison decides.
        let verdict = judged(&says_nothing, &other_config(), &other_config(), true);
        assert_eq!(
            verdict.reasons,
            [Reason::Config {
                fields: vec![field()]
            }]
        );
        // The Machine is being updated in place, which is no reason to replace it.
        let mut updating = says_no.clone();
        updating
            .status
            .conditions
            .iter_mut()
            .for_each(|condition| condition.reason = "Updating".to_owned());
        assert_eq!(judged(&updating, &spec(), &spec(), true).reasons, []);
    }
}
