//! Creates the Pods of a validation, waits for them, reads their logs and deletes them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures_util::stream::{self, StreamExt as _};
use kcp_client::{Error, reads::failure::one_line, validation::ValidationPods};
use kcp_control_plane::validation::{NodeFacts, Probe, ProbePods, Progress, pod::RUN_LABEL};
use tokio::time::sleep;

use crate::terminal::Terminal;

/// The number of Pods that are created, or whose logs are read, at the same time.
const CONCURRENT: usize = 8;

/// The time between two lists of the Pods.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long the command tries to delete the Pods. The API server deletes them at once, unless it does not respond.
const CLEANUP_LIMIT: Duration = Duration::from_secs(30);

/// One validation.
pub(super) struct Run<'r> {
    pub(super) pods: ValidationPods<'r>,
    pub(super) template: &'r ProbePods,
    pub(super) nodes: &'r [NodeFacts],
    /// When the Pods must have ended.
    pub(super) end: Instant,
    pub(super) terminal: &'r Terminal,
}

impl Run<'_> {
    /// Runs the Pods until they have ended, and reads their logs. Returns what came of each Pod, in the order of the Nodes.
    pub(super) async fn probe(&self) -> Vec<Probe> {
        self.terminal.spin("creating the Pods");
        let creations = self
            .nodes
            .iter()
            .enumerate()
            .map(|(number, node)| async move { (number, self.create(number, node).await) });
        let created: Vec<(usize, Result<(), String>)> = stream::iter(creations)
            .buffer_unordered(CONCURRENT)
            .collect()
            .await;
        let mut probes: BTreeMap<usize, Probe> = created
            .into_iter()
            .filter_map(|(number, created)| Some((number, Probe::NotCreated(created.err()?))))
            .collect();
        let waiting: Vec<usize> = (0..self.nodes.len())
            .filter(|number| !probes.contains_key(number))
            .collect();
        let states = self.wait(&waiting).await;
        let logs = waiting
            .into_iter()
            .map(|number| (number, states.get(&self.template.name(number))))
            .map(|(number, state)| async move { (number, self.end_of(number, state).await) });
        let ended: Vec<(usize, Probe)> = stream::iter(logs).buffer_unordered(CONCURRENT).collect().await;
        probes.extend(ended);
        probes.into_values().collect()
    }

    /// Creates the Pod of a Node. The error says why there is none.
    async fn create(&self, number: usize, node: &NodeFacts) -> Result<(), String> {
        if node.ready != Some(true) {
            return Err("no Pod was created, because the Node is not ready".to_owned());
        }
        let pod = self.template.pod(&node.name, number);
        self.pods.create(&pod).await.map_err(|error| match error {
            // Every API server serves Pods, so the namespace is what it did not find.
            Error::NotFound { .. } | Error::NotServed { .. } => format!(
                "namespace {} does not exist; create it as manifests/operator/validator.yaml does, or specify another one with \
                 --pod-namespace",
                self.pods.namespace
            ),
            error => one_line(&error.to_string()),
        })
    }

    /// Waits until the Pods with these numbers have ended, or until the end of the time limit. Returns the last known state of
    /// each Pod by its name.
    async fn wait(&self, numbers: &[usize]) -> BTreeMap<String, Progress> {
        let mut states = BTreeMap::new();
        loop {
            // A list that fails is repeated, because an API server may be about to restart.
            if let Ok(pods) = self.pods.list().await {
                states = pods.into_iter().map(|pod| (pod.name, pod.progress)).collect();
            }
            let ended = numbers
                .iter()
                .filter(|number| {
                    states
                        .get(&self.template.name(**number))
                        .is_some_and(Progress::is_final)
                })
                .count();
            self.terminal
                .spin(&format!("{ended} of {} Pods have ended", numbers.len()));
            if ended == numbers.len() || Instant::now() + POLL_INTERVAL >= self.end {
                return states;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// What came of a Pod in this state.
    async fn end_of(&self, number: usize, state: Option<&Progress>) -> Probe {
        const LATE: &str = "the Pod did not end in time";
        match state {
            None => {
                Probe::NotEnded("the Pod does not exist any more, or the Pods could not be listed".to_owned())
            }
            Some(Progress::Waiting(None)) => Probe::NotEnded(LATE.to_owned()),
            Some(Progress::Waiting(Some(why))) => Probe::NotEnded(format!("{LATE}: {}", one_line(why))),
            Some(Progress::Failed(why)) => Probe::NotEnded(one_line(why)),
            Some(Progress::Ended) => match self.pods.log(&self.template.name(number)).await {
                Ok(log) => Probe::Log(log),
                Err(error) => Probe::WithoutLog(one_line(&error.to_string())),
            },
        }
    }

    /// Deletes all Pods of the run, including those for which the API server did not respond to the creation. The error says which
    /// Pods are left.
    pub(super) async fn clean_up(&self) -> Result<(), String> {
        let end = Instant::now() + CLEANUP_LIMIT;
        let mut was_empty = false;
        loop {
            let left = match self.pods.delete_all().await {
                // The API server may still be creating a Pod whose request was interrupted, so one empty list is not enough.
                Ok(left) if left.is_empty() && was_empty => return Ok(()),
                Ok(left) if left.is_empty() => {
                    was_empty = true;
                    sleep(POLL_INTERVAL / 5).await;
                    continue;
                }
                Ok(left) => format!("these Pods still exist: {}", left.join(", ")),
                Err(error) => format!("could not delete the Pods: {}", one_line(&error.to_string())),
            };
            if Instant::now() + POLL_INTERVAL >= end {
                return Err(left);
            }
            sleep(POLL_INTERVAL / 5).await;
        }
    }

    pub(super) fn deletion_hint(&self) -> String {
        let ValidationPods { namespace, run, .. } = &self.pods;
        format!(
            "delete them in the validated cluster: kubectl delete pods -n {namespace} -l {RUN_LABEL}={run}"
        )
    }
}
