//! Upgrades of `CoreDNS`, for which Cluster API migrates the configuration of `CoreDNS`.

use semver::Version;

use crate::{
    action::Action,
    api::KubeadmControlPlane,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::{
        Topic,
        images::{dns_tag, parse_tag_version},
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "coredns",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "coredns-migration-unsupported",
        summary: "Cluster API must be able to migrate the CoreDNS configuration",
        why: "When the version of CoreDNS changes, Cluster API migrates the Corefile (the configuration of \
              CoreDNS). If Cluster API knows no migration from the old to the new version, it never updates CoreDNS.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        topology: InTopology::Strands,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: validateCoreDNSVersion",
        check: Check::ControlPlane(migration_unsupported),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "coredns-version-unknown",
        summary: "kcp-webhook should know both versions of a CoreDNS upgrade",
        why: "Cluster API migrates the Corefile only between the versions that its migration library contains. \
              kcp-webhook knows one release of this library, and does not know which version of CoreDNS runs.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Transition,
        source: "coredns/corefile-migration v1.0.35, migration/versions.go",
        check: Check::ControlPlane(version_unknown),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
];

/// The `CoreDNS` versions between which Cluster API can migrate the configuration. Source:
/// migration/versions.go in github.com/coredns/corefile-migration v1.0.35, which Cluster API v1.14.2 uses.
#[rustfmt::skip]
const VERSIONS: &[(u64, u64, u64)] = &[
    (1, 1, 3), (1, 1, 4),
    (1, 2, 0), (1, 2, 1), (1, 2, 2), (1, 2, 3), (1, 2, 4), (1, 2, 5), (1, 2, 6),
    (1, 3, 0), (1, 3, 1),
    (1, 4, 0),
    (1, 5, 0), (1, 5, 1), (1, 5, 2),
    (1, 6, 0), (1, 6, 1), (1, 6, 2), (1, 6, 3), (1, 6, 4), (1, 6, 5), (1, 6, 6), (1, 6, 7), (1, 6, 9),
    (1, 7, 0), (1, 7, 1),
    (1, 8, 0), (1, 8, 3), (1, 8, 4), (1, 8, 5), (1, 8, 6), (1, 8, 7),
    (1, 9, 0), (1, 9, 1), (1, 9, 2), (1, 9, 3), (1, 9, 4),
    (1, 10, 0), (1, 10, 1),
    (1, 11, 0), (1, 11, 1), (1, 11, 3), (1, 11, 4),
    (1, 12, 0), (1, 12, 1), (1, 12, 2), (1, 12, 3), (1, 12, 4),
    (1, 13, 0), (1, 13, 1), (1, 13, 2),
    (1, 14, 0), (1, 14, 1), (1, 14, 2), (1, 14, 3), (1, 14, 4), (1, 14, 6), (1, 14, 7),
];

/// With this annotation, whatever its value, Cluster API does not change `CoreDNS`.
const SKIP_ANNOTATION: &str = "controlplane.cluster.x-k8s.io/skip-coredns";

pub(crate) const FIELD: &str = "spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag";

/// The major, minor and patch version of `CoreDNS`, which is all that Cluster API compares.
type Release = (u64, u64, u64);

/// What Cluster API does with the Corefile if the image tag of `CoreDNS` changes, or if only the image changes
/// (`validateCoreDNSImageTag`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorefileMigration {
    Possible,
    /// Cluster API never lowers the version.
    Downgrade,
    /// No version of Cluster API can migrate from this old version.
    Unsupported,
    /// [`VERSIONS`] lacks one of the versions. A newer Cluster API may support such a version, even if it lies between two
    /// versions in the table.
    Unknown,
}

impl CorefileMigration {
    /// Compares the image tags of `CoreDNS`; `None` if a tag is not a version.
    pub fn between(from: &str, to: &str) -> Option<Self> {
        Some(Self::between_releases(release(from)?, release(to)?))
    }

    fn between_releases(from: Release, to: Release) -> Self {
        let is_known = |version| VERSIONS.binary_search(&version).is_ok();
        let is_oldest = VERSIONS.first().is_some_and(|first| from < *first);
        if to < from {
            Self::Downgrade
        } else if is_oldest {
            Self::Unsupported
        } else if is_known(from) && is_known(to) {
            Self::Possible
        } else {
            Self::Unknown
        }
    }
}

fn release(tag: &str) -> Option<Release> {
    let Version {
        major, minor, patch, ..
    } = parse_tag_version(tag).ok()?;
    Some((major, minor, patch))
}

struct CoreDnsUpgrade<'c> {
    old: &'c str,
    new: &'c str,
    migration: CorefileMigration,
}

/// The tags between which Cluster API would migrate `CoreDNS`; `None` if it would not migrate.
fn coredns_upgrade<'c>(change: &'c Change<'_, KubeadmControlPlane<'_>>) -> Option<CoreDnsUpgrade<'c>> {
    let old = dns_tag(&change.old?.common_spec())?;
    let new = managed_tag(change)?;
    let (from, to) = (release(old)?, release(new)?);
    (from != to).then(|| CoreDnsUpgrade {
        old,
        new,
        migration: CorefileMigration::between_releases(from, to),
    })
}

/// The new tag; `None` if Cluster API does not change `CoreDNS`.
fn managed_tag<'c>(change: &'c Change<'_, KubeadmControlPlane<'_>>) -> Option<&'c str> {
    let tag = dns_tag(&change.new.common_spec())?;
    (!change.new.metadata.has_annotation(SKIP_ANNOTATION)).then_some(tag)
}

/// The new tag of a control plane that already has Machines, but had no tag before. Only the workload cluster shows from which
/// version Cluster API would then migrate.
fn first_tag<'c>(change: &'c Change<'_, KubeadmControlPlane<'_>>) -> Option<&'c str> {
    let old = change.old?;
    let has_machines = old
        .status
        .as_ref()
        .is_some_and(|status| status.replicas > Some(0));
    let is_first = has_machines && dns_tag(&old.common_spec()).is_none();
    managed_tag(change).filter(|tag| is_first && release(tag).is_some())
}

fn fault(new: &str, reason: CauseReason, detail: String, remedy: String) -> Fault {
    Fault {
        field: FIELD.into(),
        reason,
        value: Some(quote(new)),
        detail: detail.into(),
        remedy: remedy.into(),
    }
}

fn migration_unsupported(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(CoreDnsUpgrade { old, new, migration }) = coredns_upgrade(change) else {
        return;
    };
    let detail = match migration {
        CorefileMigration::Downgrade => format!(
            "CoreDNS is at {}, and Cluster API migrates the CoreDNS configuration only to newer versions",
            quote(old)
        ),
        CorefileMigration::Unsupported => format!(
            "Cluster API cannot migrate the CoreDNS configuration from version {}",
            quote(old)
        ),
        CorefileMigration::Possible | CorefileMigration::Unknown => return,
    };
    let remedy = format!("keep the version, or set annotation {SKIP_ANNOTATION} and change CoreDNS yourself");
    faults.push(fault(new, CauseReason::Forbidden, detail, remedy));
}

fn version_unknown(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let upgrade = coredns_upgrade(change);
    let unknown = upgrade.filter(|upgrade| upgrade.migration == CorefileMigration::Unknown);
    if let Some(CoreDnsUpgrade { old, new, .. }) = unknown {
        let detail = format!(
            "kcp-webhook does not know whether Cluster API can migrate CoreDNS from {} to this version",
            quote(old)
        );
        let remedy = format!(
            "check that your version of Cluster API supports this migration, or skip the migration with \
             annotation {SKIP_ANNOTATION}"
        );
        faults.push(fault(new, CauseReason::Invalid, detail, remedy));
    } else if let Some(new) = first_tag(change) {
        let detail = "imageTag was unset before, so kcp-webhook does not know which version of CoreDNS runs. Cluster API cannot \
                      update CoreDNS if the running version is newer than the new tag, or unknown to Cluster API. Each reconcile \
                      of the control plane then fails once all Machines are up to date";
        let name = change.new.metadata.name.as_deref().unwrap_or("NAME");
        let remedy = format!(
            "compare the tag with the CoreDNS that runs: kubectl kcp plan {name}{} -f FILE",
            change.new.metadata.namespace_flag()
        );
        faults.push(fault(new, CauseReason::Invalid, detail.to_owned(), remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_order() {
        assert!(VERSIONS.is_sorted_by(|one, next| one < next));
    }
}
