//! The Kubernetes version of a control plane.

use semver::Version;

use crate::{
    api::KubeadmControlPlane,
    case::Case,
    change::Change,
    finding::{CauseReason, Fault, Faults},
    rule::{Action, Check, ON_UPDATE, ON_WRITE, Rule, Scope},
    topics::Topic,
};

/// The Kubernetes version of a control plane.
pub const TOPIC: Topic = Topic {
    name: "version",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "version-not-semantic",
        summary: "the version is a semantic version",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "KubeadmControlPlane proposal, New API Types",
        check: Check::ControlPlane(not_semantic),
    },
    Rule {
        id: "version-without-v",
        summary: "the version starts with v",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: must start with v",
        check: Check::ControlPlane(without_v),
    },
    Rule {
        id: "version-skips-minor",
        summary: "an upgrade goes one minor version at a time",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Transition,
        overridable: false,
        source: "Kubernetes version skew policy; cluster-api issue 2578",
        check: Check::ControlPlane(skips_minor),
    },
];

const FIELD: &str = "spec.version";

/// A version as `spec.version` gives it, with or without its `v`.
pub fn parse(version: &str) -> Result<Version, semver::Error> {
    Version::parse(version.strip_prefix('v').unwrap_or(version))
}

fn not_semantic(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version) = &change.new.spec.version else {
        return;
    };
    if let Err(error) = parse(version) {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Invalid,
            value: Some(format!("{version:?}")),
            detail: format!("not a semantic version: {error}").into(),
            remedy: "write major, minor and patch, as in \"v1.34.2\"".into(),
        });
    }
}

fn without_v(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version) = &change.new.spec.version else {
        return;
    };
    if !version.starts_with('v') && parse(version).is_ok() {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Invalid,
            value: Some(format!("{version:?}")),
            detail: "Kubernetes versions start with v".into(),
            remedy: format!("write \"v{}\"", &**version).into(),
        });
    }
}

fn skips_minor(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let old = change.old.and_then(|old| old.spec.version.as_deref());
    let (Some(old), Some(new)) = (old, change.new.spec.version.as_deref()) else {
        return;
    };
    let (Ok(from), Ok(to)) = (parse(old), parse(new)) else {
        return;
    };
    let next = (from.major, from.minor.saturating_add(1));
    if (to.major, to.minor) > next {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(format!("{new:?}")),
            detail: format!(
                "kubeadm upgrades one minor version at a time, and this control plane is at {old}"
            )
            .into(),
            remedy: format!("upgrade to a v{}.{} first and let it roll out", next.0, next.1).into(),
        });
    }
}

const CASES: &[Case] = &[
    Case::create("accepts_release", r#"{"spec":{"version":"v1.34.2"}}"#, &[]),
    Case::create(
        "accepts_pre_release_and_build",
        r#"{"spec":{"version":"v1.35.0-rc.1+build.5"}}"#,
        &[],
    ),
    Case::create(
        "rejects_two_numbers",
        r#"{"spec":{"version":"v1.34"}}"#,
        &[("version-not-semantic", FIELD)],
    ),
    Case::create(
        "rejects_word",
        r#"{"spec":{"version":"latest"}}"#,
        &[("version-not-semantic", FIELD)],
    ),
    Case::create(
        "rejects_leading_zero",
        r#"{"spec":{"version":"v1.034.2"}}"#,
        &[("version-not-semantic", FIELD)],
    ),
    Case::create(
        "rejects_no_v",
        r#"{"spec":{"version":"1.34.2"}}"#,
        &[("version-without-v", FIELD)],
    ),
    Case::update(
        "accepts_next_minor",
        OLD,
        r#"{"spec":{"version":"v1.35.0"}}"#,
        &[],
    ),
    Case::update("accepts_patch", OLD, r#"{"spec":{"version":"v1.34.9"}}"#, &[]),
    Case::update(
        "rejects_second_next_minor",
        OLD,
        r#"{"spec":{"version":"v1.36.0"}}"#,
        &[("version-skips-minor", FIELD)],
    ),
    Case::update(
        "rejects_second_next_minor_pre_release",
        OLD,
        r#"{"spec":{"version":"v1.36.0-alpha.1"}}"#,
        &[("version-skips-minor", FIELD)],
    ),
    Case::update(
        "rejects_next_major",
        OLD,
        r#"{"spec":{"version":"v2.0.0"}}"#,
        &[("version-skips-minor", FIELD)],
    ),
];

const OLD: &str = r#"{"spec":{"version":"v1.34.2"}}"#;
