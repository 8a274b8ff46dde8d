//! `leader-migration rbac`.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    commands::leader_migration::arguments::RbacArguments, printer::yaml, session::Session, verdict::Verdict,
};

/// The name of the Role and the `RoleBinding`.
const NAME: &str = "leader-migration";

const GROUP: &str = "rbac.authorization.k8s.io";

/// Runs `leader-migration rbac`.
///
/// # Errors
/// The result cannot be printed.
pub(super) fn run(arguments: &RbacArguments, session: &Session) -> anyhow::Result<Verdict> {
    session
        .terminal
        .print(&manifests(arguments)?)
        .context("cannot write to stdout")?;
    Ok(Verdict::Met)
}

/// A Role of its own, because a patch of the system's roles replaces their rules, and the API server restores them when it
/// restarts.
fn manifests(arguments: &RbacArguments) -> anyhow::Result<String> {
    let lease = &arguments.leader_name;
    let metadata = json!({"name": NAME, "namespace": "kube-system"});
    let role = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "Role",
        "metadata": metadata,
        // RBAC cannot limit the creation of an object by its name.
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [lease], "verbs": ["get", "update"]},
        ],
    });
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": NAME},
        "subjects": [user("system:kube-controller-manager"), cloud(arguments)],
    });
    let as_cloud = match &arguments.ccm_service_account {
        Some((namespace, name)) => format!("system:serviceaccount:{namespace}:{name}"),
        None => arguments.ccm_user.clone(),
    };
    Ok(format!(
        "# Before and after you apply this to the workload cluster, check each permission with:\n\
         #   kubectl auth can-i update leases.coordination.k8s.io/{lease} -n kube-system --as system:kube-controller-manager\n\
         #   kubectl auth can-i update leases.coordination.k8s.io/{lease} -n kube-system --as {as_cloud}\n\
         {}---\n{}",
        yaml(&role)?,
        yaml(&binding)?
    ))
}

fn user(name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": "User", "name": name})
}

fn cloud(arguments: &RbacArguments) -> Value {
    match &arguments.ccm_service_account {
        Some((namespace, name)) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
        None => user(&arguments.ccm_user),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(service_account: Option<(&str, &str)>) -> RbacArguments {
        RbacArguments {
            leader_name: "ipam-migration".to_owned(),
            ccm_user: "system:cloud-controller-manager".to_owned(),
            ccm_service_account: service_account
                .map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        }
    }

    #[test]
    fn both_controller_managers_may_use_the_migration_lock() {
        insta::assert_snapshot!(manifests(&arguments(None)).unwrap());
    }

    #[test]
    fn a_service_account_is_a_subject_of_its_own_kind() {
        assert_eq!(
            cloud(&arguments(Some(("kube-system", "ccm")))),
            json!({"kind": "ServiceAccount", "name": "ccm", "namespace": "kube-system"})
        );
    }
}
