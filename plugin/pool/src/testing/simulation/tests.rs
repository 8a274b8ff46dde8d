//! Short and long simulations. A failure says the seed, which replays it:
//! `SEED=7 RUNS=1 cargo test -p kcp-pool --lib -- --ignored --nocapture many_schedules`.

use std::{
    collections::HashSet,
    env,
    hash::{BuildHasherDefault, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Schedule, simulate};

/// Hashes are hashed already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The hashes of all schedules so far. It is exact for hashes: 10^7 take about 200 MB.
type Seen = HashSet<u64, BuildHasherDefault<Identity>>;

/// Replays a schedule with its log.
fn explain(seed: u64) -> String {
    match catch_unwind(AssertUnwindSafe(|| simulate(seed, true))) {
        Ok(Err((why, log))) => format!("{}\nSEED={seed}: {why}", log.join("\n")),
        Ok(Ok(_)) => format!("SEED={seed} fails only sometimes"),
        Err(_) => format!("SEED={seed} panics"),
    }
}

fn run(seed: u64) -> Result<Schedule, String> {
    match catch_unwind(AssertUnwindSafe(|| simulate(seed, false))) {
        Ok(Ok(schedule)) => Ok(schedule),
        Ok(Err(_)) | Err(_) => Err(explain(seed)),
    }
}

#[test]
fn leases_keep_their_promises_in_any_schedule() {
    for seed in 0..300 {
        run(seed).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn a_seed_is_one_schedule() {
    let hash = |seed| run(seed).unwrap().hash;
    let first: Vec<u64> = (0..10).map(hash).collect();
    let again: Vec<u64> = (0..10).map(hash).collect();
    assert_eq!(first, again);
}

#[derive(Debug, Default)]
struct Counts {
    schedules: AtomicU64,
    /// With two or more processes and a fault, and unlike all before.
    distinct: AtomicU64,
    faults: AtomicU64,
    steps: AtomicU64,
    leases: AtomicU64,
}

impl Counts {
    fn add(&self, schedule: &Schedule, seen: &Mutex<Seen>) {
        let add = |counter: &AtomicU64, number: usize| counter.fetch_add(number as u64, Ordering::Relaxed);
        add(&self.schedules, 1);
        add(&self.faults, schedule.faults);
        add(&self.leases, schedule.leases);
        self.steps.fetch_add(schedule.steps, Ordering::Relaxed);
        if schedule.processes > 1
            && schedule.faults > 0
            && seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(schedule.hash)
        {
            add(&self.distinct, 1);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the rate is rounded")]
    fn print(&self, begin: Instant) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{} schedules, {} distinct with a fault, {:.0} a second; {} faults, {} requests, {} leases",
            count(&self.schedules),
            count(&self.distinct),
            count(&self.schedules) as f64 / seconds,
            count(&self.faults),
            count(&self.steps),
            count(&self.leases),
        );
    }
}

fn variable(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// RUNS schedules from SEED on, in as many threads as there are processors.
#[test]
#[ignore = "takes as long as RUNS says"]
fn many_schedules() {
    let (runs, first) = (variable("RUNS", 10_000), variable("SEED", 0));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (next, begin) = (AtomicU64::new(first), Instant::now());
    let (counts, hashes, failed) = (
        Counts::default(),
        Mutex::new(Seen::default()),
        AtomicBool::new(false),
    );
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first.saturating_add(runs) {
                        break;
                    }
                    match run(seed) {
                        Ok(schedule) => counts.add(&schedule, &hashes),
                        Err(why) => {
                            failed.store(true, Ordering::Relaxed);
                            failure.lock().unwrap().get_or_insert((seed, why));
                        }
                    }
                    if (seed - first) % 100_000 == 99_999 {
                        counts.print(begin);
                    }
                }
            });
        }
    });
    counts.print(begin);
    if let Some((seed, why)) = failure.lock().unwrap().take() {
        panic!(
            "{why}\nfound after {} schedules from SEED={first} on: SEED={seed} RUNS=1",
            seed - first + 1
        );
    }
    assert!(begin.elapsed() > Duration::ZERO);
}
