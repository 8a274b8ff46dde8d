//! One randomized run of lessees that claim clusters from a stand-in for Hive, under names that several lessees share.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::future::try_join_all;
use jiff::{SignedDuration, Timestamp};

use super::command::CommandOutput;
use super::counts::Counts;
use super::fault::{FAULTS, FaultPlan};
use super::pool::{POOL, Pool};
use super::random::Random;
use super::random_run::Tolerance;
use super::server::PoolServer;
use super::stand_in_hive::StandInHive;
use super::verb::{EXEC_CLAIM, LEASE_CLAIM, RELEASE_CLAIM, RENEW_CLAIM, Values, Verb};

const LESSEES: u64 = 4;

/// How many claims each lessee requests.
const ROUNDS: usize = 2;

/// The names of the claims.
const NAMES: [&str; 2] = ["shared-1", "shared-2"];

/// Longer than any claim lasts: `lease` creates claims of 24 hours.
const LATER: SignedDuration = SignedDuration::from_hours(25);

/// The time between two rounds of the stand-in.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(100);

/// The lessees of one run.
struct Run<'s> {
    server: &'s PoolServer,
    namespace: String,
    tolerance: Tolerance,
    /// The id of the claim to which each cluster was given.
    given: Mutex<BTreeMap<String, String>>,
}

/// Runs in a namespace that is named after the seed. Fails if a cluster was given to two claims, if a lessee lost a claim that
/// it had not given up, or if a claim outlasts its lifetime.
pub(super) async fn claim_run(server: &PoolServer, seed: u64, tolerance: Tolerance) -> Result<Counts> {
    let pool = Pool::create(server, &format!("claims-{seed}"), 1).await?;
    let run = Run {
        server,
        namespace: pool.namespace().to_owned(),
        tolerance,
        given: Mutex::default(),
    };
    let mut hive = StandInHive::new(server.client(), &run.namespace, POOL, 1)?;
    let mut random = Random::new(seed);
    let lessees = try_join_all((0..LESSEES).map(|_| run.lessee(random.split())));
    let serve = async {
        loop {
            let serving = server.serving().await;
            hive.round(Timestamp::now()).await?;
            drop(serving);
            tokio::time::sleep(BETWEEN_ROUNDS).await;
        }
    };
    let lived = tokio::select! {
        failed = serve => failed,
        lived = lessees => lived,
    };
    let mut sum = Counts::default();
    for counts in lived? {
        sum += counts;
    }
    let _serving = server.serving().await;
    let now = Timestamp::now();
    sum.claims_left += u64::try_from(hive.settle(now).await?.len())?;
    let left = hive.settle(now.checked_add(LATER)?).await?;
    ensure!(left.is_empty(), "claims without an end: {left:#?}");
    Ok(sum)
}

impl Run<'_> {
    async fn lessee(&self, mut random: Random) -> Result<Counts> {
        let mut counts = Counts::default();
        for _ in 0..ROUNDS {
            let name = random.pick(NAMES).context("no name")?;
            if random.one_in(2) {
                let ended = self
                    .command(EXEC_CLAIM, name, "", &mut random, &mut counts)
                    .await?;
                let is_refused = ended.stderr.contains("held: ") || ended.stderr.contains("blocked: ");
                let is_expected = matches!(ended.code, None | Some(0))
                    || ended.code == Some(125) && (is_refused || self.tolerates(&ended));
                ensure!(is_expected, "{ended}");
                counts.claimed += u64::from(ended.code == Some(0));
                continue;
            }
            let ended = self
                .command(LEASE_CLAIM, name, "", &mut random, &mut counts)
                .await?;
            if ended.code == Some(1) {
                let reason = ended.text("/reason")?;
                ensure!(
                    ["held", "timeout", "blocked"].contains(&reason.as_str()),
                    "{ended}"
                );
            }
            if ended.code != Some(0) {
                ensure!(
                    matches!(ended.code, None | Some(1)) || self.tolerates(&ended),
                    "{ended}"
                );
                continue;
            }
            counts.claimed += 1;
            let (id, cluster) = (ended.text("/leaseId")?, ended.text("/clusterDeployment/name")?);
            if let Some(other) = self.give(cluster, &id) {
                bail!("another claim, {other}, has the same cluster: {ended}");
            }
            for verb in [RENEW_CLAIM, RELEASE_CLAIM] {
                let ended = self.command(verb, name, &id, &mut random, &mut counts).await?;
                match ended.code {
                    Some(0) | None => {}
                    Some(code) if code > 1 && self.tolerates(&ended) => {}
                    _ => bail!("the lessee has lost claim {id}: {ended}"),
                }
                if ended.was_killed() {
                    break;
                }
            }
        }
        Ok(counts)
    }

    /// Notes that a cluster was given to a claim. Returns the other claim to which it was given before.
    fn give(&self, cluster: String, id: &str) -> Option<String> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.insert(cluster, id.to_owned())
    }

    /// Whether the API server may have restarted, so that the command could not decide.
    fn tolerates(&self, ended: &CommandOutput) -> bool {
        self.tolerance == Tolerance::ServerRestarts || ended.traffic.faulted.is_some()
    }

    /// Runs a command, every second time with a fault.
    async fn command(
        &self,
        verb: Verb,
        lessee: &str,
        id: &str,
        random: &mut Random,
        counts: &mut Counts,
    ) -> Result<CommandOutput> {
        let values = Values {
            pool: POOL,
            lessee,
            ttl: "",
            id,
        };
        let plan = if random.one_in(2) {
            let fault = random.pick(FAULTS).context("no fault")?;
            let write = random.pick([1, 1, 2, 3]).context("no write")?;
            Some(FaultPlan { write, fault })
        } else {
            None
        };
        let command = verb.command(&self.namespace, &values);
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        let ended = self
            .server
            .plugin()
            .run(&words, plan, SignedDuration::ZERO)
            .await?;
        counts.commands += 1;
        counts.killed += u64::from(ended.was_killed());
        Ok(ended)
    }
}
