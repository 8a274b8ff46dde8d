//! The requests of one process. Each is a task of its own, so it is served even if its process gives up or is killed.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use jiff::Timestamp;
use kcp_api::metadata::Object as _;
use kcp_client::{CreateResult, Error, ServerTime, Written, clock::ClockBounds};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::World;
use crate::{
    lease::{queue::Queue, reuse::Reuse, usage::Clusters},
    objects::{
        cluster_deployment::ClusterDeployments,
        entry::{Entry, EntryStatus as _},
    },
    store::LeaseStore,
    testing::{fake::lost, objects::NOW},
};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Served,
    AnswerLost,
    RequestLost,
    /// The process gives up before the request is served, this much later.
    Late(Duration),
}

/// One process, with its own clock.
pub(super) struct Client {
    pub(super) world: Rc<World>,
    pub(super) number: usize,
    bounds: RefCell<ClockBounds>,
    /// What the machine's clocks are ahead of the simulated time.
    ahead: Duration,
    answers: Cell<usize>,
    /// The last version of each entry that this process has read.
    read: RefCell<BTreeMap<String, String>>,
    /// When the entries that this process has listed last were read.
    pub(super) listed: Cell<u64>,
    /// Whether this process releases what others may hold under the same name.
    pub(super) releases: Cell<bool>,
}

impl Client {
    pub(super) fn new(world: &Rc<World>, number: usize) -> Rc<Self> {
        Rc::new(Self {
            world: Rc::clone(world),
            number,
            bounds: RefCell::default(),
            ahead: Duration::from_millis(world.decisions.pick(&[0, 700, 86_400_300])),
            answers: Cell::new(0),
            read: RefCell::default(),
            listed: Cell::new(0),
            releases: Cell::new(false),
        })
    }

    fn since_boot(&self) -> Duration {
        self.world.elapsed() + self.ahead
    }

    fn fate(&self, is_write: bool) -> Fate {
        let decisions = &self.world.decisions;
        if !decisions.one_in(self.world.weather.get()) {
            return Fate::Served;
        }
        self.world.count_fault();
        match decisions.choose(3) {
            0 => Fate::AnswerLost,
            1 if is_write => {
                let seconds = decisions.pick(&[0, 1, 20, 90]);
                Fate::Late(Duration::from_secs(seconds))
            }
            _ => Fate::RequestLost,
        }
    }

    /// Sends a request. Returns the answer, unless it is lost.
    pub(super) async fn send<T: 'static>(
        self: &Rc<Self>,
        is_write: bool,
        what: impl Fn() -> String,
        serve: impl FnOnce(&World) -> T + 'static,
    ) -> Result<T, Error> {
        let (fate, sent) = (self.fate(is_write), self.since_boot());
        let there = self.world.delay();
        let back = self.world.delay();
        let give_up = Duration::from_millis(if fate == Fate::Served {
            0
        } else {
            self.world.decisions.pick(&[0, 300, 5_000])
        });
        self.world
            .note(|| format!("{} sends {} {fate:?}", self.number, what()));
        let (answer, answered) = oneshot::channel();
        let world = Rc::clone(&self.world);
        let answers = self.answers.get();
        self.world.scheduler.spawn(async move {
            world.pause(there).await;
            match fate {
                Fate::RequestLost => {
                    world.pause(give_up).await;
                    drop(answer);
                }
                Fate::Late(later) => {
                    world.pause(give_up).await;
                    drop(answer);
                    world.pause(later).await;
                    drop(world.serve(serve));
                }
                Fate::AnswerLost => {
                    drop(world.serve(serve));
                    world.pause(give_up).await;
                    drop(answer);
                }
                Fate::Served => {
                    let served = world.serve(serve);
                    let date = world.date(answers);
                    world.pause(back).await;
                    drop(answer.send((served, date)));
                }
            }
        });
        let Ok((served, date)) = answered.await else {
            return Err(lost());
        };
        self.answers.set(answers + 1);
        self.bounds.borrow_mut().add(date, sent, self.since_boot());
        Ok(served)
    }

    /// Sends a write, whose outcome is unknown without an answer.
    async fn write(
        self: &Rc<Self>,
        what: impl Fn() -> String,
        serve: impl FnOnce(&World) -> Written + 'static,
    ) -> Result<Written, Error> {
        Ok(self
            .send(true, what, serve)
            .await
            .unwrap_or_else(Written::Unknown))
    }

    fn has_read(&self, entries: &[Entry]) {
        let versions = entries.iter();
        self.read
            .borrow_mut()
            .extend(versions.map(|entry| (entry.name().to_owned(), entry.resource_version().to_owned())));
    }
}

impl LeaseStore for Rc<Client> {
    async fn list(&self) -> Result<Vec<Entry>, Error> {
        let (entries, at) = self
            .send(
                false,
                || "list".to_owned(),
                |world| (world.entries(), world.served.get()),
            )
            .await?;
        self.has_read(&entries);
        self.listed.set(at);
        Ok(entries)
    }

    async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        let named = name.to_owned();
        let entry = self
            .send(
                false,
                || format!("get {name}"),
                move |world| world.entries().into_iter().find(|entry| entry.name() == named),
            )
            .await?;
        self.has_read(entry.as_slice());
        Ok(entry)
    }

    async fn write_status(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        let (named, patched, client) = (name.to_owned(), patch.clone(), Rc::clone(self));
        let read = self.read.borrow().get(name).cloned();
        self.write(
            || format!("write {name} {}", patch["status"]["conditions"]),
            move |world| {
                let before = world.server.versions();
                let written = world.server.arrive(&named, &patched);
                let after = world.server.versions();
                if before != after {
                    let based_on = before
                        .into_iter()
                        .find(|(name, _)| *name == named)
                        .map(|(_, version)| version);
                    world
                        .ledger
                        .borrow_mut()
                        .written(&client, &named, read == based_on);
                }
                written
            },
        )
        .await
    }

    async fn write_entry(&self, name: &str, patch: &Value) -> Result<Written, Error> {
        let (named, patch) = (name.to_owned(), patch.clone());
        self.write(
            || format!("annotate {name}"),
            move |world| world.server.annotate(&named, &patch),
        )
        .await
    }

    async fn clusters(&self) -> Result<Clusters, Error> {
        let sent = self.since_boot();
        let clusters: ClusterDeployments = self
            .send(
                false,
                || "list clusters".to_owned(),
                |world| world.server.stored_clusters(),
            )
            .await?;
        // As the store of the real client does.
        let requested = self
            .now()
            .earliest
            .checked_sub(self.since_boot().saturating_sub(sent));
        Ok(Clusters::All(clusters.with_request_time(requested.unwrap())))
    }

    async fn reuse(&self, _: &Entry) -> Result<Reuse, Error> {
        self.send(false, || "read pool".to_owned(), |world| world.reuse)
            .await
    }

    async fn queue(&self, pool: &str) -> Result<Queue, Error> {
        let pool = pool.to_owned();
        self.send(
            false,
            || "read queue".to_owned(),
            move |world| world.server.stored_queue(&pool),
        )
        .await
    }

    async fn write_queue(&self, _: &str, _: usize, patch: &Value) -> Result<Written, Error> {
        let sent = patch.clone();
        self.write(
            || format!("write queue {patch}"),
            move |world| world.server.annotate_queue(&sent),
        )
        .await
    }

    async fn create_queue(
        &self,
        _: &str,
        _: usize,
        annotations: &Map<String, Value>,
    ) -> Result<CreateResult, Error> {
        let annotations = annotations.clone();
        let created = self
            .send(
                true,
                || "create queue".to_owned(),
                move |world| world.server.make_queue(&annotations),
            )
            .await;
        Ok(created.unwrap_or_else(CreateResult::Unknown))
    }

    fn now(&self) -> ServerTime {
        self.bounds.borrow().at(self.since_boot()).unwrap_or_else(|| {
            // The local clock, which the real client does not use to end a lease either.
            let now = NOW.parse::<Timestamp>().unwrap() + self.ahead;
            ServerTime {
                earliest: now,
                latest: now,
                is_certain: false,
            }
        })
    }
}

/// Whether the entry's status has both a lease and a cleaning.
pub(super) fn is_contradictory(entry: &Entry) -> bool {
    use crate::objects::{cleaning::CLEANING, record::CONDITION};
    entry.conditions().has(CLEANING) && (entry.conditions().has(CONDITION) || entry.status.holder().is_some())
}
