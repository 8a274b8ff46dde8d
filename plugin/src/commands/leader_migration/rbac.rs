//! Runs `kubectl kcp leader-migration rbac`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use kcp_client::{
    Connection, Error,
    grant::{Granted, Grantor},
    reads::{
        self,
        leader_migration::{
            connect_to_workload,
            permissions::{Permission, ROLE, ROLE_BINDING, read_permissions},
        },
    },
    update::WriteMode,
};
use kcp_control_plane::leader_migration::permissions::{Identity, LEASES, role, role_binding};
use kcp_rules::leader_migration::Lock;

use crate::{
    arguments::DryRun,
    commands::leader_migration::{arguments::RbacArguments, step_arguments::kube_identity},
    document::resource_name,
    printer::yaml,
    session::Session,
    terminal::{
        Terminal,
        style::{BAD, GOOD},
        table::{Cell, Layout, Table},
    },
    verdict::Verdict,
};

/// How long to wait until the granted permissions take effect. The API server applies a new Role once its watch has seen
/// it, usually within a second.
const EFFECT_LIMIT: Duration = Duration::from_secs(10);

/// The time between two reviews of the permissions.
const INTERVAL: Duration = Duration::from_millis(250);

/// Which permissions exist in a workload cluster, and which were granted.
struct Outcome {
    permissions: Vec<Permission>,
    /// The Role and the `RoleBinding` that were written; empty if no permission was missing, or if `--apply` is not set.
    granted: Vec<(String, Granted)>,
}

/// Runs `leader-migration rbac`.
///
/// # Errors
/// The workload cluster cannot be read or written, or the result cannot be printed.
pub(super) async fn run(arguments: &RbacArguments, session: &Session) -> anyhow::Result<Verdict> {
    let (text, verdict) = match &arguments.name {
        None => (manifests(arguments)?, Verdict::Met),
        Some(name) => {
            let outcome = Box::pin(in_cluster(arguments, name, session)).await?;
            let layout = Layout {
                width: Terminal::size().map(|size| size.width),
                ..Layout::default()
            };
            (
                screen(&outcome, arguments, name, layout),
                verdict(&outcome, arguments),
            )
        }
    };
    session.terminal.print(&text).context("cannot write to stdout")?;
    Ok(verdict)
}

async fn in_cluster(arguments: &RbacArguments, name: &str, session: &Session) -> anyhow::Result<Outcome> {
    let end = Instant::now() + arguments.timeout;
    let management = session.connect_within(arguments.timeout).await?;
    let reader = reads::discover(&management, reads::list_limit(arguments.timeout)).await?;
    let (_, control_plane) = reader.read_control_plane(&management.namespace, name).await?;
    let cluster = connect_to_workload(&management, &control_plane, end)
        .await
        .map_err(|failure| anyhow!("cannot read {}: {}", failure.object, failure.message))?;
    let found = review(&cluster, arguments).await?;
    if !arguments.apply || is_complete(&found) {
        return Ok(Outcome {
            permissions: found,
            granted: Vec::new(),
        });
    }
    let (lock, identities) = (lock(arguments), identities(arguments));
    let grantor = Grantor {
        connection: &cluster,
        namespace: &lock.namespace,
        field_manager: &arguments.field_manager,
        mode: match arguments.dry_run {
            None => WriteMode::Store,
            Some(DryRun::Server) => WriteMode::ServerDryRun,
            Some(DryRun::Client) => WriteMode::ClientDryRun,
        },
    };
    let mut granted = Vec::new();
    for (kind, desired) in [
        (&ROLE, role(&lock)),
        (&ROLE_BINDING, role_binding(&lock, &identities)),
    ] {
        let done = grantor.grant(&kind.api_resource("v1"), &desired).await?;
        let name = desired
            .pointer("/metadata/name")
            .and_then(serde_json::Value::as_str);
        granted.push((resource_name(kind, name.unwrap_or_default()), done));
    }
    let permissions = if arguments.dry_run.is_some() {
        found
    } else {
        wait_until_granted(&cluster, arguments).await?
    };
    Ok(Outcome { permissions, granted })
}

/// Reviews the permissions until all of them are granted, or until the time limit has passed.
async fn wait_until_granted(
    cluster: &Connection,
    arguments: &RbacArguments,
) -> Result<Vec<Permission>, Error> {
    let end = Instant::now() + EFFECT_LIMIT;
    loop {
        let found = review(cluster, arguments).await?;
        if is_complete(&found) || Instant::now() >= end {
            return Ok(found);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn review(cluster: &Connection, arguments: &RbacArguments) -> Result<Vec<Permission>, Error> {
    let (lock, identities) = (lock(arguments), identities(arguments));
    read_permissions(cluster, &identities, &lock, &arguments.field_manager).await
}

fn is_complete(permissions: &[Permission]) -> bool {
    permissions.iter().all(|permission| permission.is_allowed)
}

fn verdict(outcome: &Outcome, arguments: &RbacArguments) -> Verdict {
    let is_refused = outcome
        .granted
        .iter()
        .any(|(_, granted)| matches!(granted, Granted::Refused(_)));
    let is_planned = arguments.dry_run.is_some() && !is_refused;
    if is_planned || is_complete(&outcome.permissions) {
        Verdict::Met
    } else {
        Verdict::Negative
    }
}

fn screen(outcome: &Outcome, arguments: &RbacArguments, name: &str, layout: Layout) -> String {
    let mut table = Table::new(&["USER", "VERB", "LEASE", "ALLOWED"]);
    for permission in &outcome.permissions {
        let lease = match permission.verb {
            "create" => "any",
            _ => arguments.leader_name.as_str(),
        };
        let allowed = if permission.is_allowed {
            Cell::styled("yes", GOOD)
        } else {
            Cell::styled("no", BAD)
        };
        table.add_row([
            Cell::from(&permission.user),
            Cell::from(permission.verb),
            Cell::from(lease),
            allowed,
        ]);
    }
    let mut text = table.render(layout);
    for (object, granted) in &outcome.granted {
        let done = match granted {
            Granted::Created => "created".to_owned(),
            Granted::Extended => "extended".to_owned(),
            Granted::Unchanged => "unchanged".to_owned(),
            Granted::Refused(why) => format!("not written: {why}"),
        };
        let mark = DryRun::suffix(arguments.dry_run);
        text += &layout.wrap_paragraph(&format!("{object} {done}{mark}"));
    }
    if !arguments.apply && !is_complete(&outcome.permissions) {
        text += &layout.wrap_paragraph(&format!(
            "to grant the missing permissions, run the command again with the same flags and --apply: kubectl kcp \
             leader-migration rbac {name} --apply"
        ));
    }
    text
}

fn lock(arguments: &RbacArguments) -> Lock {
    Lock {
        namespace: "kube-system".to_owned(),
        name: arguments.leader_name.clone(),
    }
}

/// The users of kube-controller-manager and cloud-controller-manager.
fn identities(arguments: &RbacArguments) -> [Identity; 2] {
    [kube_identity(), arguments.cloud.identity()]
}

fn manifests(arguments: &RbacArguments) -> anyhow::Result<String> {
    let (lock, identities) = (lock(arguments), identities(arguments));
    let reviews = identities.each_ref().map(|identity| {
        format!(
            "#   kubectl auth can-i update leases.{LEASES}/{} -n kube-system --as {}",
            lock.name,
            identity.user()
        )
    });
    Ok(format!(
        "# Before and after you apply this to the workload cluster, check each permission with:\n{}\n{}---\n{}",
        reviews.join("\n"),
        yaml(&role(&lock))?,
        yaml(&role_binding(&lock, &identities))?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands::leader_migration::step_arguments::CloudIdentity, terminal::plain};

    fn arguments() -> RbacArguments {
        RbacArguments {
            name: None,
            apply: false,
            dry_run: None,
            field_manager: "kubectl-kcp".to_owned(),
            timeout: Duration::from_secs(20),
            leader_name: "ipam-migration".to_owned(),
            cloud: CloudIdentity {
                ccm_user: "system:cloud-controller-manager".to_owned(),
                ccm_service_account: None,
            },
        }
    }

    #[test]
    fn both_controller_managers_may_use_the_migration_lock() {
        insta::assert_snapshot!(manifests(&arguments()).unwrap());
    }

    fn outcome(cloud_may_update: bool, granted: &[(&str, Granted)]) -> Outcome {
        let permission = |user: &str, verb, is_allowed| Permission {
            user: user.to_owned(),
            verb,
            is_allowed,
        };
        let granted = granted
            .iter()
            .map(|(object, granted)| ((*object).to_owned(), granted.clone()));
        Outcome {
            permissions: vec![
                permission("system:kube-controller-manager", "create", true),
                permission("system:cloud-controller-manager", "update", cloud_may_update),
            ],
            granted: granted.collect(),
        }
    }

    #[test]
    fn a_missing_permission_is_a_negative_result_until_it_is_granted() {
        let applied = |dry_run| RbacArguments {
            apply: true,
            dry_run,
            ..arguments()
        };
        let refused = Granted::Refused("RoleBinding leader-migration refers to another role".to_owned());
        let role = "role.rbac.authorization.k8s.io/leader-migration";
        for (name, arguments, outcome, expected) in [
            ("missing", arguments(), outcome(false, &[]), Verdict::Negative),
            ("complete", arguments(), outcome(true, &[]), Verdict::Met),
            (
                "granted",
                applied(None),
                outcome(true, &[(role, Granted::Created)]),
                Verdict::Met,
            ),
            (
                "dry run",
                applied(Some(DryRun::Server)),
                outcome(false, &[(role, Granted::Extended)]),
                Verdict::Met,
            ),
            (
                "refused",
                applied(Some(DryRun::Client)),
                outcome(false, &[(role, refused)]),
                Verdict::Negative,
            ),
        ] {
            assert_eq!(verdict(&outcome, &arguments), expected, "{name}");
            let text = screen(&outcome, &arguments, "edge", Layout::default());
            insta::assert_snapshot!(name, plain(&text));
        }
    }
}
