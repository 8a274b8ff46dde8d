//! Each fault at each write of each command; then the same command again.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use kcp_tests::pools::fault::{FAULTS, Fault, FaultPlan};
use kcp_tests::pools::pool::Pool;
use kcp_tests::pools::server::PoolServer;
use kcp_tests::pools::verb::{Effect, LEASE, RELEASE, VERBS, Verb};

use crate::shared::with_pools;

/// Of the command under test.
const LESSEE: &str = "a";

/// No command writes as often.
const MAX_WRITES: usize = 32;

#[test]
fn no_fault_at_any_write_loses_an_entry_or_gives_it_twice() {
    with_pools(async |server| {
        let cases = VERBS.iter().flat_map(|verb| FAULTS.map(|fault| (verb, fault)));
        let befallen = try_join_all(cases.map(async |(verb, fault)| {
            let befallen = at_every_write(server, verb, fault).await;
            befallen.with_context(|| format!("{}, {fault:?}", verb.name))
        }));
        let befallen = befallen.await.unwrap();
        assert!(
            befallen.iter().all(|writes| *writes > 0),
            "a command that writes nothing: {befallen:?}"
        );
    });
}

/// How many writes the fault has befallen, one a time.
async fn at_every_write(server: &PoolServer, verb: &Verb, fault: Fault) -> Result<usize> {
    for write in 1..=MAX_WRITES {
        let namespace = format!("{}-{fault:?}-{write}", verb.name).to_lowercase();
        let befell = once(server, &namespace, verb, FaultPlan { write, fault }).await;
        if !befell.with_context(|| format!("at write {write}"))? {
            return Ok(write - 1);
        }
    }
    anyhow::bail!("more than {MAX_WRITES} writes")
}

/// Whether the fault befell the command. Another lessee has the other entry all the while, and loses it no more than it
/// gets a second one.
async fn once(server: &PoolServer, namespace: &str, verb: &Verb, plan: FaultPlan) -> Result<bool> {
    let pool = Pool::create(server, namespace, 2).await?;
    pool.succeed(&LEASE, "bystander").await?;
    if verb.effect == Effect::Releases {
        pool.succeed(&LEASE, LESSEE).await?;
    }
    let ended = pool.run(verb, LESSEE, Some(plan)).await?;
    let befell = ended.traffic.fault_befell;
    let expected = if befell && plan.fault.kills() {
        None
    } else {
        Some(0)
    };
    ensure!(ended.code == expected, "{ended}");
    pool.succeed(verb, LESSEE).await?;

    // A third lessee gets what is free, and nothing else.
    let third = pool.run(&LEASE, "third", None).await?;
    let (expected, mut living) = match verb.effect {
        Effect::Leases => (Some(1), BTreeSet::from(["bystander", LESSEE])),
        Effect::Releases => (Some(0), BTreeSet::from(["bystander", "third"])),
    };
    ensure!(third.code == expected, "{third}");
    // Whoever has come to nothing may come again.
    pool.succeed(&RELEASE, "bystander").await?;
    living.remove("bystander");
    pool.judge(&living.into_iter().map(str::to_owned).collect())
        .await?
        .nothing_wrong()?;
    Ok(befell)
}
