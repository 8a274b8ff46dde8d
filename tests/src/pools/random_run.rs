//! One randomized run: more lessees than entries, injected faults, and lessees that die.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::future::try_join_all;

use super::command::CommandOutput;
use super::counts::Counts;
use super::fault::{FAULTS, Fault, FaultPlan};
use super::pool::Pool;
use super::random::Random;
use super::server::PoolServer;
use super::verb::{BORROW, CORDON, FIND, LEASE, RELEASE, RENEW, REPAIR, UNCORDON, Verb};
use super::version::Versions;

pub const LESSEES: usize = 8;
pub const ENTRIES: usize = 4;

/// How often each lessee leases.
const ROUNDS: usize = 2;

/// How often a lessee repeats a command that was killed or could not decide.
const MAX_ATTEMPTS: usize = 20;

/// The exit codes that a run accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Every command that is not killed decides, because it must handle one lost answer.
    DecidesAlways,
    /// The API server restarts, so a command may fail to decide.
    ServerRestarts,
}

/// The end of a lessee.
enum LesseeEnd {
    /// It lives, with or without an entry.
    Lives,
    /// It was killed and never returns.
    Dies,
}

/// A lessee and its counts so far.
struct Lessee<'p> {
    pool: &'p Pool<'p>,
    name: String,
    random: Random,
    tolerance: Tolerance,
    counts: Counts,
}

/// The end of a command that is repeated until it decides.
enum Decision {
    Met,
    Refused,
    Died,
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
    let lessees = (1..=LESSEES).map(|number| Lessee {
        pool: &pool,
        name: format!("cluster-{number}"),
        random: random.split(),
        tolerance,
        counts: Counts::default(),
    });
    let ended = try_join_all(lessees.map(Lessee::live)).await?;
    let mut counts = Counts {
        runs: 1,
        ..Counts::default()
    };
    let (mut living, mut dead) = (BTreeSet::new(), Vec::new());
    for (lessee, fate) in ended {
        counts += lessee.counts;
        match fate {
            LesseeEnd::Lives => {
                living.insert(lessee.name);
            }
            LesseeEnd::Dies => dead.push(lessee.name),
        }
    }
    for lessee in &dead {
        pool.depart(lessee).await?;
    }
    let mut heir = Lessee {
        pool: &pool,
        name: "nobody".to_owned(),
        random,
        tolerance,
        counts: Counts::default(),
    };
    let inherited = async {
        // A lease of a second may end between the two.
        for _ in 0..MAX_ATTEMPTS {
            heir.succeed(&REPAIR).await?;
            if heir.run(&FIND, None).await?.code == Some(0) {
                return Ok(());
            }
        }
        heir.succeed(&FIND).await
    };
    if let Err(error) = inherited.await {
        let Versions { entries, .. } = pool.judge(&living).await?.versions;
        return Err(error.context(format!("of {entries:?}")));
    }
    counts += heir.counts;
    pool.judge(&living).await?.nothing_wrong()?;
    Ok(counts)
}

impl Lessee<'_> {
    async fn live(mut self) -> Result<(Self, LesseeEnd)> {
        for round in 1..=ROUNDS {
            if self.random.one_in(4) {
                // A repair must not take anything from living lessees.
                match self.until_decided(&REPAIR).await? {
                    Decision::Met => {}
                    Decision::Refused => bail!("{} cannot repair", self.name),
                    Decision::Died => return Ok((self, LesseeEnd::Dies)),
                }
            }
            if self.random.one_in(4) {
                // Others free what it has leased for a second only.
                if let Decision::Died = self.until_decided(&BORROW).await? {
                    return Ok((self, LesseeEnd::Dies));
                }
            }
            if self.random.one_in(8) {
                for verb in [&CORDON, &UNCORDON] {
                    if let Decision::Died = self.until_decided(verb).await? {
                        return Ok((self, LesseeEnd::Dies));
                    }
                }
            }
            match self.until_decided(&LEASE).await? {
                Decision::Met => {}
                Decision::Refused => continue,
                Decision::Died => return Ok((self, LesseeEnd::Dies)),
            }
            if self.random.one_in(4) {
                match self.until_decided(&RENEW).await? {
                    Decision::Met => {}
                    Decision::Refused => bail!("{} has lost what it has", self.name),
                    Decision::Died => return Ok((self, LesseeEnd::Dies)),
                }
            }
            if self.random.one_in(4) {
                // The same lease again reports the same entry.
                let again = self.until_decided(&LEASE).await?;
                match again {
                    Decision::Met => {}
                    Decision::Refused => bail!("{} is refused what it has", self.name),
                    Decision::Died => return Ok((self, LesseeEnd::Dies)),
                }
            }
            let keeps = round == ROUNDS && self.random.one_in(4);
            if keeps {
                break;
            }
            match self.until_decided(&RELEASE).await? {
                Decision::Met => {}
                Decision::Refused => bail!("{} may not give back what it has", self.name),
                Decision::Died => return Ok((self, LesseeEnd::Dies)),
            }
        }
        Ok((self, LesseeEnd::Lives))
    }

    /// Runs a command with or without a fault, and repeats it if it was killed, unless the lessee dies.
    async fn until_decided(&mut self, verb: &Verb) -> Result<Decision> {
        for _ in 0..MAX_ATTEMPTS {
            let plan = self.plan();
            let ended = self.run(verb, plan).await?;
            match ended.code {
                Some(0) => return Ok(Decision::Met),
                Some(1) => {
                    ensure!(
                        ended
                            .answer()?
                            .get("reason")
                            .is_some_and(|reason| reason == "exhausted"),
                        "{ended}"
                    );
                    self.counts.exhausted += 1;
                    return Ok(Decision::Refused);
                }
                None if self.random.one_in(4) => {
                    self.counts.dead += 1;
                    return Ok(Decision::Died);
                }
                None => {}
                Some(_) => self.undecided(&ended).await?,
            }
        }
        bail!(
            "{} {} has not decided in {MAX_ATTEMPTS} runs",
            self.name,
            verb.name
        )
    }

    /// Repeats a command without a fault until it succeeds.
    async fn succeed(&mut self, verb: &Verb) -> Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let ended = self.run(verb, None).await?;
            match ended.code {
                Some(0) => return Ok(()),
                Some(2) => self.undecided(&ended).await?,
                _ => bail!("{ended}"),
            }
        }
        bail!("{} has not succeeded in {MAX_ATTEMPTS} runs", verb.name)
    }

    async fn run(&mut self, verb: &Verb, plan: Option<FaultPlan>) -> Result<CommandOutput> {
        let ended = self.pool.run(verb, &self.name, plan).await?;
        self.counts.commands += 1;
        if ended.was_killed() {
            self.counts.killed += 1;
        }
        match plan
            .filter(|_| ended.traffic.fault_injected)
            .map(|plan| plan.fault)
        {
            Some(Fault::AnswerCut) => self.counts.cut += 1,
            Some(Fault::GatewayTimeout) => self.counts.timed_out += 1,
            Some(Fault::KilledBeforeWrite | Fault::KilledBeforeAnswer) | None => {}
        }
        if verb.name == LEASE.name && ended.code == Some(0) {
            self.counts.leased += 1;
        }
        Ok(ended)
    }

    /// Waits until the server is up again, if its restart may be the reason.
    async fn undecided(&mut self, ended: &CommandOutput) -> Result<()> {
        self.counts.undecided += 1;
        if self.tolerance == Tolerance::DecidesAlways {
            bail!("{} could not decide: {ended}", self.name);
        }
        drop(self.pool.server().serving().await);
        Ok(())
    }

    /// A fault in every second command. Early writes are more likely.
    fn plan(&mut self) -> Option<FaultPlan> {
        if self.random.one_in(2) {
            return None;
        }
        let write = self.random.pick([1, 1, 1, 2])?;
        let fault = self.random.pick(FAULTS)?;
        Some(FaultPlan { write, fault })
    }
}
