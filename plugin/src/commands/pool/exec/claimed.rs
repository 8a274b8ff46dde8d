//! Runs `kubectl kcp pool exec --claim`: a command that runs while a ClusterClaim has a cluster.

use std::time::Duration;

use jiff::Timestamp;
use kcp_client::Error;
use kcp_pool::{
    acquire::{
        answer::{LeaseOutcome, LeaseResult},
        claim::{ClaimRequest, claim, read_kubeconfig, wait_until_lost},
        wait::{Timeout, WaitLimit},
    },
    lease::generated_name,
    objects::Holder,
    release::{
        decision::{ReleaseRequest, ReleaseTarget},
        release,
    },
    store::Store,
};

use super::{
    CommandRun, EXIT_NOTHING_FREE, EXIT_OWN_FAILURE, ExecArguments, interrupted, private_file,
    process::{Signals, exit_code},
};
use crate::{
    commands::pool::{WaitProgress, claim_failed, lease::document::PoolLease},
    session::Session,
    terminal::Terminal,
};

/// The time between the signals TERM and KILL to the command, after the cluster has been lost.
const GRACE: Duration = Duration::from_secs(10);

/// Claims a cluster from Hive, runs the command, and deletes the ClusterClaim.
pub(super) async fn run_with_claim(arguments: &ExecArguments, session: &Session) -> anyhow::Result<u8> {
    let terminal = &session.terminal;
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let name = arguments.holder.name();
    let name = name.unwrap_or_else(|| generated_name::generate("exec-"));
    let mut signals = Signals::listen(std::io::IsTerminal::is_terminal(&std::io::stdin()))?;
    let holder = Holder {
        pool: &arguments.pool,
        cluster_deployment: &name,
    };
    let request = ClaimRequest {
        holder,
        timeout: Timeout {
            started_at: Timestamp::now(),
            limit: arguments.wait.unwrap_or(WaitLimit::Unlimited),
        },
        keep_failed_claim: false,
        // Refuse a claim that already exists, because another process may use it, and this process deletes
        // the claim when the command ends.
        must_be_new: true,
        lifetime: arguments.claim.lifetime.as_deref(),
        subjects: &arguments.claim.subject,
        hive: arguments.hive.into(),
    };
    let progress = WaitProgress(terminal);
    let claimed = tokio::select! {
        claimed = claim(&store, &request, &progress) => claimed,
        signal = signals.wait_for_end_signal() => {
            // Another process may have created a claim with this name, unless the name was generated.
            if arguments.holder.cluster_deployment.is_none() {
                delete_or_warn(&store, holder, arguments, terminal).await;
            } else {
                terminal.warning(&format!("ClusterClaim {name} may exist; delete it if no other process uses it"));
            }
            terminal.note("interrupted before the command started");
            return Ok(exit_code(signal));
        }
    };
    let answer = claimed.map_err(claim_failed)?;
    let lease = PoolLease::new(&answer);
    if !matches!(answer.outcome, LeaseOutcome::Claimed { .. }) {
        terminal.note(&lease.refusal().unwrap_or_default());
        return Ok(if answer.timed_out_after.is_some() {
            EXIT_NOTHING_FREE
        } else {
            EXIT_OWN_FAILURE
        });
    }
    let code = match signals.pending_end_signal() {
        Some(signal) => Ok(interrupted(signal, terminal)),
        None => run(&store, holder, &answer, &lease, arguments, &mut signals, terminal).await,
    };
    delete_or_warn(&store, holder, arguments, terminal).await;
    code
}

/// Runs the command until it ends, or until the ClusterClaim no longer has its cluster.
async fn run(
    store: &Store<'_>,
    holder: Holder<'_>,
    answer: &LeaseResult,
    lease: &PoolLease,
    arguments: &ExecArguments,
    signals: &mut Signals,
    terminal: &Terminal,
) -> anyhow::Result<u8> {
    let cluster = answer.cluster_deployment.as_str();
    let file = private_file("kubeconfig", &read_kubeconfig(store, cluster).await?)?;
    let run = CommandRun {
        command: &arguments.command,
        lease,
        files: [("KCP_KUBECONFIG", Some(&file)), ("KCP_INSTALL_CONFIG", None)],
        grace: GRACE,
    };
    let failed = |error: &Error| {
        let claim = holder.cluster_deployment;
        terminal.warning(&format!("could not check ClusterClaim {claim}: {error}"));
    };
    let lost = async {
        let why = wait_until_lost(store, holder, cluster, failed).await;
        format!("lost the cluster {cluster}: {why}")
    };
    run.run_until_lost(lost, signals, terminal).await
}

/// Deletes the ClusterClaim, and with it the cluster. A failure causes only a warning, and does not change the exit
/// code.
async fn delete_or_warn(
    store: &Store<'_>,
    holder: Holder<'_>,
    arguments: &ExecArguments,
    terminal: &Terminal,
) {
    let request = ReleaseRequest {
        target: &ReleaseTarget::Pool(arguments.pool.clone()),
        cluster_deployment: holder.cluster_deployment,
        id: None,
        force: false,
        delete_cluster: true,
        hive: arguments.hive.into(),
    };
    if let Err(error) = release(store, &request).await {
        let error = anyhow::Error::new(error);
        let name = holder.cluster_deployment;
        terminal.warning(&format!(
            "could not delete ClusterClaim {name}: {error:#}; its cluster stays until you delete the claim"
        ));
    }
}
