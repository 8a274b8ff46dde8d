//! Deterministic simulation of the lease protocol: the code that leases, renews, releases, repairs and cleans entries runs against
//! the API server in memory, on one thread. A seed decides in which order processes and their requests go on, which requests are lost
//! or late, how the clocks differ, and where processes are killed.
//!
//! - [`scheduler`]: which task runs next; [`network`]: the requests of a process, their faults, and its clock
//! - [`processes`]: what lessees, janitors and repairs do; [`ledger`]: what must be true after each step

mod ledger;
mod network;
mod processes;
mod scheduler;
mod tests;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use self::{
    ledger::Ledger,
    network::Client,
    processes::{finale, start},
    scheduler::{Decisions, Scheduler, yield_now},
};
use crate::{
    lease::reuse::Reuse,
    objects::entry::Entry,
    testing::{
        fake::Fake,
        objects::{NOW, gone, in_use, lease, leased},
    },
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How far the clocks of the API servers are apart at most, in milliseconds: the promise of the model of leases.
const MAX_APART: u64 = 5_000;

/// How far they are apart in schedules in which they are wrong, in milliseconds: more than the slowest request takes.
const DISAGREEMENT: u64 = 100_000;

/// What a schedule was.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    hash: u64,
    processes: usize,
    faults: usize,
    steps: u64,
    leases: usize,
}

/// The server, and all that the seed decides.
struct World {
    server: Fake,
    scheduler: Scheduler,
    decisions: Decisions,
    ledger: RefCell<Ledger>,
    begin: Instant,
    names: &'static [&'static str],
    reuse: Reuse,
    /// One request in this number has a fault; none if it is zero.
    weather: Cell<usize>,
    /// Whether requests have no delays either.
    is_calm: Cell<bool>,
    /// What the clocks of the two API servers are ahead, in milliseconds.
    ahead: [Cell<u64>; 2],
    /// Whether they differ by more than the model of leases tolerates. Each process then notices it with its second response.
    do_servers_disagree: bool,
    faults: Cell<usize>,
    processes: Cell<usize>,
    /// The requests that the server has served.
    served: Cell<u64>,
    /// The entries as they were last read, and the version of the server then.
    parsed: RefCell<(u64, Vec<Entry>)>,
    log: Option<RefCell<Vec<String>>>,
}

impl World {
    fn new(seed: u64, is_logged: bool) -> Rc<Self> {
        let decisions = Decisions::new(seed);
        let names = &NAMES[..=decisions.choose(NAMES.len())];
        let reuse = decisions.pick(&[Reuse::Free, Reuse::Free, Reuse::Clean]);
        let offset = || Cell::new(decisions.pick(&[0, MAX_APART / 2, MAX_APART]));
        let mut ahead = [offset(), offset()];
        let do_servers_disagree = decisions.one_in(16);
        if do_servers_disagree {
            ahead = [0, DISAGREEMENT].map(Cell::new);
        }
        let weather = Cell::new(decisions.pick(&[0, 40, 12, 5]));
        let server = Fake::free(names);
        Rc::new(Self {
            server,
            scheduler: Scheduler::default(),
            decisions,
            ledger: RefCell::default(),
            begin: Instant::now(),
            names,
            reuse,
            weather,
            is_calm: Cell::new(false),
            ahead,
            do_servers_disagree,
            faults: Cell::new(0),
            processes: Cell::new(0),
            served: Cell::new(0),
            parsed: RefCell::default(),
            log: is_logged.then(RefCell::default),
        })
    }

    fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    fn note(&self, text: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            log.borrow_mut()
                .push(format!("{:>9.3} {}", self.elapsed().as_secs_f64(), text()));
        }
    }

    fn count_fault(&self) {
        self.faults.set(self.faults.get() + 1);
    }

    /// How long a request or its answer takes. Mostly, only the order of tasks matters.
    fn delay(&self) -> Duration {
        if self.is_calm.get() || self.decisions.choose(4) > 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(self.decisions.pick(&[15, 15, 400, 400, 2_000, 12_000]))
    }

    async fn pause(&self, time: Duration) {
        if time.is_zero() {
            yield_now().await;
        } else {
            tokio::time::sleep(time).await;
        }
    }

    fn serve<T>(&self, serve: impl FnOnce(&Self) -> T) -> T {
        self.served.set(self.served.get() + 1);
        serve(self)
    }

    /// The date in the response from either API server to a process with this number of earlier responses, with whole seconds.
    fn date(&self, responses: usize) -> Timestamp {
        let server = if self.do_servers_disagree && responses < 2 {
            responses
        } else {
            self.decisions.choose(2)
        };
        let ahead = self.ahead[server].get();
        let now = NOW.parse::<Timestamp>().unwrap() + self.elapsed() + Duration::from_millis(ahead);
        Timestamp::from_second(now.as_second()).unwrap()
    }

    /// What the clock shows that is ahead most.
    fn latest_server_time(&self) -> Timestamp {
        let ahead = self.ahead.iter().map(Cell::get).max().unwrap();
        NOW.parse::<Timestamp>().unwrap() + self.elapsed() + Duration::from_millis(ahead)
    }

    fn entries(&self) -> Vec<Entry> {
        let version = self.server.version();
        let mut parsed = self.parsed.borrow_mut();
        if parsed.0 != version {
            *parsed = (
                version,
                self.names.iter().map(|name| self.server.entry(name)).collect(),
            );
        }
        parsed.1.clone()
    }

    /// Leases of processes that no longer run, which end soon or have ended.
    fn prepare(&self) {
        for name in self.names {
            let seconds = self.decisions.pick(&[-60, 3, 8]);
            let end =
                (NOW.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds)).to_string();
            let mut record = lease("z", Some(&end));
            record.id = format!("old-{name}");
            record.cluster = None;
            let record = match self.decisions.choose(8) {
                0 => record,
                1 => gone("z", &end),
                2 => in_use("z", &end, "uid-of-z"),
                _ => continue,
            };
            self.server.put(name, &leased(&record)["status"]);
            self.ledger.borrow_mut().used(name, &record.holder);
        }
        if self.decisions.one_in(2) {
            *self.server.queue.borrow_mut() = json!({"annotations": {}, "resourceVersion": "1"});
        }
    }

    fn check(&self) -> Result<(), String> {
        self.ledger.borrow_mut().check(self)
    }
}

/// Runs the schedule of a seed. On failure, returns what was wrong, and the log if there is one.
fn simulate(seed: u64, is_logged: bool) -> Result<Schedule, (String, Vec<String>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new(seed, is_logged);
        world.prepare();
        start(&world);
        let check = || world.check();
        let mut ran = world.scheduler.run(&world.decisions, check).await;
        let (hash, steps) = (world.decisions.hash(), world.served.get());
        if ran.is_ok() {
            ran = finale(&world).await;
        }
        let log = || world.log.as_ref().map(RefCell::take).unwrap_or_default();
        ran.map_err(|why| (why, log()))?;
        if is_logged {
            for line in log() {
                println!("{line}");
            }
        }
        Ok(Schedule {
            hash,
            processes: world.processes.get(),
            faults: world.faults.get(),
            steps,
            leases: world.ledger.borrow().leases(),
        })
    })
}
