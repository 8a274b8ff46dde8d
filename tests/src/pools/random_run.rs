//! One randomized run: more lessees than entries, injected faults, and lessees that die. In every second run, janitors clean the
//! entries between two leases. Then other lessees claim clusters.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use serde_json::Value;

use super::claim::EventKind;
use super::claim_run::claim_run;
use super::counts::Counts;
use super::invariant::reclaimed;
use super::lessee::{Lessee, LesseeDied};
use super::pool::Pool;
use super::random::Random;
use super::server::PoolServer;
use super::verb::{FIND, GENERATED, REPAIR};
use super::version::Versions;

pub const LESSEES: usize = 8;
pub const ENTRIES: usize = 4;

/// The janitors of a pool that asks for cleaning.
const JANITORS: usize = 2;

/// The attempts to repair everything: a short lease may end between a repair and the search for problems.
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
    let mut counts = run(pool, seed, tolerance).await.with_context(failed)?;
    counts += claim_run(server, seed, tolerance).await.with_context(failed)?;
    Ok(counts)
}

async fn run(pool: Pool<'_>, seed: u64, tolerance: Tolerance) -> Result<Counts> {
    let mut random = Random::new(seed);
    let asks_for_cleaning = seed.is_multiple_of(2);
    if asks_for_cleaning {
        pool.ask_for_cleaning().await?;
    }
    let names = (1..=JANITORS).filter(|_| asks_for_cleaning);
    let mut janitors: Vec<_> = names
        .map(|number| Lessee::new(&pool, format!("janitor-{number}"), random.split(), tolerance))
        .collect();
    // A janitor must not be interrupted between the end of its command and the log.
    let is_over = AtomicBool::new(false);
    let clean = try_join_all(janitors.iter_mut().map(async |janitor| {
        while !is_over.load(Ordering::Relaxed) {
            janitor.clean().await?;
        }
        Ok(())
    }));
    let lessees = (1..=LESSEES).map(|number| {
        let name = format!("cluster-{number}");
        Lessee::new(&pool, name, random.split(), tolerance)
    });
    let live = async {
        let lived = try_join_all(lessees.map(async |mut lessee| match lessee.live().await {
            Ok(()) => Ok((lessee, true)),
            Err(error) if error.is::<LesseeDied>() => Ok((lessee, false)),
            Err(error) => Err(error),
        }));
        let lived = lived.await;
        is_over.store(true, Ordering::Relaxed);
        lived
    };
    let (lived, _) = tokio::try_join!(live, clean)?;
    let mut counts = Counts {
        runs: 1,
        ..Counts::default()
    };
    let mut living = BTreeSet::new();
    for (lessee, lives) in lived {
        counts += lessee.counts;
        for name in &lessee.generated {
            pool.log_event(name, EventKind::Releases).await?;
        }
        if lives {
            living.insert(lessee.name);
        } else {
            pool.remove_lessee(&lessee.name).await?;
        }
    }
    // A killed command may have leased under a generated name that it did not report.
    pool.end_leases(|holder| holder.starts_with(GENERATED)).await?;
    for janitor in janitors {
        counts += janitor.counts;
    }
    let mut repairer = Lessee::new(&pool, "nobody".to_owned(), random, tolerance);
    let cleaned_up = async {
        decide_contested(&pool, &mut repairer).await?;
        repair(&mut repairer).await?;
        // Repair does not free an entry that must be cleaned.
        repairer.clean_all().await
    };
    if let Err(error) = cleaned_up.await {
        let Versions { entries, .. } = pool.check_history(&living).await?.versions;
        return Err(error.context(format!("of {entries:?}")));
    }
    counts += repairer.counts;
    let check = pool.check_history(&living).await?;
    counts.reclaimed += reclaimed(&check.versions);
    check.ensure_clean()?;
    Ok(counts)
}

/// Ends the leases of restored entries that the cluster of another lessee uses, as a person would. The lessee that leased such an entry
/// last was killed before it could return it.
async fn decide_contested(pool: &Pool<'_>, repairer: &mut Lessee<'_>) -> Result<()> {
    if !pool.was_restored() {
        return Ok(());
    }
    let found = repairer.run(FIND, "", "", None).await?.answer()?;
    let findings = found
        .get("findings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let text = |finding: &Value, field: &str| Some(finding.get(field)?.as_str()?.to_owned());
    let contested: BTreeSet<String> = findings
        .filter(|finding| text(finding, "cause").as_deref() == Some("contested"))
        .filter_map(|finding| text(finding, "clusterDeployment"))
        .collect();
    pool.end_leases(|holder| contested.contains(holder)).await
}

/// Repairs the leases of dead lessees, until no problem is found.
async fn repair(repairer: &mut Lessee<'_>) -> Result<()> {
    for _ in 0..MAX_REPAIRS {
        repairer.succeed(REPAIR).await?;
        if repairer.run(FIND, "", "", None).await?.code == Some(0) {
            return Ok(());
        }
    }
    repairer.succeed(FIND).await
}
