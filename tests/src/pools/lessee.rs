//! One lessee of a randomized run. Its random numbers decide what it does.

use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::claim::{EventKind, GRACE};
use super::command::CommandOutput;
use super::counts::Counts;
use super::fault::{FAULTS, Fault, FaultPlan};
use super::pool::{Call, Pool};
use super::random::Random;
use super::random_run::Tolerance;
use super::verb::{
    BORROW, CLEAN_OR_FAIL, CORDON, Effect, GENERATE, GENERATE_TWO, LEASE, LEASE_AGAIN, LEASE_NEW, LEASE_WAIT,
    RELEASE, RELEASE_BY_ID, RELEASE_IN_USE, RELEASE_TOO_LATE, RENEW, RENEW_BY_ID, REPAIR_WITH_GRACE, STATUS,
    UNCORDON, Verb,
};

/// How often each lessee leases.
const ROUNDS: usize = 2;

/// How often a lessee repeats a command that was killed or could not decide.
const MAX_ATTEMPTS: usize = 20;

/// How long after the end of a lease no other client frees its entry. A cluster that is created later may conflict with another
/// lease, so the run proves nothing.
const MARGIN: SignedDuration = SignedDuration::from_secs(4);

/// A lessee and its counts so far.
pub(super) struct Lessee<'p> {
    pool: &'p Pool<'p>,
    pub(super) name: String,
    random: Random,
    tolerance: Tolerance,
    /// By how much its wall clock is ahead.
    ahead: SignedDuration,
    pub(super) counts: Counts,
    /// The names that `--generate-name` generated for it.
    pub(super) generated: Vec<String>,
}

/// The lessee was killed, and never returns.
#[derive(Debug)]
pub(super) struct LesseeDied;

impl fmt::Display for LesseeDied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lessee dies")
    }
}

impl std::error::Error for LesseeDied {}

/// A lease as a command reported it.
#[derive(Clone, Debug)]
struct Lease {
    entry: String,
    id: String,
    ends: Timestamp,
}

/// The result of a command that decided.
enum Decision {
    Met(CommandOutput),
    /// Refused for this reason.
    Refused(String),
}

impl<'p> Lessee<'p> {
    pub(super) fn new(pool: &'p Pool<'p>, name: String, mut random: Random, tolerance: Tolerance) -> Self {
        let minutes = random.pick([0, 0, 10, -10]).unwrap_or_default();
        Self {
            pool,
            name,
            random,
            tolerance,
            ahead: SignedDuration::from_mins(minutes),
            counts: Counts::default(),
            generated: Vec::new(),
        }
    }

    /// Leases, uses and releases entries. Fails with [`LesseeDied`] if a command was killed and the lessee never returns.
    pub(super) async fn live(&mut self) -> Result<()> {
        for round in 1..=ROUNDS {
            if self.random.one_in(4) {
                self.repair().await?;
            }
            if self.random.one_in(8) {
                for verb in [CORDON, UNCORDON] {
                    self.met(verb).await?;
                }
            }
            if self.random.one_in(4) {
                self.lease_under_generated_name().await?;
            }
            if self.random.one_in(3) {
                // Others may have the entry soon.
                let ttl = self.random.pick(["1s", "2s", "3s"]).unwrap_or_default();
                self.decide(BORROW, ttl, "", &["exhausted"]).await?;
            }
            let Some(mut lease) = self.lease().await? else {
                continue;
            };
            self.renew(&mut lease).await?;
            if self.random.one_in(4) {
                self.lease_again(&mut lease).await?;
            }
            let is_last = round == ROUNDS;
            if self.random.one_in(2) && self.create_cluster(&lease, lease.ends).await? {
                let keeps = is_last && self.random.one_in(4);
                self.use_cluster(&mut lease, keeps).await?;
                if keeps {
                    return Ok(());
                }
            }
            if is_last && self.random.one_in(4) {
                return Ok(());
            }
            self.release(&lease).await?;
        }
        Ok(())
    }

    /// Repairs the pool, which must not affect living lessees.
    async fn repair(&mut self) -> Result<()> {
        self.met(REPAIR_WITH_GRACE).await.map(drop)
    }

    async fn lease_under_generated_name(&mut self) -> Result<()> {
        let verb = self.random.pick([GENERATE, GENERATE_TWO]).unwrap_or(GENERATE);
        let Decision::Met(output) = self.decide(verb, "2s", "", &["exhausted", "timeout"]).await? else {
            return Ok(());
        };
        let name = output.text("/clusterDeployment/name")?;
        self.generated.push(name.clone());
        let is_set = verb.line == GENERATE_TWO.line;
        self.counts.sets += u64::from(is_set);
        if self.random.one_in(2) {
            let (release, id) = if is_set {
                (RELEASE, String::new())
            } else {
                (RELEASE_BY_ID, output.text("/leaseId")?)
            };
            let own = std::mem::replace(&mut self.name, name);
            let released = self.decide(release, "", &id, &[]).await;
            self.name = own;
            released?;
        }
        Ok(())
    }

    /// None if no entry is free.
    async fn lease(&mut self) -> Result<Option<Lease>> {
        let choices = [
            (LEASE, "24h"),
            (LEASE, "24h"),
            (LEASE, "5m"),
            (LEASE, "2s"),
            (LEASE, "3s"),
            (LEASE_NEW, "24h"),
            (LEASE_WAIT, "24h"),
        ];
        let Some((verb, ttl)) = self.random.pick(choices) else {
            return Ok(None);
        };
        let mut decision = self
            .decide(verb, ttl, "", &["exhausted", "timeout", "held"])
            .await?;
        if matches!(&decision, Decision::Refused(reason) if reason == "held") {
            ensure!(
                verb.line == LEASE_NEW.line,
                "{} is refused what it has",
                self.name
            );
            decision = self.decide(LEASE, ttl, "", &["exhausted"]).await?;
        }
        match decision {
            Decision::Met(output) => Ok(Some(Lease::of(&output)?)),
            Decision::Refused(_) => Ok(None),
        }
    }

    async fn renew(&mut self, lease: &mut Lease) -> Result<()> {
        if self.random.one_in(4) {
            self.refused(RENEW_BY_ID, "bcdfghjk", "not-holder").await?;
        }
        if !self.random.one_in(4) {
            return Ok(());
        }
        let verb = self.random.pick([RENEW, RENEW_BY_ID]).unwrap_or(RENEW);
        let id = lease.id.clone();
        match self.decide(verb, "", &id, &["not-holder"]).await? {
            Decision::Met(output) => {
                lease.ends = output.time("/leases/0/ends")?;
                self.counts.renewed += 1;
            }
            Decision::Refused(_) => {
                ensure!(lease.may_have_ended(), "{} has lost {lease:?}", self.name);
            }
        }
        Ok(())
    }

    /// The same lease again reports the same entry, unless it has ended.
    async fn lease_again(&mut self, lease: &mut Lease) -> Result<()> {
        match self.decide(LEASE_AGAIN, "", "", &["exhausted"]).await? {
            Decision::Met(output) => *lease = Lease::of(&output)?,
            Decision::Refused(_) => {
                ensure!(lease.may_have_ended(), "{} is refused {lease:?}", self.name);
            }
        }
        Ok(())
    }

    /// Creates the lessee's cluster, unless this time has passed, after which others may lease the entry. Returns whether it
    /// was created.
    async fn create_cluster(&mut self, lease: &Lease, before: Timestamp) -> Result<bool> {
        let serving = self.pool.server().serving().await;
        if Timestamp::now() >= before {
            return Ok(false);
        }
        self.pool.create_cluster(&self.name, Some(&lease.entry)).await?;
        drop(serving);
        let too_late = before.saturating_add(MARGIN)?;
        ensure!(
            Timestamp::now() < too_late,
            "this machine is too slow: a cluster was created after {before}"
        );
        self.pool.log_event(&self.name, EventKind::CreatedCluster).await?;
        self.counts.clusters += 1;
        Ok(true)
    }

    async fn use_cluster(&mut self, lease: &mut Lease, keeps: bool) -> Result<()> {
        let mut is_recorded = true;
        let event = self.random.pick([0, 1, 2, 2]).unwrap_or_default();
        if event == 0 {
            self.restore(lease).await?;
            // Another lessee may have leased the entry just now. It returns the entry when it sees the cluster.
            let again = self
                .decide(LEASE_AGAIN, "", "", &["exhausted", "blocked"])
                .await?;
            is_recorded = matches!(again, Decision::Met(_));
            if let Decision::Met(output) = again {
                *lease = Lease::of(&output)?;
            }
        } else if event == 1 {
            self.refused(RELEASE_IN_USE, "", "blocked").await?;
        }
        if self.random.one_in(3) {
            self.repair().await?;
        }
        if keeps {
            return Ok(());
        }
        let deleted = self.delete_cluster().await?;
        if is_recorded && self.random.one_in(2) {
            if self.random.one_in(2) {
                self.repair().await?;
            }
            let before = lease.ends.max(deleted.saturating_add(GRACE)?);
            if self.create_cluster(lease, before).await? {
                self.counts.recreated += 1;
                self.delete_cluster().await?;
            }
        }
        Ok(())
    }

    async fn restore(&mut self, lease: &Lease) -> Result<()> {
        let _serving = self.pool.server().serving().await;
        self.pool.log_event(&self.name, EventKind::LosesRecord).await?;
        self.pool.restore_without_status(&lease.entry).await?;
        self.counts.restored += 1;
        Ok(())
    }

    /// Returns the time of the request.
    async fn delete_cluster(&mut self) -> Result<Timestamp> {
        let _serving = self.pool.server().serving().await;
        let now = Timestamp::now();
        self.pool.log_event(&self.name, EventKind::DeletesCluster).await?;
        self.pool.delete_created_cluster(&self.name).await?;
        Ok(now)
    }

    async fn release(&mut self, lease: &Lease) -> Result<()> {
        if self.random.one_in(2) {
            let verb = self.random.pick([RELEASE, RELEASE_BY_ID]).unwrap_or(RELEASE);
            // A repair may have recorded the lease of a restored entry anew, with another id.
            if let Decision::Met(_) = self.decide(verb, "", &lease.id, &["not-holder"]).await? {
                return Ok(());
            }
        }
        self.met(RELEASE).await?;
        if self.random.one_in(2) {
            return Ok(());
        }
        // A late trap of an old run must not release the lease of a new run under the same name.
        if let Decision::Met(_) = self.decide(LEASE, "24h", "", &["exhausted"]).await? {
            self.refused(RELEASE_TOO_LATE, &lease.id, "not-holder").await?;
            self.met(RELEASE).await?;
        }
        Ok(())
    }

    /// Runs a command that must not be refused.
    async fn met(&mut self, verb: Verb) -> Result<()> {
        self.decide(verb, "", "", &[]).await.map(drop)
    }

    /// Runs a command that must be refused for this reason.
    async fn refused(&mut self, verb: Verb, id: &str, reason: &str) -> Result<()> {
        match self.decide(verb, "", id, &[reason]).await? {
            Decision::Refused(_) => {
                self.counts.wrong_ids += u64::from(!id.is_empty());
                Ok(())
            }
            Decision::Met(output) => bail!("not refused: {output}"),
        }
    }

    /// Runs a command with or without a fault, and repeats it if it was killed, unless the lessee dies. It may be
    /// refused for these reasons.
    async fn decide(&mut self, verb: Verb, ttl: &str, id: &str, refusals: &[&str]) -> Result<Decision> {
        for _ in 0..MAX_ATTEMPTS {
            let plan = self.plan();
            let ended = self.run(verb, ttl, id, plan).await?;
            match ended.code {
                Some(0) => return Ok(Decision::Met(ended)),
                // It may have run while a restored entry did not exist.
                Some(1) if verb.effect == Effect::Repairs && self.pool.was_restored() => {
                    return Ok(Decision::Met(ended));
                }
                Some(1) => {
                    let reason = ended.text("/reason")?;
                    // Two lessees can hold a restored entry. The second one returns it when it sees the cluster of the first; if it
                    // was killed before that, it is refused when it runs again.
                    let is_second_holder =
                        verb.effect == Effect::Leases && reason == "blocked" && self.pool.was_restored();
                    ensure!(is_second_holder || refusals.contains(&reason.as_str()), "{ended}");
                    self.counts.exhausted += u64::from(reason == "exhausted");
                    return Ok(Decision::Refused(reason));
                }
                None if self.random.one_in(4) => {
                    self.counts.dead += 1;
                    bail!(LesseeDied);
                }
                None => {}
                Some(_) => self.undecided(&ended).await?,
            }
        }
        bail!(
            "{}: {} has not decided in {MAX_ATTEMPTS} runs",
            self.name,
            verb.line
        )
    }

    /// Cleans entries for a short time, mostly with a fault. The command may fail.
    pub(super) async fn clean(&mut self) -> Result<()> {
        let plan = self.plan();
        self.clean_with_fault(plan).await
    }

    async fn clean_with_fault(&mut self, plan: Option<FaultPlan>) -> Result<()> {
        let ended = self.run(CLEAN_OR_FAIL, "", "", plan).await?;
        self.counts.cleaned += u64::try_from(ended.stdout.lines().count())?;
        match ended.code {
            None | Some(0 | 1) => Ok(()),
            Some(_) => self.undecided(&ended).await,
        }
    }

    /// Cleans all entries that must be cleaned, also one that a lessee cordoned before it died.
    pub(super) async fn clean_all(&mut self) -> Result<()> {
        self.succeed(UNCORDON).await?;
        for _ in 0..MAX_ATTEMPTS {
            let status = self.run(STATUS, "", "", None).await?;
            let Ok(answer) = status.answer() else {
                self.undecided(&status).await?;
                continue;
            };
            let entries = answer.get("entries").and_then(Value::as_array);
            let entries = entries.with_context(|| format!("no entries: {status}"))?;
            if entries.iter().all(|entry| entry["state"] != "cleaning") {
                return Ok(());
            }
            self.clean_with_fault(None).await?;
        }
        bail!("entries still wait for cleaning")
    }

    /// Repeats a command without a fault until it succeeds.
    pub(super) async fn succeed(&mut self, verb: Verb) -> Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let ended = self.run(verb, "", "", None).await?;
            match ended.code {
                Some(0) => return Ok(()),
                Some(2) => self.undecided(&ended).await?,
                _ => bail!("{ended}"),
            }
        }
        bail!("{} has not succeeded in {MAX_ATTEMPTS} runs", verb.line)
    }

    pub(super) async fn run(
        &mut self,
        verb: Verb,
        ttl: &str,
        id: &str,
        plan: Option<FaultPlan>,
    ) -> Result<CommandOutput> {
        let call = Call {
            ttl,
            id,
            ahead: self.ahead,
            ..Call::new(verb, &self.name)
        };
        let ended = self.pool.call(call, plan).await?;
        self.counts.commands += 1;
        self.counts.shifted += u64::from(!self.ahead.is_zero());
        if ended.was_killed() {
            self.counts.killed += 1;
        }
        match plan
            .filter(|_| ended.traffic.faulted.is_some())
            .map(|plan| plan.fault)
        {
            Some(Fault::AnswerCut) => self.counts.cut += 1,
            Some(Fault::GatewayTimeout) => self.counts.timed_out += 1,
            Some(Fault::KilledBeforeWrite | Fault::KilledBeforeAnswer) | None => {}
        }
        if verb.effect == Effect::Leases && ended.code == Some(0) {
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

impl Lease {
    fn of(output: &CommandOutput) -> Result<Self> {
        Ok(Self {
            entry: output.customization()?,
            id: output.text("/leaseId")?,
            ends: output.time("/ends")?,
        })
    }

    fn may_have_ended(&self) -> bool {
        self.ends <= Timestamp::now()
    }
}
