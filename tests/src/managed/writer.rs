//! A client that changes a control plane every 100 ms, and counts what the API server does with each change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::wait;

const PERIOD: Duration = Duration::from_millis(100);

/// The counts of one step of a test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub admitted: usize,
    /// The reason of each refusal.
    pub refused: Vec<String>,
    /// From the first refused write to the next admitted one, over all outages of the step.
    pub outage: Duration,
}

#[derive(Default)]
struct Shared {
    /// Held during each write.
    turn: Mutex<State>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    counts: Counts,
    /// When the current outage began.
    refused_since: Option<Instant>,
}

/// Writes until it is dropped.
pub struct Writer {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

impl Writer {
    /// Begins to change the spec of a control plane, which every rule accepts.
    pub fn begin(control_planes: Api<DynamicObject>, name: &str) -> Self {
        Self::begin_with(
            control_planes,
            name,
            |number| json!({"spec": {"kubeadmConfigSpec": {"preKubeadmCommands": [format!("true {number}")]}}}),
        )
    }

    /// Begins to set an even number of replicas, which the rule `replicas-even` denies.
    pub fn begin_even(control_planes: Api<DynamicObject>, name: &str) -> Self {
        Self::begin_with(control_planes, name, |_| json!({"spec": {"replicas": 4}}))
    }

    fn begin_with(control_planes: Api<DynamicObject>, name: &str, patch: fn(u64) -> Value) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(write(control_planes, name.to_owned(), patch, shared.clone()));
        Self { shared, task }
    }

    /// Ends a step: returns its counts, and begins the counts of the next one.
    pub async fn step(&self) -> Counts {
        let mut state = self.shared.turn.lock().await;
        let now = Instant::now();
        if let Some(since) = state.refused_since {
            state.counts.outage += now - since;
            state.refused_since = Some(now);
        }
        std::mem::take(&mut state.counts)
    }

    /// Waits until this many more writes have been admitted.
    pub async fn admitted(&self, more: usize) -> Result<()> {
        self.counted(more, |counts| counts.admitted).await
    }

    /// Waits until this many more writes have been refused.
    pub async fn refused(&self, more: usize) -> Result<()> {
        self.counted(more, |counts| counts.refused.len()).await
    }

    async fn counted(&self, more: usize, count: impl Fn(&Counts) -> usize) -> Result<()> {
        let before = count(&self.shared.turn.lock().await.counts);
        wait::until(&format!("{more} more writes"), || async {
            let state = self.shared.turn.lock().await;
            let now = count(&state.counts);
            ensure!(
                now >= before + more,
                "{} were; the last refusal: {:?}",
                now - before,
                state.counts.refused.last()
            );
            Ok(())
        })
        .await
    }

    /// Runs `action` while no write is in progress. A review in progress at the moment of a crash is lost with its Pod.
    pub async fn between_writes<T>(&self, action: impl Future<Output = Result<T>>) -> Result<T> {
        let _turn = self.shared.turn.lock().await;
        action.await
    }
}

async fn write(
    control_planes: Api<DynamicObject>,
    name: String,
    patch: fn(u64) -> Value,
    shared: Arc<Shared>,
) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        ticks.tick().await;
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        let patch = patch(number);
        let mut state = shared.turn.lock().await;
        let started = Instant::now();
        let written = control_planes
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        match written {
            Ok(_) => {
                state.counts.admitted += 1;
                if let Some(since) = state.refused_since.take() {
                    state.counts.outage += since.elapsed();
                }
            }
            Err(error) => {
                state.counts.refused.push(error.to_string());
                state.refused_since.get_or_insert(started);
            }
        }
    }
}

/// The control planes of a namespace.
pub fn control_planes(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let gvk =
        kube::core::GroupVersionKind::gvk("controlplane.cluster.x-k8s.io", "v1beta2", "KubeadmControlPlane");
    let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, "kubeadmcontrolplanes");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

impl Counts {
    /// Fails if a write was refused.
    pub fn none_refused(&self, step: &str) -> Result<()> {
        if let Some(first) = self.refused.first() {
            bail!(
                "{step}: {} writes refused, the first with: {first}",
                self.refused.len()
            );
        }
        ensure!(self.admitted > 0, "{step}: nothing was written");
        Ok(())
    }
}
