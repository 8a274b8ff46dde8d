//! Each fault at each write of each command, and then the same command again, or a repair.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use kcp_tests::pools::claim::EventKind;
use kcp_tests::pools::fault::{FAULTS, FaultPlan};
use kcp_tests::pools::pool::Pool;
use kcp_tests::pools::server::PoolServer;
use kcp_tests::pools::verb::{CLEAN, CREATE, Effect, LEASE, RECREATE, RELEASE, RENEW, REPAIR, Verb};
use serde_json::{Value, json};

use crate::shared::with_pools;

/// More concurrent cases only wait for each other.
const AT_ONCE: usize = 6;

/// How long a command waits until an Event is written (`plugin/client/src/events.rs`).
const EVENT_LIMIT: Duration = Duration::from_secs(5);

/// A lessee that keeps its entry throughout, and gets no second one.
const BYSTANDER: &str = "bystander";

/// A command and the state before it.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    verb: Verb,
    before: Before,
}

/// The state before the command, besides one entry that is free or the lessee's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The lessee has an entry.
    Leased,
    /// The lessee has an entry, and its cluster is being deleted.
    ClusterDeleted,
    /// The lessee has an entry, and its cluster no longer exists.
    ClusterLost,
    /// The lessee has released an entry, which must be cleaned.
    Dirty,
    /// Everything that repair can repair.
    EveryProblem,
}

const ROWS: [Row; 9] = [
    Row {
        name: "lease",
        verb: LEASE,
        before: Before::Nothing,
    },
    Row {
        name: "again",
        verb: LEASE,
        before: Before::Leased,
    },
    Row {
        name: "renew",
        verb: RENEW,
        before: Before::Leased,
    },
    Row {
        name: "create",
        verb: CREATE,
        before: Before::Nothing,
    },
    Row {
        name: "release",
        verb: RELEASE,
        before: Before::Leased,
    },
    Row {
        name: "release-cluster",
        verb: RELEASE,
        before: Before::ClusterDeleted,
    },
    Row {
        name: "recreate",
        verb: RECREATE,
        before: Before::ClusterLost,
    },
    Row {
        name: "clean",
        verb: CLEAN,
        before: Before::Dirty,
    },
    Row {
        name: "repair",
        verb: REPAIR,
        before: Before::EveryProblem,
    },
];

#[test]
#[ignore = "takes minutes: make test-long"]
fn no_fault_at_any_write_loses_an_entry_or_leases_it_twice() {
    // The other test repeats a repair.
    let rows = ROWS
        .iter()
        .filter(|row| row.before != Before::EveryProblem)
        .copied();
    let rows: Vec<_> = rows.collect();
    with_pools(async |server| {
        at_every_write(server, "again", &rows, async |row, case, plan| {
            case.run_with_fault(row, plan).await?;
            case.command_again(row).await
        })
        .await
        .unwrap();
    });
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn repair_leaves_nothing_behind_after_a_fault_at_any_write() {
    // Repair does not free an entry that must be cleaned.
    let rows: Vec<_> = ROWS
        .iter()
        .filter(|row| row.before != Before::Dirty)
        .copied()
        .collect();
    with_pools(async |server| {
        at_every_write(server, "mend", &rows, async |row, case, plan| {
            case.run_with_fault(row, plan).await?;
            case.remove_lessee_and_repair(row).await
        })
        .await
        .unwrap();
    });
}

/// Each case has its own namespace, which starts with `test`.
async fn at_every_write(
    server: &PoolServer,
    test: &str,
    rows: &[Row],
    run: impl AsyncFn(&Row, Case<'_>, FaultPlan) -> Result<()>,
) -> Result<()> {
    let mut plans = Vec::new();
    for row in rows {
        let writes = writes(server, &format!("{test}-{}", row.name), row).await?;
        ensure!(writes > 0, "{} writes nothing", row.name);
        let faults = FAULTS
            .iter()
            .flat_map(|fault| (1..=writes).map(|write| (write, *fault)));
        plans.extend(faults.map(|(write, fault)| (row, FaultPlan { write, fault })));
    }
    let run = &run;
    let cases = stream::iter(plans).map(async |(row, plan)| {
        let FaultPlan { write, fault } = plan;
        let namespace = format!("{test}-{}-{fault:?}-{write}", row.name).to_lowercase();
        let case = Case::prepare(server, &namespace, row.before).await?;
        run(row, case, plan).await.with_context(|| namespace.clone())
    });
    cases.buffer_unordered(AT_ONCE).try_collect().await
}

/// The number of a command's writes without a fault.
async fn writes(server: &PoolServer, namespace: &str, row: &Row) -> Result<usize> {
    let case = Case::prepare(server, namespace, row.before).await?;
    let ended = case.pool.succeed(&row.verb, &case.lessee).await?;
    Ok(ended.traffic.forwarded.len())
}

/// A pool and the lessee of the command under test.
struct Case<'s> {
    pool: Pool<'s>,
    lessee: String,
    living: BTreeSet<String>,
}

impl<'s> Case<'s> {
    async fn prepare(server: &'s PoolServer, namespace: &str, before: Before) -> Result<Self> {
        let entries = if before == Before::EveryProblem { 6 } else { 2 };
        let pool = Pool::create(server, namespace, entries).await?;
        let lessee = format!("{namespace}-lessee");
        pool.succeed(&LEASE, BYSTANDER).await?;
        let mut living = BTreeSet::from([BYSTANDER.to_owned()]);
        match before {
            Before::Nothing => {}
            Before::Leased => {
                pool.succeed(&LEASE, &lessee).await?;
            }
            Before::ClusterDeleted => {
                pool.succeed(&CREATE, &lessee).await?;
                pool.delete_cluster(&lessee).await?;
            }
            Before::ClusterLost => {
                pool.succeed(&CREATE, &lessee).await?;
                pool.lose_cluster(&lessee).await?;
            }
            Before::Dirty => {
                pool.ask_for_cleaning().await?;
                pool.succeed(&LEASE, &lessee).await?;
                pool.succeed(&RELEASE, &lessee).await?;
            }
            Before::EveryProblem => living.extend(create_every_problem(&pool).await?),
        }
        Ok(Self { pool, lessee, living })
    }

    /// Runs the command with its fault.
    async fn run_with_fault(&self, row: &Row, plan: FaultPlan) -> Result<()> {
        let started = Instant::now();
        let ended = self.pool.run(&row.verb, &self.lessee, Some(plan)).await?;
        let took = started.elapsed();
        // On a slow machine, the command whose writes were counted may have repeated one.
        let faulted = ended.traffic.faulted.as_deref();
        ensure!(
            faulted.is_some() || ended.traffic.forwarded.len() < plan.write,
            "the fault was not injected into {ended}"
        );
        // On a slow machine, a command can give an Event up before it is killed.
        let has_ended = faulted.is_some_and(|path| path.ends_with("/events"))
            && took >= EVENT_LIMIT
            && !ended.was_killed();
        let expected = if faulted.is_some() && plan.fault.kills() && !has_ended {
            None
        } else {
            Some(0)
        };
        ensure!(ended.code == expected, "{ended}");
        Ok(())
    }

    async fn command_again(mut self, row: &Row) -> Result<()> {
        let pool = &self.pool;
        pool.succeed(&row.verb, &self.lessee).await?;
        // A third lessee gets the free entry, if there is one.
        let third = pool.run(&LEASE, "third", None).await?;
        let (expected, who) = match row.verb.effect {
            Effect::Leases | Effect::Renews | Effect::Keeps => (1, self.lessee.clone()),
            Effect::Releases | Effect::Repairs | Effect::Cleans => (0, "third".to_owned()),
        };
        ensure!(third.code == Some(expected), "{third}");
        self.living.insert(who);
        if row.before == Before::ClusterLost {
            let has_cluster = pool.cluster(&self.lessee).await?.is_some();
            ensure!(has_cluster, "{} has no cluster", self.lessee);
        }
        if row.before == Before::ClusterDeleted {
            // Repair deletes the other objects of a cluster, or its namespace does.
            pool.repair().await?;
        }
        self.pool.check_history(&self.living).await?.ensure_clean()
    }

    /// The lessee never returns. Repair frees its entry once its cluster no longer exists.
    async fn remove_lessee_and_repair(self, row: &Row) -> Result<()> {
        let (pool, lessee) = (&self.pool, self.lessee.as_str());
        if matches!(row.verb.effect, Effect::Leases | Effect::Renews | Effect::Keeps)
            && let Some(cluster) = pool.cluster(lessee).await?
        {
            let customization = "/spec/clusterPoolRef/clusterDeploymentCustomization/name";
            let customization = cluster.pointer(customization).and_then(Value::as_str);
            let customization = customization.context("a cluster without a customization")?;
            let leased = EventKind::Leased {
                entry: customization.to_owned(),
                ends: Timestamp::MAX,
            };
            pool.log_event(lessee, leased).await?;
            pool.end_leases(|holder| holder == lessee).await?;
            pool.repair().await?;
            pool.delete_cluster(lessee).await?;
        }
        pool.remove_lessee(lessee).await?;
        pool.repair().await?;
        ensure!(
            pool.cluster(lessee).await?.is_none(),
            "the cluster of {lessee} is left"
        );
        self.pool.check_history(&self.living).await?.ensure_clean()
    }
}

/// Creates each problem that repair can repair. Returns the lessees that live.
async fn create_every_problem(pool: &Pool<'_>) -> Result<[String; 2]> {
    let of_pool = |name: &str| format!("{}-{name}", pool.namespace());
    // Its lease has expired.
    pool.succeed(&LEASE, "expired").await?;
    pool.remove_lessee("expired").await?;
    // Its cluster is deleted, but an entry, a finalizer and a copy remain.
    let taken_down = of_pool("taken-down");
    pool.succeed(&CREATE, &taken_down).await?;
    pool.delete_cluster(&taken_down).await?;
    pool.remove_lessee(&taken_down).await?;
    // Its cluster lives, but the cluster's entry is marked available.
    let robbed = of_pool("robbed");
    let entry = pool.succeed(&CREATE, &robbed).await?.customization()?;
    pool.log_event(&robbed, EventKind::Releases).await?;
    let available = json!({
        "type": "Available", "status": "True", "reason": "Available", "message": "available",
        "lastTransitionTime": "2026-11-21T05:00:00Z",
    });
    let available = json!({
        "conditions": [available], "clusterDeploymentRef": Value::Null, "clusterPoolRef": Value::Null,
    });
    pool.write_status(&entry, &available).await?;
    // Its cluster was created after its lease, and no command has seen the cluster yet.
    let unseen = of_pool("unseen");
    pool.succeed(&LEASE, &unseen).await?;
    pool.create_cluster(&unseen, None).await?;
    // Its cluster is gone, and nothing has seen that yet.
    let lost = of_pool("lost");
    pool.succeed(&CREATE, &lost).await?;
    pool.lose_cluster(&lost).await?;
    pool.remove_lessee(&lost).await?;
    Ok([robbed, unseen])
}
