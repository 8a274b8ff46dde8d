//! The checks can fail: they do for lessees that write without a resourceVersion.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use kcp_tests::pools::claim::EventKind;
use kcp_tests::pools::invariant::Violation;
use kcp_tests::pools::naive::{NaiveLessee, Precondition, name};
use kcp_tests::pools::pool::{HistoryCheck, Pool};
use kcp_tests::pools::random_run::{ENTRIES, LESSEES};
use kcp_tests::pools::server::PoolServer;

use crate::shared::with_pools;

/// Lessees that all read before any of them writes. Returns the result of the checks, and the number of lessees that
/// got an entry.
async fn race(
    server: &PoolServer,
    namespace: &str,
    precondition: Precondition,
) -> Result<(HistoryCheck, usize)> {
    let pool = Pool::create(server, namespace, ENTRIES).await?;
    let client = server.client();
    let lessees = (1..=LESSEES).map(|number| NaiveLessee {
        name: format!("cluster-{number}"),
        namespace: namespace.to_owned(),
        precondition,
    });
    let looks = lessees.map(async |lessee| {
        let seen = lessee.first_free(client).await?.context("none is free")?;
        anyhow::Ok((lessee, seen))
    });
    let looks = try_join_all(looks).await?;
    let told = looks.iter().map(async |(lessee, seen)| {
        let entry = if lessee.take(client, seen).await? {
            Some(name(seen)?.to_owned())
        } else {
            lessee.lease(client).await?
        };
        if let Some(entry) = &entry {
            let leased = EventKind::Leased {
                entry: entry.clone(),
                ends: Timestamp::MAX,
            };
            pool.log_event(&lessee.name, leased).await?;
        }
        anyhow::Ok(usize::from(entry.is_some()))
    });
    let told = try_join_all(told).await?.into_iter().sum();
    let living = looks.into_iter().map(|(lessee, _)| lessee.name).collect();
    Ok((pool.check_history(&living).await?, told))
}

#[test]
fn a_lessee_that_omits_the_resource_version_is_detected() {
    with_pools(async |server| {
        let (check, told) = race(server, "naive-blind", Precondition::None).await.unwrap();
        assert_eq!(told, LESSEES, "all writes succeed");
        let of_one_entry = |violation: &&Violation| match violation {
            Violation::NotNamed { entry, .. } | Violation::Overlap { entry, .. } => entry == "host-1",
            _ => false,
        };
        let violations = check.violations.iter();
        assert_eq!(
            violations.clone().filter(of_one_entry).count(),
            check.violations.len()
        );
        let robbed: BTreeSet<_> = violations
            .clone()
            .filter_map(|violation| match violation {
                Violation::NotNamed { lessee, .. } => Some(lessee),
                _ => None,
            })
            .collect();
        assert!(
            robbed.len() >= LESSEES - 1,
            "only one of them can have it: {robbed:?}"
        );
        let overlaps = violations.filter(|violation| matches!(violation, Violation::Overlap { .. }));
        assert_eq!(overlaps.count(), LESSEES * (LESSEES - 1) / 2);
        check.ensure_clean().unwrap_err();
    });
}

#[test]
fn a_naive_lessee_with_the_resource_version_takes_no_lease_of_others() {
    with_pools(async |server| {
        let (check, told) = race(server, "naive-conditional", Precondition::ResourceVersion)
            .await
            .unwrap();
        assert_eq!(told, ENTRIES);
        check.ensure_clean().unwrap();
    });
}
