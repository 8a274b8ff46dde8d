//! The Kubernetes version of a control plane.

use std::{borrow::Cow, cmp::Ordering};

use semver::Version;

use crate::{
    action::Action,
    api::KubeadmControlPlane,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    progress,
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    syntax::parse_version,
    topics::Topic,
    view::{Machine, Part},
};

pub(super) const TOPIC: Topic = Topic {
    name: "version",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "version-not-semantic",
        summary: "the version must be a semantic version",
        why: "Cluster API and kubeadm compare versions to decide on upgrades, images and features. They cannot \
              compare text that is not a semantic version.",
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal, New API Types",
        check: Check::ControlPlane(version_not_semantic),
        cel: Cel::Faults(include_str!("cel/version-not-semantic.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "version-without-v",
        summary: "the version must begin with v",
        why: "The tags of Kubernetes images begin with v. Cluster API's own webhook adds a missing v. Where that webhook does \
              not run, a new Machine would need images that do not exist.",
        scope: Scope::Object,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: must start with v",
        check: Check::ControlPlane(version_without_v),
        cel: Cel::Faults(include_str!("cel/version-without-v.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "version-skips-minor",
        summary: "an upgrade must move up one minor version at a time",
        why: "Kubernetes supports upgrades of one minor version at a time. Components that are two versions apart \
              may not understand each other's data.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        source: "Kubernetes version skew policy; cluster-api issue 2578",
        check: Check::ControlPlane(skips_minor),
        cel: Cel::Faults(include_str!("cel/version-skips-minor.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "version-changes-too-early",
        summary: "a minor upgrade must wait until the previous one has rolled out",
        why: "Until the previous upgrade has rolled out, some Machines are still one minor version behind. \
              The next upgrade would put these Machines two minor versions behind, which Kubernetes does not \
              support.",
        operations: ON_UPDATE,
        scope: Scope::Cluster(&[Part::Machines]),
        topology: InTopology::Judged,
        source: "Kubernetes version skew policy: Machines would be two minor versions apart",
        check: Check::ControlPlane(changes_too_early),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "version-lowered",
        summary: "a downgrade is not allowed after a Machine with the higher version has joined",
        why: "A Machine at the higher version may have written data to etcd that older API servers cannot read. \
              Kubernetes does not support downgrades.",
        operations: ON_UPDATE,
        scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
        overridable: true,
        source: "KubeadmControlPlane proposal, Non-Goals: no data store rollback guarantee",
        check: Check::ControlPlane(version_lowered),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "version-lowered-unverified",
        summary: "a downgrade is not allowed while it is unknown whether a Machine has joined",
        why: "etcd's data allows a downgrade only if no Machine with the higher version has joined. If the webhook \
              cannot read the Machines, it does not know whether such a Machine has joined, so it denies the downgrade.",
        operations: ON_UPDATE,
        scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
        overridable: true,
        source: "KubeadmControlPlane proposal, Non-Goals: no data store rollback guarantee",
        check: Check::ControlPlane(lowered_unverified),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "version-reverted",
        summary: "a failed upgrade can be reverted before its first Machine has joined",
        why: "No Machine with the new version has joined yet, so etcd contains nothing that the old version cannot \
              read. While the second control plane Machine joins, the rule joining-machine-outdated denies this downgrade.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::Machines]),
        source: "KubeadmControlPlane proposal, Non-Goals: no data store rollback guarantee",
        check: Check::ControlPlane(upgrade_reverted),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "version-patch-lowered",
        summary: "a lower patch version is rarely intended",
        why: "Cluster API replaces every Machine to apply the lower patch version. The lower version lacks \
              fixes, including security fixes.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Transition,
        source: "KubeadmControlPlane proposal, user story 7: respond to a CVE by upgrading",
        check: Check::ControlPlane(patch_lowered),
        cel: Cel::Faults(include_str!("cel/version-patch-lowered.cel")),
        ..Rule::USUAL
    },
];

pub(crate) const FIELD: &str = "spec.version";

fn version_not_semantic(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version) = &change.new.spec.version else {
        return;
    };
    if let Err(error) = parse_version(version) {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Invalid,
            value: Some(quote(version)),
            detail: format!("not a semantic version: {error}").into(),
            remedy: "write the major, minor and patch version, as in \"v1.34.2\"".into(),
        });
    }
}

fn version_without_v(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version) = &change.new.spec.version else {
        return;
    };
    if !version.starts_with('v') && parse_version(version).is_ok() {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Invalid,
            value: Some(quote(version)),
            detail: "Kubernetes versions begin with v".into(),
            remedy: format!("write \"v{}\"", &**version).into(),
        });
    }
}

fn skips_minor(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version_change) = version_change(change) else {
        return;
    };
    let VersionChange { old, from, to, .. } = &version_change;
    let next = (from.major, from.minor.saturating_add(1));
    if minor(to) > next {
        faults.push(version_change.fault(
            format!("kubeadm upgrades one minor version at a time, and this control plane is at {old}"),
            format!("upgrade to v{}.{} first and wait for the rollout", next.0, next.1),
        ));
    }
}

/// The versions before and after an update that changes the version; `None` unless both are valid.
pub(super) fn version_change<'c>(change: &Change<'c, KubeadmControlPlane<'_>>) -> Option<VersionChange<'c>> {
    let old = change.old?.spec.version.as_deref()?;
    let new = change.new.spec.version.as_deref().filter(|new| *new != old)?;
    Some(VersionChange {
        old,
        new,
        from: parse_version(old).ok()?,
        to: parse_version(new).ok()?,
    })
}

pub(super) struct VersionChange<'c> {
    pub(super) old: &'c str,
    pub(super) new: &'c str,
    pub(super) from: Version,
    pub(super) to: Version,
}

impl VersionChange<'_> {
    /// Whether the version rises or falls, as Cluster API's topology controller computes it (`util/version/version.go`, `Compare`
    /// with `WithBuildTags`). `None` if the versions differ only in parts of the build that have letters or hyphens, such as
    /// commit hashes. The controller accepts such a change in both directions.
    pub(super) fn order_in_topology(&self) -> Option<Ordering> {
        let order = self.to.cmp_precedence(&self.from);
        if order.is_ne() {
            return Some(order);
        }
        let identifiers = |version: &'_ Version| {
            let build = version
                .build
                .split('.')
                .filter(|identifier| !identifier.is_empty());
            build
                .map(|identifier| identifier.parse::<u64>().map_err(|_| identifier.to_owned()))
                .collect::<Vec<_>>()
        };
        let (to, from) = (identifiers(&self.to), identifiers(&self.from));
        let different = to.iter().zip(&from).find(|(to, from)| to != from);
        match different {
            Some((Ok(to), Ok(from))) => Some(to.cmp(from)),
            Some((Ok(_), Err(_))) => Some(Ordering::Less),
            Some((Err(_), Ok(_))) => Some(Ordering::Greater),
            Some((Err(_), Err(_))) => None,
            None => Some(to.len().cmp(&from.len())),
        }
    }

    fn raises_minor(&self) -> bool {
        minor(&self.to) > minor(&self.from)
    }

    fn lowers_minor(&self) -> bool {
        minor(&self.to) < minor(&self.from)
    }

    pub(super) fn fault(&self, detail: String, remedy: impl Into<Cow<'static, str>>) -> Fault {
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(quote(self.new)),
            detail: detail.into(),
            remedy: remedy.into(),
        }
    }
}

fn minor(version: &Version) -> (u64, u64) {
    (version.major, version.minor)
}

fn changes_too_early(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version_change) = version_change(change).filter(VersionChange::raises_minor) else {
        return;
    };
    if let Some(behind) = machine_behind(change, &version_change.from, faults) {
        let VersionChange { old, .. } = version_change;
        let metadata = &change.new.metadata;
        let (state, command) = if change.context.topology.is_some() {
            let cluster = metadata.cluster_name().unwrap_or("NAME");
            ("not complete", format!("kubectl kcp why cluster/{cluster}"))
        } else {
            let name = metadata.name.as_deref().unwrap_or("NAME");
            ("still rolling out", format!("kubectl kcp rollout status {name}"))
        };
        faults.push(version_change.fault(
            format!("the upgrade to {old} is {state}: {behind}"),
            format!(
                "wait until every Machine is at {old}: {command}{}",
                metadata.namespace_flag()
            ),
        ));
    }
}

/// Describes a Machine below the minor version of `version`; `None` if there is none. Reads the status, and then the
/// Machines, because the status can be outdated.
fn machine_behind(
    change: &Change<'_, KubeadmControlPlane<'_>>,
    version: &Version,
    faults: &mut Faults,
) -> Option<String> {
    let is_below =
        |version_found: &str| parse_version(version_found).is_ok_and(|found| minor(&found) < minor(version));
    let status = change.old.and_then(|old| old.status.as_ref());
    let lowest = status.and_then(|status| status.version.as_deref());
    if let Some(lowest) = lowest.filter(|lowest| is_below(lowest)) {
        return Some(format!("a Machine is at {lowest}"));
    }
    let Some(machines) = change.context.view.and_then(|view| view.machines.as_ref()) else {
        faults.unread();
        return None;
    };
    machines.iter().find_map(|machine| {
        let found = machine.version.as_deref().filter(|found| is_below(found))?;
        Some(format!("Machine {} is at {found}", machine.name))
    })
}

/// The Machines with a minor version above the target of an update; `None` if the Machines are unknown.
fn machines_above<'c>(
    change: &Change<'c, KubeadmControlPlane<'_>>,
    to: &Version,
    faults: &mut Faults,
) -> Option<Vec<&'c Machine>> {
    faults.request();
    let machines = progress::machines(change)?;
    let is_above = |machine: &&Machine| {
        machine
            .version
            .as_deref()
            .and_then(|version| parse_version(version).ok())
            .is_some_and(|it| minor(&it) > minor(to))
    };
    Some(machines.iter().filter(is_above).collect())
}

fn version_lowered(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version_change) = version_change(change).filter(VersionChange::lowers_minor) else {
        return;
    };
    // If the Machines are unknown, the next rule denies the write.
    let Some(machines) = machines_above(change, &version_change.to, faults) else {
        return;
    };
    if let Some(joined) = machines.iter().find(|machine| machine.has_node) {
        let version = joined.version.as_deref().unwrap_or(version_change.old);
        let fault = version_change.fault(
            format!(
                "Machine {} has already joined at {version}, and etcd data cannot be downgraded",
                joined.name
            ),
            format!("keep {version}, or restore a backup into a new Cluster"),
        );
        progress::push_unless_paused(change, faults, Action::Deny, fault);
    }
}

fn lowered_unverified(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version_change) = version_change(change).filter(VersionChange::lowers_minor) else {
        return;
    };
    if machines_above(change, &version_change.to, faults).is_none() {
        let fault = version_change.fault(
            format!(
                "could not read the Machines; if a Machine has already joined at {}, etcd data cannot be downgraded",
                version_change.old
            ),
            "try again, or override this rule if no Machine has joined at the higher version",
        );
        faults.unread();
        progress::push_unless_paused(change, faults, Action::Deny, fault);
    }
}

fn upgrade_reverted(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version_change) = version_change(change).filter(VersionChange::lowers_minor) else {
        return;
    };
    if machines_above(change, &version_change.to, faults)
        .is_some_and(|machines| machines.iter().all(|machine| !machine.has_node))
    {
        faults.push(version_change.fault(
            format!(
                "this downgrade reverts the upgrade to {}, and no Machine has joined at that version yet",
                version_change.old
            ),
            "check that this downgrade is intended",
        ));
    }
}

fn patch_lowered(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(version_change) = version_change(change) else {
        return;
    };
    if minor(&version_change.to) == minor(&version_change.from)
        && version_change.to.patch < version_change.from.patch
    {
        faults.push(version_change.fault(
            format!(
                "this downgrade from {} replaces every Machine",
                version_change.old
            ),
            "check that this downgrade is intended",
        ));
    }
}
