//! The processes of a schedule: lessees, janitors and repairs.

use std::{rc::Rc, time::Duration};

use jiff::SignedDuration;
use serde_json::json;

use super::{
    Client, World,
    ledger::{Cleans, Told},
    scheduler::yield_now,
};
use crate::{
    acquire::{
        LeaseRequest, Selection,
        answer::{LeaseOutcome, LeaseRefusal, LeaseResult},
        turn::QueuedLessee,
        wait::{Progress, Turn as _},
    },
    cleaning::{Cleaner, CommandEnd, JanitorId, Next, after_command, finish, take},
    cordon::set_cordon,
    hive::{Hive, HiveMode, Presence},
    lease::{
        LeaseError, Ttl,
        attempt::{AttemptOutcome, AttemptRequest, LeasedEntry, attempt},
        queue::Place,
        renewal::{Heartbeat, LeaseName, RenewedLease, renew},
        reuse::Reuse,
        rule::DEFAULT_GRACE,
    },
    objects::{ClusterName, Holder, PoolName},
    release::{
        decision::{ReleaseRequest, ReleaseTarget},
        leave_queue, release_entries,
    },
    repair::{apply::apply, decision::findings, options::RepairOptions},
    snapshot::Snapshot,
    store::LeaseStore as _,
    testing::objects::{asking, cluster, pool_object, read},
};

const POOL: &str = "pool";

/// How a lessee ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    ReleaseById,
    ReleaseByName,
    /// The lessee does nothing, so its lease ends at its deadline.
    Nothing,
}

/// What a lessee does.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
struct Plan {
    holder: &'static str,
    count: usize,
    /// How long its leases last, in seconds.
    ttl: u64,
    /// Whether it runs a command, and renews its lease meanwhile, as `pool exec` does.
    is_exec: bool,
    waits: bool,
    has_cluster: bool,
    /// For how long it uses its entries, in seconds.
    hold: u64,
    end: End,
    /// Whether it is the only process under its name, so that it has no more entries than it wants.
    is_alone: bool,
}

struct Silent;

impl Progress for Silent {
    fn waiting(&self, _: &str) {}

    fn pausing(&self, _: bool) {}

    fn queued(&self, _: &str) {}
}

/// Starts the processes of a schedule.
pub(super) fn start(world: &Rc<World>) {
    let decisions = &world.decisions;
    let lessees = 2 + decisions.choose(3);
    let mut plans: Vec<Plan> = (0..lessees).map(|_| plan(world)).collect();
    let holders: Vec<_> = plans.iter().map(|plan| plan.holder).collect();
    for plan in &mut plans {
        plan.is_alone = holders.iter().filter(|holder| **holder == plan.holder).count() == 1;
        if plan.is_alone {
            let mut ledger = world.ledger.borrow_mut();
            ledger.wanted.insert(plan.holder.to_owned(), plan.count);
        }
    }
    for plan in plans {
        let client = Client::new(world, next_number(world));
        spawn(world, &client, lessee(Rc::clone(&client), plan));
    }
    let janitors = if world.reuse == Reuse::Clean {
        1 + decisions.choose(2)
    } else {
        0
    };
    for _ in 0..janitors {
        let client = Client::new(world, next_number(world));
        spawn(world, &client, janitor(Rc::clone(&client), 4));
    }
    if decisions.one_in(4) {
        let client = Client::new(world, next_number(world));
        spawn(world, &client, repairer(Rc::clone(&client)));
    }
    if !world.do_servers_disagree && decisions.one_in(3) {
        let moved = Rc::clone(world);
        world.scheduler.spawn(async move {
            tokio::time::sleep(Duration::from_millis(moved.decisions.pick(&[40, 3_000, 9_000]))).await;
            let ahead = moved.decisions.pick(&[0, super::MAX_APART]);
            moved.note(|| format!("an API server's clock is now {ahead} ms ahead"));
            moved.ahead[moved.decisions.choose(2)].set(ahead);
            moved.count_fault();
        });
    }
}

fn next_number(world: &World) -> usize {
    world.processes.set(world.processes.get() + 1);
    world.processes.get()
}

/// Spawns a process, which may be killed wherever it waits.
fn spawn(world: &Rc<World>, client: &Rc<Client>, process: impl Future<Output = ()> + 'static) {
    let decisions = &world.decisions;
    if !decisions.one_in(4) {
        world.scheduler.spawn(process);
        return;
    }
    let polls = decisions.choose(12) * decisions.pick(&[1, 3]);
    let client = Rc::clone(client);
    world.scheduler.spawn_mortal(process, polls, move || {
        let world = &client.world;
        world.note(|| format!("{} is killed", client.number));
        world.count_fault();
        let mut ledger = world.ledger.borrow_mut();
        ledger.untell(client.number);
        ledger.stops_cleaning_by(client.number);
    });
}

fn plan(world: &World) -> Plan {
    let decisions = &world.decisions;
    let count = if world.names.len() > 1 {
        decisions.pick(&[1, 1, 2])
    } else {
        1
    };
    let is_exec = count == 1 && decisions.one_in(2);
    Plan {
        holder: if count == 1 {
            decisions.pick(&["p", "q", "r"])
        } else {
            decisions.pick(&["m", "n"])
        },
        count,
        ttl: decisions.pick(&[3, 9, 15]),
        is_exec,
        waits: decisions.one_in(2),
        has_cluster: count == 1 && !is_exec && decisions.one_in(4),
        hold: decisions.pick(&[0, 1, 4, 12]),
        end: decisions.pick(&[
            End::ReleaseById,
            End::ReleaseById,
            End::ReleaseByName,
            End::Nothing,
        ]),
        is_alone: false,
    }
}

async fn lessee(client: Rc<Client>, plan: Plan) {
    let world = &client.world;
    world.note(|| format!("{} is {plan:?}", client.number));
    world.pause(world.delay()).await;
    let holder = Holder {
        pool: POOL,
        cluster_deployment: plan.holder,
    };
    let request = LeaseRequest {
        holder,
        count: plan.count,
        ttl: None,
        cluster: None,
        install_config: None,
        must_be_new: plan.is_exec,
        selection: Selection::default(),
        hive: HiveMode::Absent,
        overtaken: &[],
    };
    let mut turn = QueuedLessee::new(&client, request, true);
    let mut overtaken = Vec::new();
    let mut was_in_doubt = false;
    for _ in 0..4 {
        let begun = world.served.get();
        match lease(&client, plan, &overtaken).await {
            Err(error) => {
                world.note(|| format!("{}: {}", client.number, error.full_message()));
                was_in_doubt |= matches!(error, LeaseError::InDoubt { .. });
                check_all_or_none(&client, plan, was_in_doubt);
                world.pause(Duration::from_secs(1)).await;
            }
            Ok(attempted) => {
                world.note(|| format!("{}: {:?}", client.number, attempted.outcome));
                let leased = attempted.outcome.leased();
                if !leased.is_empty() {
                    use_leases(&client, plan, leased, begun).await;
                    return;
                }
                check_all_or_none(&client, plan, was_in_doubt);
                let AttemptOutcome::Exhausted(entries) = attempted.outcome else {
                    return;
                };
                if !plan.waits {
                    return;
                }
                let refusal = LeaseRefusal::Exhausted {
                    pool: PoolName::new("d", POOL),
                    entries,
                    count: plan.count,
                };
                let refused = LeaseResult {
                    others: attempted.others,
                    ..LeaseResult::new("d", holder, LeaseOutcome::Refused(refusal))
                };
                let limit = Duration::from_secs(9);
                overtaken = turn.wait(&refused, limit, &Silent).await.unwrap_or_default();
            }
        }
    }
    turn.leave(true).await;
}

async fn lease(
    client: &Rc<Client>,
    plan: Plan,
    overtaken: &[Place],
) -> Result<crate::lease::attempt::Attempt, LeaseError> {
    let clusters = client.clusters().await?;
    let name = ClusterName::new(plan.holder, plan.holder);
    let request = AttemptRequest {
        names: client.world.names,
        unselected: &[],
        clusters: &clusters,
        holder: Holder {
            pool: POOL,
            cluster_deployment: plan.holder,
        },
        count: plan.count,
        ttl: Some(Ttl::For(Duration::from_secs(plan.ttl))),
        cluster: plan.has_cluster.then_some(&name),
        user: None,
        install_config: None,
        must_be_new: plan.is_exec,
        only_entry: None,
        overtaken,
        reuse: client.world.reuse,
    };
    attempt(client, request).await
}

/// A lessee that is alone and knows the outcome of its writes has no entry after a refusal.
fn check_all_or_none(client: &Client, plan: Plan, was_in_doubt: bool) {
    let held = client.world.server.held_by(plan.holder);
    if plan.is_alone && !was_in_doubt && !held.is_empty() {
        let why = format!("{} has no lease, and has {held:?}", plan.holder);
        client.world.ledger.borrow_mut().fail(why);
    }
}

async fn use_leases(client: &Rc<Client>, plan: Plan, leased: &[LeasedEntry], begun: u64) {
    let world = &client.world;
    for leased in leased {
        let told = Told {
            client: Rc::clone(client),
            holder: plan.holder.to_owned(),
            entry: leased.customization.clone(),
            id: leased.record.id.clone(),
            ends: leased.record.deadline.unwrap(),
            is_renewed: plan.is_exec,
            begun,
        };
        world.ledger.borrow_mut().tell(told, plan.is_exec);
    }
    let hold = Duration::from_secs(plan.hold);
    match leased {
        [only] if plan.is_exec => run_command(client, plan, only, hold).await,
        _ if plan.has_cluster => with_cluster(client, plan, leased, hold).await,
        _ => {
            if world.decisions.one_in(3) {
                renew_all(client, plan, leased).await;
            }
            world.pause(hold).await;
        }
    }
    world.ledger.borrow_mut().untell(client.number);
    if plan.is_exec || plan.end == End::ReleaseById {
        for leased in leased {
            let target = ReleaseTarget::Customization(leased.customization.clone());
            release(client, plan, &target, Some(&leased.record.id)).await;
        }
    } else if plan.end == End::ReleaseByName {
        release(client, plan, &ReleaseTarget::Pool(POOL.to_owned()), None).await;
    }
}

/// Runs a command under a lease, as `pool exec` does.
async fn run_command(client: &Rc<Client>, plan: Plan, leased: &LeasedEntry, hold: Duration) {
    let renewed = RenewedLease {
        store: client,
        customization: &leased.customization,
        lease: LeaseName {
            holder: Holder {
                pool: POOL,
                cluster_deployment: plan.holder,
            },
            id: Some(&leased.record.id),
        },
        heartbeat: Heartbeat {
            ttl: Duration::from_secs(plan.ttl),
        },
    };
    tokio::select! {
        biased;
        why = renewed.wait_until_lost(leased.record.deadline.unwrap(), |_| {}) => {
            client.world.note(|| format!("{} has lost its lease: {why}", client.number));
        }
        () = tokio::time::sleep(hold) => {}
    }
}

/// Renews leases once, as `pool renew` does.
async fn renew_all(client: &Rc<Client>, plan: Plan, leased: &[LeasedEntry]) {
    for leased in leased {
        let name = LeaseName {
            holder: Holder {
                pool: POOL,
                cluster_deployment: plan.holder,
            },
            id: Some(&leased.record.id),
        };
        let ttl = Ttl::For(Duration::from_secs(plan.ttl));
        let Ok(Some(record)) = renew(client, &leased.customization, name, ttl).await else {
            continue;
        };
        let mut ledger = client.world.ledger.borrow_mut();
        let mut told = ledger.told.iter_mut();
        if let Some(told) = told.find(|told| told.client.number == client.number && told.id == record.id) {
            told.ends = record.deadline.unwrap();
        }
    }
}

/// Creates the cluster of a lease, which admission allows while the entry is the holder's, and deletes it at the end.
async fn with_cluster(client: &Rc<Client>, plan: Plan, leased: &[LeasedEntry], hold: Duration) {
    let (entry, id) = (leased[0].customization.clone(), leased[0].record.id.clone());
    let created = client
        .send(
            true,
            || format!("create cluster {}", plan.holder),
            move |world| {
                let mut object = cluster(plan.holder, POOL, Some(&entry));
                object["metadata"]["uid"] = format!("uid-of-{id}").into();
                let is_held = world.server.holder(&entry).as_deref() == Some(plan.holder);
                let is_new = !(world.server.stored_clusters().iter())
                    .any(|found| kcp_api::metadata::Object::name(found) == plan.holder);
                if is_held && is_new {
                    world.server.put_cluster(object);
                }
            },
        )
        .await;
    client.world.note(|| format!("created: {}", created.is_ok()));
    client.world.pause(hold).await;
    if plan.end != End::Nothing {
        for _ in 0..3 {
            let deleted = client.send(
                true,
                || "delete cluster".to_owned(),
                move |world| world.server.delete_cluster(plan.holder),
            );
            if deleted.await.is_ok() {
                return;
            }
        }
    }
}

async fn release(client: &Rc<Client>, plan: Plan, target: &ReleaseTarget, id: Option<&str>) {
    let holder = Holder {
        pool: POOL,
        cluster_deployment: plan.holder,
    };
    leave_queue(client, holder).await;
    let request = ReleaseRequest {
        target,
        cluster_deployment: plan.holder,
        id,
        force: false,
        delete_cluster: false,
        hive: HiveMode::Absent,
    };
    client.releases.set(true);
    for _ in 0..3 {
        let released = release_entries(client, &request).await;
        client
            .world
            .note(|| format!("{} releases {released:?}", client.number));
        match released {
            Ok(released) => {
                if let Some(id) = id.filter(|_| released.in_use.is_empty()) {
                    client.world.ledger.borrow_mut().released(id);
                    check_released(client, id);
                }
                break;
            }
            Err(_) => client.world.pause(Duration::from_millis(500)).await,
        }
    }
    client.releases.set(false);
}

fn check_released(client: &Client, id: &str) {
    for name in client.world.names {
        let entry = client.world.server.entry(name);
        if let crate::objects::entry::Reservation::Leased(record) = entry.status.reservation()
            && record.id == id
        {
            let why = format!("{name} still has lease {id}, which was released");
            client.world.ledger.borrow_mut().fail(why);
        }
    }
}

/// Cleans entries, as `pool exec --clean` does.
async fn janitor(client: Rc<Client>, looks: usize) {
    let world = &client.world;
    let object = asking(pool_object(POOL, &json!({"inventory": []})), "true");
    let pool = read(&object);
    let cleaner = Cleaner {
        pool: &pool,
        only: None,
        ttl: Duration::from_secs(world.decisions.pick(&[3, 12])),
    };
    for _ in 0..looks {
        if clean_one(&client, cleaner).await.is_none() {
            world
                .pause(Duration::from_secs(if world.is_calm.get() { 1 } else { 4 }))
                .await;
        }
    }
}

/// Cleans one entry. Returns `None` if there was nothing to clean.
async fn clean_one(client: &Rc<Client>, cleaner: Cleaner<'_>) -> Option<()> {
    let world = &client.world;
    let entries = client.list().await.ok()?;
    if matches!(cleaner.next(&entries, None, client.now()), Next::Nothing(_)) {
        return None;
    }
    let clusters = client.clusters().await.ok()?;
    let Next::Take(entry, record) = cleaner.next(&entries, Some(&clusters), client.now()) else {
        return None;
    };
    let janitor = record.janitor.clone()?;
    let name = kcp_api::metadata::Object::name(entry);
    if !take(client, entry, &record).await.ok()? {
        return None;
    }
    let id = JanitorId(&janitor.id);
    let cleans = Cleans {
        process: client.number,
        entry: name.to_owned(),
        id: janitor.id.clone(),
    };
    world.ledger.borrow_mut().cleans(cleans);
    let renewed = RenewedLease {
        store: client,
        customization: name,
        lease: id,
        heartbeat: Heartbeat { ttl: cleaner.ttl },
    };
    let is_calm = world.is_calm.get();
    let work = Duration::from_secs(if is_calm {
        0
    } else {
        world.decisions.pick(&[0, 2, 10])
    });
    let code = if is_calm {
        0
    } else {
        world.decisions.pick(&[0, 0, 0, 7])
    };
    let has_ended = tokio::select! {
        biased;
        why = renewed.wait_until_lost(janitor.deadline, |_| {}) => {
            world.note(|| format!("{} has lost {name}: {why}", client.number));
            false
        }
        () = tokio::time::sleep(work) => true,
    };
    world
        .ledger
        .borrow_mut()
        .stops_cleaning(&janitor.id, has_ended && code == 0);
    if has_ended {
        for _ in 0..3 {
            let decide = |record: &_| after_command(record, CommandEnd::Exited(code), 2);
            let finished = finish(client, name, id, decide).await;
            world.note(|| format!("{} finishes {name}: {finished:?}", client.number));
            if finished.is_ok() {
                break;
            }
        }
    }
    Some(())
}

/// Repairs what is wrong without doubt, as `pool repair --yes` does.
async fn repairer(client: Rc<Client>) {
    let world = &client.world;
    world.pause(world.delay()).await;
    for _ in 0..2 {
        if repair(&client).await.is_none() {
            world.note(|| format!("{} repairs nothing", client.number));
        }
        world.pause(Duration::from_secs(7)).await;
    }
}

async fn repair(client: &Rc<Client>) -> Option<()> {
    let world = &client.world;
    let entries = client.list().await.ok()?;
    let clusters = client.clusters().await.ok()?;
    let names: Vec<_> = world.names.iter().map(|name| json!({ "name": name })).collect();
    let mut pool = pool_object(POOL, &json!({ "inventory": names }));
    if world.reuse == Reuse::Clean {
        pool = asking(pool, "true");
    }
    let now = clusters.time_of_check(client.now());
    let mut snapshot = Snapshot {
        namespace: "d".to_owned(),
        pools: vec![read(&pool)],
        has_all_pools: true,
        entries,
        clusters,
        copies: Vec::new(),
        claims: None,
        old_records: Vec::new(),
        queues: None,
        hive: Hive {
            config: Presence::Absent,
            ..Hive::UNKNOWN
        },
        drops_inventory: None,
        applied_inventories: std::collections::BTreeMap::new(),
        secrets: std::collections::BTreeMap::new(),
        now,
        unread_kinds: Vec::new(),
    };
    let options = RepairOptions {
        pool: None,
        grace: DEFAULT_GRACE,
        forced: &[],
        recreate: false,
    };
    for finding in findings(&snapshot, &options) {
        if finding.remedy.is_safe() {
            let applied = apply(client, &mut snapshot, &options, &finding).await;
            world.note(|| format!("{} repairs {finding:?}: {applied:?}", client.number));
        }
    }
    Some(())
}

/// After all processes have ended: nothing is stuck. The places in the queue end, and all entries become free.
pub(super) async fn finale(world: &Rc<World>) -> Result<(), String> {
    world.note(|| "the end".to_owned());
    world.weather.set(0);
    world.is_calm.set(true);
    world.ahead[0].set(0);
    world.ahead[1].set(0);
    for holder in ["p", "q", "r", "m", "n"] {
        world.server.delete_cluster(holder);
    }
    let last = Rc::clone(world);
    world.scheduler.spawn(async move {
        if let Err(why) = last_lessee(&last).await {
            last.ledger.borrow_mut().fail(why);
        }
    });
    let check = || world.check();
    world.scheduler.run(&world.decisions, check).await
}

async fn last_lessee(world: &Rc<World>) -> Result<(), String> {
    let client = Client::new(world, 0);
    // The time of a place in a short queue (90 s), the difference of the clocks (100 s), whole seconds, and the slowest request and its
    // answer (24 s), which a lessee adds to the latest possible time.
    tokio::time::sleep(Duration::from_secs(216)).await;
    let queue = client.queue(POOL).await.map_err(|error| error.to_string())?;
    let waiting = queue.waiting(POOL, &[], client.now());
    if !waiting.is_empty() {
        return Err(format!("nobody runs, and {waiting:?} wait"));
    }
    let plan = Plan {
        holder: "last",
        count: world.names.len(),
        ttl: 60,
        is_exec: false,
        waits: false,
        has_cluster: false,
        hold: 0,
        end: End::Nothing,
        is_alone: true,
    };
    // A lease that had a cluster ends with the second check, after the time of grace.
    for _ in 0..3 {
        let attempted = lease(&client, plan, &[])
            .await
            .map_err(|error| error.to_string())?;
        if attempted.outcome.leased().len() == plan.count {
            return Ok(());
        }
        world.note(|| format!("last: {:?}", attempted.outcome));
        for name in world.names {
            let uncordoned = set_cordon(&client, name, None).await;
            uncordoned.map_err(|error| error.to_string())?;
        }
        let grace = Duration::try_from(DEFAULT_GRACE + SignedDuration::from_secs(10)).unwrap();
        tokio::time::sleep(grace).await;
        janitor(Rc::clone(&client), 4).await;
        yield_now().await;
    }
    Err("not all entries become free".to_owned())
}
