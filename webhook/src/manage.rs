//! `kcp-webhook manage`: creates and renews the certificates of the webhook, and registers it with the API server.
//!
//! Each pass reads everything, decides one step, and takes it. Every write is conditional on the resource version that was
//! read, so a pass that ends at any point, or a second manager, does no harm: the next pass reads and decides again.
//!
//! - `passes`: one pass: reads, decides, writes
//! - `objects`: reads and writes of the API server
//! - `election`: only one manager acts at a time
//! - `registration`: the webhook configurations
//! - `anchors`: whether the API servers call the Service or static Pods
//! - `authorities`: the CAs in the Secret of the manager
//! - `decision`: what to write next

mod anchors;
mod authorities;
mod decision;
mod election;
mod objects;
mod passes;
mod registration;

use std::{env, process, process::ExitCode};

use jiff::Timestamp;
use kube::Api;
use tokio::sync::watch;
use tracing::info;

use self::{
    election::Candidate,
    objects::Objects,
    passes::{AnchorSettings, Manager, Settings},
};
use crate::{
    arguments::ManageArguments,
    reconciler::{self, ReconcilerError},
};

/// Runs until SIGTERM or SIGINT.
pub fn run(arguments: &ManageArguments) -> Result<ExitCode, ReconcilerError> {
    reconciler::run("manage", &arguments.reconciler, async |client, mut stop| {
        let leases = Api::namespaced(client.clone(), &arguments.namespace);
        let identity = identity();
        let (leads, is_leading) = watch::channel(false);
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
            identity, "managing the certificates and the registration of kcp-webhook"
        );
        tokio::select! {
            () = Candidate::new(leases.clone(), identity.clone()).run(leads) => {}
            () = manager.run(is_leading) => {}
            reason = stop.wait_for_request() => info!(reason, "the manager stops"),
        }
        election::release(&leases, &identity).await;
    })
}

/// A name for this process: that of its Pod, and a part that differs after a restart.
fn identity() -> String {
    let host = env::var("HOSTNAME").unwrap_or_else(|_| "kcp-webhook".to_owned());
    format!("{host}_{}_{}", process::id(), Timestamp::now().as_microsecond())
}
