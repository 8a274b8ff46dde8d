//! The model of leader migration: an upgrade with any flags and configurations.

use kcp_rules::leader_migration::{
    Component, ControllerManagerChange, ControllerManagers, Flags, LeaderMigrationConfiguration, Manager,
    UpgradeEffect,
    generate::{self, Request},
};

/// Minor versions that an input can choose.
const MINORS: std::ops::RangeInclusive<u64> = 20..=45;

/// Any upgrade has a verdict on every controller, and a problem with any of them is a problem of the upgrade. An upgrade
/// that changes nothing runs no controller twice that did not run twice before. What is generated is valid.
///
/// The input is a line for each controller manager, `MINOR FLAGS...`, first kube-controller-manager and
/// cloud-controller-manager before the upgrade, then after it. The rest is their configuration.
pub(crate) fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut lines = text.splitn(5, '\n');
    let mut heads = [""; 4];
    for head in &mut heads {
        *head = lines.next().unwrap_or_default();
    }
    let file = lines.next();
    let manager = |component, head: &str| {
        let (minor, flags) = head.split_once(' ').unwrap_or((head, ""));
        let minor: u64 = minor.parse().ok().filter(|minor| MINORS.contains(minor))?;
        Some(Manager::new(
            component,
            minor,
            Flags::from_command(flags.split(' ')),
            file,
        ))
    };
    let [now_kube, now_cloud, then_kube, then_cloud] = heads;
    let (Some(now), Some(then)) = (
        manager(Component::Kube, now_kube),
        manager(Component::Kube, then_kube),
    ) else {
        return;
    };
    generated(now.minor, then.minor);
    let now = ControllerManagers {
        cloud: manager(Component::Cloud, now_cloud),
        kube: now,
    };
    let then = ControllerManagers {
        cloud: manager(Component::Cloud, then_cloud),
        kube: then,
    };
    let pair = ControllerManagerChange {
        before: now,
        after: then,
    };
    check(&pair);
    check(&ControllerManagerChange {
        before: pair.before.clone(),
        after: pair.before.clone(),
    });
    if let Some(file) = file {
        for minor in [Some(pair.before.kube.minor), None] {
            let lenient = LeaderMigrationConfiguration::parse_leniently(file, minor);
            let strict = LeaderMigrationConfiguration::parse(file, minor);
            assert!(strict.is_err() || lenient.is_ok());
        }
    }
}

fn check(pair: &ControllerManagerChange) {
    let rows = pair.rows();
    assert_eq!(rows.len(), 4);
    let harm = rows.iter().any(|row| row.verdict.is_problem());
    assert!(!harm || pair.has_problem());
    assert!(pair.startup_errors().is_empty() || pair.has_problem());
    for row in &rows {
        // A controller of one owner without a migration lock is not protected by one.
        let owners = row.runners_before.iter().chain(&row.runners_after);
        let migrates = owners.into_iter().any(|owner| owner.is_migration_lock);
        assert!(row.verdict != UpgradeEffect::Protected || migrates, "{row:?}");
    }
    for finding in pair.findings() {
        assert!(!finding.to_string().is_empty() && !finding.fix().is_empty());
    }
    let gaps = pair.gaps();
    for gap in [Some(gaps.main), gaps.migration, gaps.to_cloud]
        .into_iter()
        .flatten()
    {
        assert!(gap.min <= gap.max, "{gap:?}");
    }
}

fn generated(from: u64, to: u64) {
    let request = Request {
        from,
        to,
        migrates_node_ipam: true,
        leader_name: "migration".to_owned(),
    };
    if let Ok(text) = generate::configuration(&request) {
        for minor in [from, to] {
            assert!(
                LeaderMigrationConfiguration::parse(&text, Some(minor)).is_ok(),
                "{text}"
            );
        }
    }
}
