//! The configuration of kubeadm init and join.

use crate::{
    action::Action,
    api::{
        ControlPlaneSpec, KubeadmControlPlane,
        control_plane::Shape,
        kubeadm_config::{KubeadmConfigSpec, Timeouts},
    },
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "init-and-join",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "kubeadm-section-missing",
        summary: "the init and join configurations should both be set, or neither",
        why: "kubeadm uses its own defaults for an omitted section. If only one of the two is omitted, the first Machine \
              and later Machines can differ.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "KubeadmControlPlane proposal, section \"Create\": all three stanzas should be specified",
        check: Check::ControlPlane(section_missing),
        cel: Cel::Faults(include_str!("cel/kubeadm-section-missing.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "health-check-seconds-differ",
        summary: "kubeadm init and kubeadm join must wait equally long for components",
        why: "Cluster API uses one timeout for the first Machine and for joining Machines. Its own webhook \
              rejects an object that sets two different timeouts.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: timeouts",
        check: Check::ControlPlaneSpec(health_check_seconds_differ),
        cel: Cel::FaultsOnlyInV1Beta2(include_str!("cel/health-check-seconds-differ.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "discovery-user-conflict",
        summary: "a joining Machine must have only one way to authenticate",
        why: "A user in a kubeconfig can have only one way to authenticate. If the kubeconfig sets two ways, \
              kubeadm join fails.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: authProvider or exec",
        check: Check::ControlPlaneSpec(discovery_user_conflict),
        cel: Cel::Faults(include_str!("cel/discovery-user-conflict.cel")),
        ..Rule::USUAL
    },
];

/// Returns whether a section of the kubeadm configuration is set.
type IsSet = fn(&KubeadmConfigSpec<'_>) -> bool;

const INIT: IsSet = |config| config.init_configuration.is_some();
const JOIN: IsSet = |config| config.join_configuration.is_some();

/// The two sections that register Nodes. Each entry has the name of the section, whether the section is set, whether the other
/// section is set, what kubeadm does without the section, and what to do.
const SECTIONS: &[(&str, IsSet, IsSet, &str, &str)] = &[
    (
        "initConfiguration",
        INIT,
        JOIN,
        "kubeadm registers the first Node with kubeadm's defaults",
        "set nodeRegistration as in joinConfiguration",
    ),
    (
        "joinConfiguration",
        JOIN,
        INIT,
        "kubeadm registers each additional Node with kubeadm's defaults",
        "set nodeRegistration as in initConfiguration",
    ),
];

fn section_missing(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    // Only a new control plane is checked: kubeadm init does not run again later, and another rule covers the removal of a
    // section.
    let Some(config) = change.new.kubeadm_config().filter(|_| change.old.is_none()) else {
        return;
    };
    for (section, is_set, is_other_set, consequence, remedy) in SECTIONS {
        if is_other_set(config) && !is_set(config) {
            faults.push(Fault {
                field: format!("spec.kubeadmConfigSpec.{section}").into(),
                reason: CauseReason::Required,
                value: None,
                detail: format!("without this section, {consequence}").into(),
                remedy: (*remedy).into(),
            });
        }
    }
}

fn health_check_seconds_differ(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(config) = spec.kubeadm_config().filter(|_| spec.shape() == Shape::V1Beta2) else {
        return;
    };
    let seconds = |timeouts: Option<Timeouts>| timeouts?.control_plane_component_health_check_seconds;
    let init = seconds(config.init_configuration.as_ref().and_then(|init| init.timeouts));
    let join = seconds(config.join_configuration.as_ref().and_then(|join| join.timeouts));
    // Report the unset field; if both are set, report the one in joinConfiguration.
    let (section, found, other, expected) = match (init, join) {
        (None, Some(join)) => ("initConfiguration", None, "joinConfiguration", join),
        (Some(init), None) => ("joinConfiguration", None, "initConfiguration", init),
        (Some(init), Some(join)) if init != join => {
            ("joinConfiguration", Some(join), "initConfiguration", init)
        }
        _ => return,
    };
    faults.push(Fault {
        field: spec.kubeadm_path(format_args!(
            "{section}.timeouts.controlPlaneComponentHealthCheckSeconds"
        )),
        reason: if found.is_some() {
            CauseReason::Invalid
        } else {
            CauseReason::Required
        },
        value: found.map(|seconds| seconds.to_string()),
        detail: format!(
            "the value in {other} is {expected}, and Cluster API requires the same value in both sections"
        )
        .into(),
        remedy: format!("set {expected} in this section, or change the value in both sections").into(),
    });
}

fn discovery_user_conflict(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let config = change.new.kubeadm_config();
    let join = config.and_then(|config| config.join_configuration.as_ref());
    let file = join.and_then(|join| join.discovery.as_ref()?.file.as_ref());
    let user = file.and_then(|file| file.kube_config.as_ref()?.user.as_ref());
    if user.is_some_and(|user| user.auth_provider.is_some() && user.exec.is_some()) {
        faults.push(Fault {
            field: change
                .new
                .kubeadm_path("joinConfiguration.discovery.file.kubeConfig.user"),
            reason: CauseReason::Invalid,
            value: None,
            detail:
                "authProvider and exec are both set, but a Machine can authenticate with only one of the \
                     two"
                .into(),
            remedy: "remove authProvider or exec".into(),
        });
    }
}
