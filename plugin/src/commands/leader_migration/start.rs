//! `leader-migration start`.

use std::time::Instant;

use kcp_api::KubeadmControlPlane;
use kcp_client::{
    Connection,
    reader::Reader,
    reads::leader_migration::{leader_migration, permissions::permissions, workload_connection},
};
use kcp_control_plane::{
    leader_migration::permissions::Identity,
    snapshot::change::ReadScope,
    verbs::leader_migration::{StartOptions, decide},
};
use kcp_rules::leader_migration::{Component, Lock};

use crate::{
    change::engine::{Engine, Verb},
    commands::leader_migration::arguments::StartArguments,
    session::Session,
    verdict::Verdict,
};

/// The namespace of what kubeadm installs.
const KUBE_SYSTEM: &str = "kube-system";

/// Runs `leader-migration start`.
///
/// # Errors
/// A read fails, it is unknown whether the change was written, or the result cannot be printed.
pub(super) async fn run(arguments: &StartArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.review.read()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let (_, control_plane) = reader
        .control_plane(&connection.namespace, &arguments.name)
        .await?;
    let end = Instant::now() + arguments.timeout;
    let observed = Box::pin(leader_migration(&connection, &control_plane, KUBE_SYSTEM, end)).await;
    let missing = Box::pin(missing_permissions(&connection, &control_plane, arguments, end)).await;
    let engine = Engine {
        reader: &reader,
        terminal: &session.terminal,
        arguments: &arguments.write,
        configuration: configuration.as_ref(),
    };
    let verb = Verb {
        name: &arguments.name,
        infinitive: "start the leader migration of",
        not_done: "leader migration not started",
        force_effect: None,
        waits_for_replacement: true,
    };
    let options = StartOptions {
        to: arguments.to,
        node_ipam: arguments.node_ipam,
        leader_name: &arguments.leader_name,
        observed: &observed,
        missing_permissions: &missing,
    };
    let changed = engine.change_control_plane(&verb, ReadScope::All, |snapshot, context| {
        Ok(decide(snapshot, options, context)?)
    });
    let changed = Box::pin(changed).await?;
    engine.report(&verb, &changed).await
}

/// What kube-controller-manager may not do with the Lease, one line for each permission.
async fn missing_permissions(
    management: &Connection,
    control_plane: &KubeadmControlPlane,
    arguments: &StartArguments,
    end: Instant,
) -> Vec<String> {
    let unknown = |why: String| {
        vec![format!(
            "could not review the permissions of kube-controller-manager: {why}"
        )]
    };
    let cluster = match workload_connection(management, control_plane, end).await {
        Ok(cluster) => cluster,
        Err(failure) => return unknown(format!("{}: {}", failure.object, failure.message)),
    };
    let lock = Lock {
        namespace: KUBE_SYSTEM.to_owned(),
        name: arguments.leader_name.clone(),
    };
    let identities = [Identity::User(format!("system:{}", Component::Kube))];
    let reviewed = permissions(&cluster, &identities, &lock, &arguments.write.field_manager).await;
    match reviewed {
        Ok(permissions) => permissions
            .into_iter()
            .filter(|permission| !permission.is_allowed)
            .map(|permission| match permission.verb {
                "create" => format!("{} may not create Leases in {KUBE_SYSTEM}", permission.user),
                verb => format!("{} may not {verb} Lease {}", permission.user, lock.name),
            })
            .collect(),
        Err(error) => unknown(error.to_string()),
    }
}
