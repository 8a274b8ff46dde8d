//! The start-up table of leader migration: rows from the sources of versions that are not built.

use std::ops::RangeInclusive;

use kcp_rules::leader_migration::Component;

use super::start_files::LOCK_IN_V1;
use super::start_rows::{ENABLE, GATE, LOCK};

/// A start at minor versions that are not built by `make test`.
pub(super) struct SourceRow {
    pub(super) component: Component,
    pub(super) minors: RangeInclusive<u64>,
    pub(super) flags: &'static str,
    pub(super) file: Option<&'static str>,
    pub(super) starts: bool,
    /// The file that says so, in `kubernetes/kubernetes` or in a module of it.
    pub(super) source: &'static str,
}

const fn source(
    component: Component,
    minors: RangeInclusive<u64>,
    flags: &'static str,
    starts: bool,
    source: &'static str,
) -> SourceRow {
    SourceRow {
        component,
        minors,
        flags,
        file: None,
        starts,
        source,
    }
}

const MIGRATE: &str = "--enable-leader-migration --service-account-private-key-file=key";
const MIGRATE_WITH_FILE: &str =
    "--enable-leader-migration --service-account-private-key-file=key --leader-migration-config=file";
const MANAGER: &str = "cmd/kube-controller-manager/app/controllermanager.go";
const CLOUDS: &str = "pkg/cloudprovider/providers/providers.go, k8s.io/cloud-provider/plugins.go";
const STRICT: &str = "k8s.io/controller-manager/pkg/leadermigration/config/config.go";
const OPTIONS: &str = "k8s.io/controller-manager/options/generic.go";

pub(super) const BY_SOURCE: &[SourceRow] = &[
    source(Component::Kube, 27..=35, MIGRATE, true, MANAGER),
    source(Component::Kube, 37..=37, MIGRATE, false, MANAGER),
    source(Component::Kube, 27..=34, ENABLE, true, MANAGER),
    source(Component::Kube, 35..=35, ENABLE, false, MANAGER),
    source(
        Component::Cloud,
        30..=37,
        ENABLE,
        true,
        "k8s.io/cloud-provider/app/controllermanager.go",
    ),
    SourceRow {
        file: Some(LOCK_IN_V1),
        ..source(Component::Kube, 27..=31, MIGRATE_WITH_FILE, true, STRICT)
    },
    SourceRow {
        file: Some(LOCK_IN_V1),
        ..source(Component::Kube, 32..=37, MIGRATE_WITH_FILE, false, STRICT)
    },
    source(
        Component::Kube,
        24..=26,
        GATE,
        true,
        "pkg/features/kube_features.go",
    ),
    source(
        Component::Kube,
        27..=37,
        GATE,
        false,
        "pkg/features/kube_features.go",
    ),
    source(Component::Kube, 27..=37, LOCK, false, OPTIONS),
    source(
        Component::Kube,
        27..=36,
        "--controllers=*,-route",
        true,
        "cmd/kube-controller-manager/app/core.go",
    ),
    source(
        Component::Kube,
        37..=37,
        "--controllers=*,-route",
        false,
        "cmd/kube-controller-manager/app/core.go",
    ),
    source(
        Component::Kube,
        27..=36,
        "--concurrent-service-syncs=2",
        true,
        "app/options/options.go",
    ),
    source(
        Component::Kube,
        37..=37,
        "--concurrent-service-syncs=2",
        false,
        "app/options/options.go",
    ),
    source(Component::Kube, 27..=28, "--cloud-provider=gce", true, CLOUDS),
    source(Component::Kube, 29..=37, "--cloud-provider=gce", false, CLOUDS),
    source(Component::Kube, 29..=30, DISABLED_OFF, true, CLOUDS),
    source(Component::Kube, 31..=37, DISABLED_OFF, false, CLOUDS),
    source(Component::Kube, 27..=37, "--cloud-provider=aws", false, CLOUDS),
];

const DISABLED_OFF: &str = "--cloud-provider=gce --feature-gates=DisableCloudProviders=false";
