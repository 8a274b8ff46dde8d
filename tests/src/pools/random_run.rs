//! One randomized run: more lessees than entries, injected faults, and lessees that die.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;

use super::claim::Saying;
use super::counts::Counts;
use super::invariant::reclaimed;
use super::lessee::{Dies, Lessee};
use super::pool::Pool;
use super::random::Random;
use super::server::PoolServer;
use super::verb::{FIND, GENERATED, REPAIR};
use super::version::Versions;

pub const LESSEES: usize = 8;
pub const ENTRIES: usize = 4;

/// How often the rest is repaired: a short lease may end between a repair and the search for what it left.
const MAX_REPAIRS: usize = 20;

/// The exit codes that a run accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Every command that is not killed decides, because it must handle one lost answer.
    DecidesAlways,
    /// The API server restarts, so a command may fail to decide.
    ServerRestarts,
}

/// Runs in a namespace that is named after the seed. The seed determines everything random except for the order in
/// which commands reach the server. Fails with all violations.
pub async fn random_run(server: &PoolServer, seed: u64, tolerance: Tolerance) -> Result<Counts> {
    let failed = || format!("the run with seed {seed}");
    let pool = Pool::create(server, &format!("run-{seed}"), ENTRIES)
        .await
        .with_context(failed)?;
    run(pool, seed, tolerance).await.with_context(failed)
}

async fn run(pool: Pool<'_>, seed: u64, tolerance: Tolerance) -> Result<Counts> {
    let mut random = Random::new(seed);
    let lessees = (1..=LESSEES).map(|number| {
        let name = format!("cluster-{number}");
        Lessee::new(&pool, name, random.split(), tolerance)
    });
    let lived = try_join_all(lessees.map(async |mut lessee| match lessee.live().await {
        Ok(()) => Ok((lessee, true)),
        Err(error) if error.is::<Dies>() => Ok((lessee, false)),
        Err(error) => Err(error),
    }));
    let mut counts = Counts {
        runs: 1,
        ..Counts::default()
    };
    let mut living = BTreeSet::new();
    for (lessee, lives) in lived.await? {
        counts += lessee.counts;
        for name in &lessee.generated {
            pool.say(name, Saying::Releases).await?;
        }
        if lives {
            living.insert(lessee.name);
        } else {
            pool.depart(&lessee.name).await?;
        }
    }
    // A command that was killed told nobody the name that it had generated.
    pool.end_leases(|holder| holder.starts_with(GENERATED)).await?;
    let mut heir = Lessee::new(&pool, "nobody".to_owned(), random, tolerance);
    if let Err(error) = repair(&mut heir).await {
        let Versions { entries, .. } = pool.judge(&living).await?.versions;
        return Err(error.context(format!("of {entries:?}")));
    }
    counts += heir.counts;
    let judgement = pool.judge(&living).await?;
    counts.reclaimed += reclaimed(&judgement.versions);
    judgement.nothing_wrong()?;
    Ok(counts)
}

/// Repairs what the dead left, until nothing is found.
async fn repair(heir: &mut Lessee<'_>) -> Result<()> {
    for _ in 0..MAX_REPAIRS {
        heir.succeed(REPAIR).await?;
        if heir.run(FIND, "", "", None).await?.code == Some(0) {
            return Ok(());
        }
    }
    heir.succeed(FIND).await
}
