//! `kcp-webhook manage`: creates and renews the certificates of the webhook, and registers it with the API server.
//!
//! Each pass reads everything, decides one step, and takes it. Every write is conditional on the resource version that was read.
//! So a pass that ends at any point, or a second manager, does no harm: the next pass reads and decides again. Several managers
//! need no leader election, because they make the same changes.
//!
//! - `passes`: one pass: reads, decides, writes
//! - `objects`: reads and writes of the API server
//! - `registration`: the webhook configurations
//! - `anchors`: whether the API servers call the Service or static Pods
//! - `authorities`: the CAs in the Secret of the manager
//! - `decision`: what to write next

mod anchors;
mod authorities;
mod decision;
mod objects;
mod passes;
mod registration;

use std::process::ExitCode;

use tracing::info;

use self::{
    objects::Objects,
    passes::{AnchorSettings, Manager, Settings},
};
use super::reconciler::{self, ReconcilerError};
use crate::arguments::ManageArguments;

/// Runs until SIGTERM or SIGINT.
pub fn run(arguments: &ManageArguments) -> Result<ExitCode, ReconcilerError> {
    reconciler::run("manage", &arguments.reconciler, async |client, mut stop| {
        let manager = Manager::new(
            Objects::new(client, &arguments.namespace),
            Settings {
                trust_delay: arguments.ca_trust_delay,
                registration_delay: arguments.registration_delay,
                interval: arguments.reconciler.interval,
                anchors: arguments.anchors.then(|| AnchorSettings {
                    daemon_set: arguments.anchor_daemon_set.clone(),
                    port: arguments.anchor_port,
                }),
            },
        );
        info!(
            namespace = arguments.namespace,
            "managing the certificates and the registration of kcp-webhook"
        );
        tokio::select! {
            () = manager.run() => {}
            reason = stop.wait_for_request() => info!(reason, "the manager stops"),
        }
    })
}
