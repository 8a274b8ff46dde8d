//! Runs the tasks of a simulation on one thread. A seed decides which task runs next, and all faults.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The steps after which a schedule counts as one that never ends.
const MAX_STEPS: u64 = 200_000;

/// Decides by a seed, and hashes the decisions. Two schedules with the same hash are the same, except by chance: among 10^7
/// schedules, two have the same hash of 64 bits with a probability of 3 in a million.
#[derive(Debug)]
pub(super) struct Decisions {
    state: Cell<u64>,
    hash: Cell<u64>,
}

impl Decisions {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            state: Cell::new(seed),
            hash: Cell::new(0xcbf2_9ce4_8422_2325),
        }
    }

    /// One of `among` possibilities. With one possibility, nothing is decided.
    pub(super) fn choose(&self, among: usize) -> usize {
        if among <= 1 {
            return 0;
        }
        // SplitMix64.
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mut random = state;
        random = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        random = (random ^ (random >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        random ^= random >> 31;
        let chosen = random % among as u64;
        let hash = (self.hash.get() ^ (chosen + 1)).wrapping_mul(0x0100_0000_01b3);
        self.hash.set(hash ^ (hash >> 29));
        usize::try_from(chosen).unwrap()
    }

    pub(super) fn one_in(&self, among: usize) -> bool {
        among > 0 && self.choose(among) == 0
    }

    pub(super) fn pick<T: Copy>(&self, among: &[T]) -> T {
        among[self.choose(among.len())]
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.get()
    }
}

/// Whether a task is ready.
#[derive(Debug)]
struct Readiness {
    is_ready: AtomicBool,
    runtime: Arc<Mutex<Option<Waker>>>,
}

impl Wake for Readiness {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_ready.store(true, Ordering::Relaxed);
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = runtime.as_ref() {
            waker.wake_by_ref();
        }
    }
}

struct Slot {
    task: Task,
    readiness: Arc<Readiness>,
    waker: Waker,
    /// How many more polls the task survives; `None` if it is not killed.
    polls_left: Option<usize>,
    /// Called when the task is killed.
    killed: Option<Box<dyn FnOnce()>>,
}

/// After how many polls a task is killed, and what is called then.
type Death = (usize, Box<dyn FnOnce()>);

/// The tasks of a schedule.
#[derive(Default)]
pub(super) struct Scheduler {
    spawned: RefCell<Vec<(Task, Option<Death>)>>,
    runtime: Arc<Mutex<Option<Waker>>>,
}

impl Scheduler {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.spawned.borrow_mut().push((Box::pin(task), None));
    }

    /// Spawns a task that is dropped after this number of polls, wherever it waits then.
    pub(super) fn spawn_mortal(
        &self,
        task: impl Future<Output = ()> + 'static,
        polls: usize,
        killed: impl FnOnce() + 'static,
    ) {
        let death: Option<Death> = Some((polls, Box::new(killed)));
        self.spawned.borrow_mut().push((Box::pin(task), death));
    }

    /// Runs until all tasks have ended. Calls `check` after each step, and stops at its first error.
    pub(super) async fn run(
        &self,
        decisions: &Decisions,
        check: impl Fn() -> Result<(), String>,
    ) -> Result<(), String> {
        let mut slots: Vec<Slot> = Vec::new();
        let mut steps = 0;
        let running = poll_fn(|context: &mut Context<'_>| {
            *self.runtime.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            loop {
                slots.extend(self.spawned.take().into_iter().map(|spawned| self.slot(spawned)));
                let is_ready = |slot: &Slot| slot.readiness.is_ready.load(Ordering::Relaxed);
                let ready: Vec<usize> = (0..slots.len())
                    .filter(|index| is_ready(&slots[*index]))
                    .collect();
                if ready.is_empty() {
                    return if slots.is_empty() {
                        Poll::Ready(Ok(()))
                    } else {
                        Poll::Pending
                    };
                }
                let index = ready[decisions.choose(ready.len())];
                step(&mut slots, index);
                steps += 1;
                let checked = check();
                if checked.is_err() {
                    return Poll::Ready(checked);
                }
                if steps > MAX_STEPS {
                    return Poll::Ready(Err(format!("the schedule does not end within {MAX_STEPS} steps")));
                }
            }
        });
        // Without this, tokio would stop the timers of a poll that makes many steps.
        tokio::task::unconstrained(running).await
    }

    fn slot(&self, (task, death): (Task, Option<Death>)) -> Slot {
        let readiness = Arc::new(Readiness {
            is_ready: AtomicBool::new(true),
            runtime: Arc::clone(&self.runtime),
        });
        let (polls_left, killed) = death.unzip();
        Slot {
            task,
            waker: Waker::from(Arc::clone(&readiness)),
            readiness,
            polls_left,
            killed,
        }
    }
}

/// Polls a task, or kills it.
fn step(slots: &mut Vec<Slot>, index: usize) {
    let slot = &mut slots[index];
    if slot.polls_left == Some(0) {
        let slot = slots.swap_remove(index);
        drop(slot.task);
        if let Some(killed) = slot.killed {
            killed();
        }
        return;
    }
    slot.polls_left = slot.polls_left.map(|left| left - 1);
    slot.readiness.is_ready.store(false, Ordering::Relaxed);
    let polled = slot.task.as_mut().poll(&mut Context::from_waker(&slot.waker));
    if polled.is_ready() {
        drop(slots.swap_remove(index));
    }
}

/// Lets other tasks go first, if the seed says so.
pub(super) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
