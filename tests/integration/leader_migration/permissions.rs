//! A controller manager without permission for the migration lock, and the repair.

use anyhow::Result;
use kcp_rules::leader_migration::Assignment::{Migrated, NonMigrated};
use kcp_tests::controller_manager::{Identity, Locks, Program};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use super::{CANONICAL, MIGRATION, configuration, model, predicted};
use crate::objects::written;
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "migration-permissions";

#[test]
fn a_role_for_the_migration_lock_starts_orphaned_controllers() {
    with_management_cluster(async |management| repaired(management).await.unwrap());
}

async fn repaired(management: &ManagementCluster) -> Result<()> {
    management.create_namespace(NAMESPACE).await?;
    let main_lock = Program::Cloud.name();
    permit(
        management,
        "cluster-role",
        "ClusterRole",
        &json!([
            {"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["get", "list", "watch"]},
        ]),
    )
    .await?;
    permit(
        management,
        "main-lock",
        "Role",
        &json!([
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [main_lock],
                "verbs": ["get", "update"]},
        ]),
    )
    .await?;

    let locks = Locks::in_namespace(management.client(), NAMESPACE);
    let programs = management.controller_managers(management.api(), "permissions")?;
    let text = configuration(&CANONICAL);
    let file = programs.file("configuration.yaml", &text)?;
    let mut flags = programs.flags(Program::Cloud, Identity::Own, &locks);
    flags.push("--enable-leader-migration=true".to_owned());
    flags.push(format!("--leader-migration-config={}", file.display()));
    let model = model(Program::Cloud, &flags, Some(&text));

    let mut manager = programs.start(Program::Cloud, "cloud", &flags).await?;
    manager
        .logged(&format!(
            "leases.coordination.k8s.io \\\"{MIGRATION}\\\" is forbidden"
        ))
        .await?;
    // It is healthy, and no controller manager runs the controllers that migrate.
    manager
        .runs(&predicted(Program::Cloud, &model, &[NonMigrated]))
        .await?;

    permit(
        management,
        "migration-lock",
        "Role",
        &json!([
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [MIGRATION],
                "verbs": ["get", "update"]},
        ]),
    )
    .await?;
    manager
        .runs(&predicted(Program::Cloud, &model, &[NonMigrated, Migrated]))
        .await?;
    assert_eq!(locks.held(MIGRATION).await?, locks.held(main_lock).await?);
    Ok(())
}

/// Creates a role for the user of the cloud-controller-manager.
async fn permit(
    management: &ManagementCluster,
    name: &str,
    kind: &str,
    rules: &serde_json::Value,
) -> Result<()> {
    let name = format!("{NAMESPACE}-{name}");
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let role = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": Program::Cloud.user()}],
    });
    written(
        management.kubectl(),
        "create",
        &[role, binding],
        &["-n", NAMESPACE],
    )
    .await?;
    Ok(())
}

/// Lets cloud-controller-manager hold its main lock in kube-system and write Nodes, with the permissions of its own user.
pub(super) async fn permit_main_lock(kubectl: &Kubectl) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let user = json!({"apiGroup": group, "kind": "User", "name": Program::Cloud.user()});
    let name = Program::Cloud.name();
    let objects = [
        (
            "ClusterRole",
            json!([{"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["get", "list", "watch", "patch",
                "update"]}]),
        ),
        (
            "Role",
            json!([
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [name],
                    "verbs": ["get", "update"]},
            ]),
        ),
    ]
    .into_iter()
    .flat_map(|(kind, rules)| {
        let role = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "rules": rules});
        let binding = json!({
            "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": kind, "name": name}, "subjects": [user],
        });
        [role, binding]
    });
    let objects: Vec<Value> = objects.collect();
    written(kubectl, "create", &objects, &["-n", "kube-system"]).await?;
    Ok(())
}
