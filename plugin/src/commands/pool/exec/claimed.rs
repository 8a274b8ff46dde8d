//! Runs `kubectl kcp pool exec --claim`: a command that runs while a ClusterClaim has a cluster.

use std::time::Duration;

use jiff::Timestamp;
use kcp_client::Error;
use kcp_pool::{
    acquire::{
        answer::{ClaimedCluster, LeaseOutcome},
        claim::{ClaimRequest, DEFAULT_WAIT, claim, extend, read_kubeconfig},
        claim_renewal::HeldClaim,
        wait::{Timeout, WaitLimit},
    },
    lease::{
        generated_name::{generate, generate_lease_id},
        renewal::Heartbeat,
    },
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

/// Claims a cluster from Hive, runs the command, and deletes the ClusterClaim.
pub(super) async fn run_with_claim(arguments: &ExecArguments, session: &Session) -> anyhow::Result<u8> {
    let terminal = &session.terminal;
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let name = arguments.holder.name();
    let name = name.unwrap_or_else(|| generate("exec-"));
    let id = generate_lease_id();
    let mut signals = Signals::listen(std::io::IsTerminal::is_terminal(&std::io::stdin()))?;
    let holder = Holder {
        pool: &arguments.pool,
        cluster_deployment: &name,
    };
    let request = ClaimRequest {
        holder,
        id: &id,
        timeout: Timeout {
            started_at: Timestamp::now(),
            limit: arguments.wait.unwrap_or(WaitLimit::AtMost(DEFAULT_WAIT)),
        },
        keep_failed_claim: false,
        // Refuse a claim that already exists, because another process may use it, and this process deletes
        // the claim when the command ends.
        must_be_new: true,
        ttl: Some(arguments.ttl),
        limit: arguments.claim.lifetime,
        subjects: &arguments.claim.subject,
        hive: arguments.hive.into(),
    };
    let progress = WaitProgress(terminal);
    let claimed = tokio::select! {
        claimed = claim(&store, &request, &progress) => claimed,
        signal = signals.wait_for_end_signal() => {
            delete_or_warn(&store, &request, terminal).await;
            terminal.note("interrupted before the command started");
            return Ok(exit_code(signal));
        }
    };
    let answer = claimed.map_err(claim_failed)?;
    let lease = PoolLease::new(&answer);
    let LeaseOutcome::Claimed(claimed) = &answer.outcome else {
        terminal.note(&lease.refusal().unwrap_or_default());
        return Ok(if answer.timed_out_after.is_some() {
            EXIT_NOTHING_FREE
        } else {
            EXIT_OWN_FAILURE
        });
    };
    let code = match signals.pending_end_signal() {
        Some(signal) => Ok(interrupted(signal, terminal)),
        None => {
            Box::pin(run(
                &store,
                &request,
                claimed,
                &lease,
                arguments,
                &mut signals,
                terminal,
            ))
            .await
        }
    };
    delete_or_warn(&store, &request, terminal).await;
    code
}

/// Runs the command until it ends, or until the ClusterClaim no longer has its cluster.
async fn run(
    store: &Store<'_>,
    request: &ClaimRequest<'_>,
    claimed: &ClaimedCluster,
    lease: &PoolLease,
    arguments: &ExecArguments,
    signals: &mut Signals,
    terminal: &Terminal,
) -> anyhow::Result<u8> {
    let name = request.holder.cluster_deployment;
    // Without permission to extend the claim, the command would lose its cluster after the ttl.
    let Some(claim) = extend(store, &claimed.claim, arguments.ttl, request.limit).await? else {
        terminal.note(&format!("ClusterClaim {name} was deleted"));
        return Ok(EXIT_OWN_FAILURE);
    };
    let file = private_file("kubeconfig", &read_kubeconfig(store, &claimed.cluster).await?)?;
    let held = HeldClaim {
        store,
        holder: request.holder,
        pool: store.read_pool(&arguments.pool).await?,
        claim,
        cluster: &claimed.cluster,
        heartbeat: Heartbeat { ttl: arguments.ttl },
        limit: request.limit,
    };
    let run = CommandRun {
        command: &arguments.command,
        variables: lease.variables().unwrap_or_default(),
        files: [("KCP_KUBECONFIG", Some(&file)), ("KCP_INSTALL_CONFIG", None)],
        grace: Duration::try_from(held.heartbeat.grace()).unwrap_or_default(),
    };
    let failed = |error: &Error| {
        terminal.warning(&format!("could not check ClusterClaim {name}: {error}"));
    };
    let lost = async {
        format!(
            "lost the cluster {}: {}",
            claimed.cluster,
            held.wait_until_lost(failed).await
        )
    };
    Ok(run.run_until_lost(lost, signals, terminal).await?.code())
}

/// Deletes the ClusterClaim that this command created, and with it the cluster. A failure causes only a warning, and does
/// not change the exit code.
async fn delete_or_warn(store: &Store<'_>, request: &ClaimRequest<'_>, terminal: &Terminal) {
    let name = request.holder.cluster_deployment;
    let request = ReleaseRequest {
        target: &ReleaseTarget::Pool(request.holder.pool.to_owned()),
        cluster_deployment: name,
        id: Some(request.id),
        force: false,
        delete_cluster: true,
        hive: request.hive,
    };
    if let Err(error) = release(store, &request).await {
        let error = anyhow::Error::new(error);
        terminal.warning(&format!(
            "could not delete ClusterClaim {name}: {error:#}; its cluster stays until its lifetime has passed or you \
             delete the claim"
        ));
    }
}
