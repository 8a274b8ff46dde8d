//! `kcp-webhook anchor`: runs the webhook as a static Pod beside an API server.
//!
//! A DaemonSet runs the anchor on the control plane nodes. Each pass reads everything, decides, and writes the files of the
//! static Pod: first the files that the Pod needs, then its manifest. An anchor that ends leaves the files, so that the webhook
//! serves through a shutdown, a rolling update of the DaemonSet and a power failure. The anchor removes the files only if its
//! Node no longer belongs to the DaemonSet, and if no API server calls the static Pod any more. Promenade, document 004,
//! describes such an anchor.
//!
//! - `passes`: one pass: reads, decides, writes
//! - `objects`: reads and writes of the API server
//! - `host`: the files of the static Pod on the host
//! - `admission_folder`: the files on the host from which the API server loads webhook configurations
//! - `decision`: whether the files stay

mod admission_folder;
mod decision;
mod host;
mod objects;
mod passes;

use std::{process::ExitCode, time::Duration};

use kcp_rules::anchor::USER;
use tokio::time::{self, Instant};
use tracing::{info, warn};

use self::{
    admission_folder::AdmissionFolder,
    host::Host,
    objects::Objects,
    passes::{Anchor, Files, PassOutcome},
};
use super::reconciler::{self, ReconcilerError};
use crate::{arguments::AnchorArguments, shutdown::Stop};

/// The time between two passes while the anchor waits to remove its files.
const REMOVAL_POLL: Duration = Duration::from_secs(1);

/// Runs until SIGTERM or SIGINT.
pub fn run(arguments: &AnchorArguments) -> Result<ExitCode, ReconcilerError> {
    reconciler::run("anchor", &arguments.reconciler, async |client, mut stop| {
        let objects = Objects::new(client, arguments);
        let host = Host::new(&arguments.manifest_folder, &arguments.folder, USER);
        let admission_folder = arguments.admission_folder.as_deref().map(AdmissionFolder::new);
        let mut anchor = Anchor::new(objects, host, admission_folder, Files::of(arguments));
        info!(
            node = arguments.node_name,
            "keeping the static Pod of kcp-webhook on this node"
        );
        let reason = loop {
            anchor.pass().await;
            tokio::select! {
                () = time::sleep(arguments.reconciler.interval) => {}
                reason = stop.wait_for_request() => break reason,
            }
        };
        info!(reason, "the anchor stops");
        stopped(&mut anchor, arguments.removal_timeout, &mut stop).await;
    })
}

/// Removes the files if the Node no longer belongs to the DaemonSet. While an API server still calls the static Pod, or the API
/// server does not respond, waits for `timeout` at most.
async fn stopped(anchor: &mut Anchor, timeout: Duration, stop: &mut Stop) {
    let until = Instant::now() + timeout;
    loop {
        match anchor.removal_pass().await {
            Some(PassOutcome::Removed | PassOutcome::Written | PassOutcome::Stays) => return,
            Some(PassOutcome::WaitsForService) | None => {}
        }
        if Instant::now() >= until {
            warn!(
                "the files of the static Pod stay on this node; remove the files if the node no longer needs the static Pod"
            );
            return;
        }
        tokio::select! {
            () = time::sleep(REMOVAL_POLL) => {}
            reason = stop.wait_for_request() => {
                warn!(reason, "received a second stop request; the files of the static Pod stay on this node");
                return;
            }
        }
    }
}
