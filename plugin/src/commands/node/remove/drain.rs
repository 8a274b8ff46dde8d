//! Cordons a Node, and evicts its pods until a deadline.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use kcp_api::kind::NODE;
use kcp_client::{
    Connection, Error,
    reads::{
        node::read_node,
        node_removal::{Eviction, evict, read_drain},
    },
    update::{Change, UpdateTarget, Updated, WriteMode, WriteResult, update},
};
use kcp_control_plane::{
    change::decision::{ObjectWrite, Refusal, RefusedBy},
    verbs::node::remove::{RemovableNode, refuse_losses},
};
use serde_json::json;

use crate::terminal::Terminal;

/// The time between two attempts to evict the pods that are left, as in `kubectl drain`.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How the drain ended.
pub(super) enum Drained {
    Empty {
        /// The number of evicted pods.
        evicted: usize,
    },
    /// The drain would lose pods or data that were not there when the command checked.
    Lossy(Refusal),
    TimedOut {
        /// What delayed the drain, one line for each reason.
        delays: Vec<String>,
    },
}

/// Marks the Node as unschedulable. The inner error says why the Node must not be drained.
pub(super) async fn cordon(
    connection: &Connection,
    field_manager: &str,
    name: &str,
) -> Result<Result<(), Refusal>, Error> {
    let target = UpdateTarget {
        connection,
        resource: &NODE.api_resource("v1"),
        namespace: None,
        name,
        field_manager,
        verb: "cordon",
        mode: WriteMode::Store,
    };
    let read = async || read_node(connection, name, RemovableNode::new).await;
    let decide = |node: &RemovableNode| -> Result<Change<Option<Refusal>>, Error> {
        let refusal = node.refuse_machine();
        let is_needed = refusal.is_none() && !node.is_cordoned;
        Ok(Change {
            write: is_needed.then(|| ObjectWrite::patch(json!({"spec": {"unschedulable": true}}))),
            decision: refusal,
        })
    };
    let Updated { decision, result, .. } = update(&target, read, decide).await?;
    Ok(match (result, decision) {
        (_, Some(refusal)) => Err(refusal),
        (WriteResult::Rejected(why) | WriteResult::Conflict(why), None) => {
            Err(Refusal::new(RefusedBy::Command, why))
        }
        (WriteResult::Stored | WriteResult::NotWritten, None) => Ok(()),
    })
}

/// Evicts the pods of the Node until all have left, or until `end`.
pub(super) async fn drain(
    connection: &Connection,
    node: &str,
    force: bool,
    terminal: &Terminal,
    end: Instant,
) -> Result<Drained, Error> {
    let mut evicted = BTreeSet::new();
    loop {
        let forecast = read_drain(connection, node).await?;
        if forecast.remaining == 0 {
            terminal.stop_spinning();
            return Ok(Drained::Empty {
                evicted: evicted.len(),
            });
        }
        if let Some(refusal) = refuse_losses(&forecast, force) {
            terminal.stop_spinning();
            return Ok(Drained::Lossy(refusal));
        }
        let mut delays = forecast.delays;
        for pod in forecast.evict {
            match evict(connection, &pod).await? {
                Eviction::Started => {
                    evicted.insert(pod);
                }
                Eviction::Refused(why) => {
                    let line = format!("pod {}/{}: {why}", pod.namespace, pod.name);
                    if delays.is_empty() {
                        delays.push(line);
                    }
                }
            }
        }
        terminal.spin(&format!("draining {node}: {} pods left", forecast.remaining));
        for delay in &delays {
            terminal.warning_once(&format!("the drain waits: {delay}"));
        }
        if Instant::now() + RETRY_INTERVAL >= end {
            terminal.stop_spinning();
            return Ok(Drained::TimedOut { delays });
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
