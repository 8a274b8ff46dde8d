//! The choice between stacked and external etcd.

use semver::Version;

use crate::{
    action::Action,
    api::{ControlPlaneSpec, KubeadmControlPlane, kubeadm_config::KubeadmConfigSpec},
    cel::{Cel, NoCel},
    change::Change,
    components::{self, Component},
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::{Topic, images},
};

pub(super) const TOPIC: Topic = Topic {
    name: "etcd",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "etcd-local-and-external",
        summary: "etcd must be either stacked or external",
        why: "kubeadm either runs etcd on the control plane Machines or uses an external etcd. If both are \
              set, kubeadm init fails.",
        scope: Scope::Object,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: cannot have both external and local etcd",
        check: Check::ControlPlaneSpec(local_and_external),
        cel: Cel::Faults(include_str!("cel/etcd-local-and-external.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "etcd-topology-switched",
        summary: "a control plane must not switch between stacked and external etcd",
        why: "The data of a cluster is in its etcd, and neither kubeadm nor Cluster API moves this data. \
              After a switch, a new Machine would join an empty etcd.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: cannot change between external and local etcd",
        check: Check::ControlPlane(topology_switched),
        cel: Cel::Faults(include_str!("cel/etcd-topology-switched.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "etcd-version-unsupported",
        summary: "kubeadm must support the version of stacked etcd",
        why: "kubeadm starts etcd with flags and probes that an older etcd does not have. etcd of the first new Machine then never \
              becomes ready, and the rollout stops.",
        scope: Scope::Object,
        overridable: true,
        topology: InTopology::Strands,
        source: "Kubernetes CHANGELOG-1.31: /livez and /readyz of etcd; CHANGELOG-1.36: etcd < 3.6.0 is no longer supported",
        check: Check::ControlPlaneSpec(version_unsupported),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "etcd-version-lowered",
        summary: "the minor version of stacked etcd must not be lowered",
        why: "An older minor version of etcd does not start with the data of a newer one. The first new Machine then never becomes \
              ready, and the rollout stops.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        overridable: true,
        topology: InTopology::Strands,
        source: "etcd, downgrade: an older server refuses the data of a newer cluster version",
        check: Check::ControlPlane(version_lowered),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "etcd-upgrade-unsafe",
        summary: "etcd must run 3.5.26 or later before it is upgraded to 3.6",
        why: "etcd 3.5 reads its list of members from its v2 store, and etcd 3.6 from its v3 store. Up to 3.5.25, the v3 store can \
              still list members that were removed long ago. In 3.6, they count as voters, so etcd can lose its quorum.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Transition,
        topology: InTopology::Strands,
        source: "etcd-io/etcd#20967; etcd.io/blog/2025/zombie_members_upgrade",
        check: Check::ControlPlane(upgrade_unsafe),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
];

const TAG: &str = "clusterConfiguration.etcd.local.imageTag";

/// The first patch version of 3.5 whose removed members do not come back in 3.6 (etcd-io/etcd#20967).
pub const FIRST_SAFE: Version = Version::new(3, 5, 26);

/// Whether members of this version must not be upgraded to etcd 3.6: members that were removed long ago would come back.
pub fn is_too_old_for_3_6(version: &Version) -> bool {
    (version.major, version.minor, version.patch) < (FIRST_SAFE.major, FIRST_SAFE.minor, FIRST_SAFE.patch)
}

/// The version of stacked etcd: that of its image tag, or else the minor version that kubeadm runs by default. The default has
/// the patch version 0 here, because its patch version depends on that of kubeadm. `None` if the tag is not a version, or if etcd
/// is external.
pub(super) fn etcd_version(spec: &ControlPlaneSpec<'_>, kubernetes_minor: u64) -> Option<Version> {
    if spec
        .kubeadm_config()
        .is_some_and(KubeadmConfigSpec::has_external_etcd)
    {
        return None;
    }
    stacked_version(image_tag(spec), kubernetes_minor)
}

/// Like [`etcd_version`], for a given image tag. An empty tag counts as unset.
pub fn stacked_version(tag: Option<&str>, kubernetes_minor: u64) -> Option<Version> {
    match tag.filter(|tag| !tag.is_empty()) {
        Some(tag) => tag_version(tag),
        None => Some(Version::new(3, default_etcd_minor(kubernetes_minor)?, 0)),
    }
}

fn image_tag<'c>(spec: &ControlPlaneSpec<'c>) -> Option<&'c str> {
    let local = spec.kubeadm_config()?.etcd()?.local.as_ref()?;
    local.image_tag.as_deref().filter(|tag| !tag.is_empty())
}

/// The version of etcd in a tag such as `3.5.26-0`. `None` for a tag that moves, such as `3.5`, and for a tag with a vendor's own
/// version number.
fn tag_version(tag: &str) -> Option<Version> {
    let version = images::parse_tag_version(tag).ok()?;
    (version.major == 3 && tag.matches('.').count() >= 2).then_some(version)
}

/// The minor version of etcd that kubeadm runs by default (kubeadm, `app/constants/constants.go`); `None` for a version of
/// Kubernetes that this table does not cover.
const fn default_etcd_minor(kubernetes_minor: u64) -> Option<u64> {
    match kubernetes_minor {
        29..=33 => Some(5),
        34..=36 => Some(6),
        37 => Some(7),
        _ => None,
    }
}

fn version_unsupported(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let minor = spec
        .minor()
        .unwrap_or_else(|| components::minors(Component::ApiServer).1);
    let has_tag = image_tag(spec).is_some();
    let Some(tag) = etcd_version(spec, minor).filter(|_| has_tag) else {
        return;
    };
    let (since, least) = match minor {
        36.. => (36, Version::new(3, 6, 0)),
        31.. => (31, Version::new(3, 5, 11)),
        _ => return,
    };
    if (tag.major, tag.minor, tag.patch) < (least.major, least.minor, least.patch) {
        let fault = Fault {
            field: spec.kubeadm_path(TAG),
            reason: CauseReason::NotSupported,
            value: Some(HIDDEN.to_owned()),
            detail: format!("kubeadm 1.{since} and later need etcd {least} or later, and an older etcd does not become ready").into(),
            remedy: "remove imageTag, so that kubeadm chooses the version, or use a newer tag".into(),
        };
        faults.push_at_most(Action::of_version(spec), fault);
    }
}

/// The versions of stacked etcd before and after a change.
fn versions(change: &Change<'_, KubeadmControlPlane<'_>>) -> Option<(Version, Version)> {
    let (old, new) = (change.old?.common_spec(), change.new.common_spec());
    Some((
        etcd_version(&old, old.minor()?)?,
        etcd_version(&new, new.minor()?)?,
    ))
}

fn version_lowered(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((old, new)) = versions(change) else {
        return;
    };
    // Other rules check a lowered version of Kubernetes, which lowers the default.
    let specs = [Some(change.new), change.old].into_iter().flatten();
    let is_pinned = specs
        .map(KubeadmControlPlane::common_spec)
        .any(|spec| image_tag(&spec).is_some());
    if is_pinned && (new.major, new.minor) < (old.major, old.minor) {
        faults.push(Fault {
            field: change.new.common_spec().kubeadm_path(TAG),
            reason: CauseReason::Forbidden,
            value: Some(HIDDEN.to_owned()),
            detail: format!(
                "etcd {}.{} does not start with the data of etcd {}.{}",
                new.major, new.minor, old.major, old.minor
            )
            .into(),
            remedy: format!("use a tag of etcd {}.{} or later", old.major, old.minor).into(),
        });
    }
}

fn upgrade_unsafe(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((old, new)) = versions(change) else {
        return;
    };
    if is_too_old_for_3_6(&old) && (new.major, new.minor) >= (3, 6) {
        faults.push(Fault {
            field: if image_tag(&change.new.common_spec()).is_some() {
                change.new.common_spec().kubeadm_path(TAG)
            } else {
                "spec.version".into()
            },
            reason: CauseReason::Forbidden,
            value: None,
            detail: format!(
                "this change upgrades etcd to 3.{}; unless every member runs {FIRST_SAFE} or later before the upgrade, members \
                 that were removed long ago can come back",
                new.minor
            )
            .into(),
            remedy: format!(
                "first set etcd.local.imageTag{} to {FIRST_SAFE}-0 or a later tag of 3.5, and wait until the rollout is complete",
                if change.context.topology.is_some() {
                    " in the ClusterClass or its variables"
                } else {
                    ""
                }
            )
            .into(),
        });
    }
}

pub(crate) const EXTERNAL: &str = "spec.kubeadmConfigSpec.clusterConfiguration.etcd.external";

fn local_and_external(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let etcd = change.new.kubeadm_config().and_then(KubeadmConfigSpec::etcd);
    if etcd.is_some_and(|etcd| etcd.local.is_some() && etcd.external.is_some()) {
        faults.push(Fault {
            field: change.new.kubeadm_path("clusterConfiguration.etcd.external"),
            reason: CauseReason::Forbidden,
            value: None,
            detail: "etcd.local is also set, and kubeadm supports only one of the two".into(),
            remedy: "remove etcd.local to use the external etcd, or remove etcd.external to run etcd on the \
                 Machines"
                .into(),
        });
    }
}

fn topology_switched(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let (from, to) = match (old.has_external_etcd(), change.new.has_external_etcd()) {
        (false, true) => ("stacked", "external"),
        (true, false) => ("external", "stacked"),
        _ => return,
    };
    faults.push(Fault {
        field: EXTERNAL.into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: format!("the cluster's data is in {from} etcd, and no controller migrates it to {to} etcd")
            .into(),
        remedy: format!(
            "keep {from} etcd, or create a new Cluster with {to} etcd and move the workloads to it"
        )
        .into(),
    });
}
