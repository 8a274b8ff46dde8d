//! The permissions that controller managers need for the migration lock. A separate Role and `RoleBinding`
//! grant them, because a patch of the system's roles would replace the rules of these roles, and the API
//! server restores the system's roles when it restarts.

use kcp_rules::leader_migration::Lock;
use serde_json::{Value, json};

/// The API group of Roles and `RoleBinding`s.
pub const RBAC: &str = "rbac.authorization.k8s.io";

/// The API group of Leases.
pub const LEASES: &str = "coordination.k8s.io";

/// The name of the Role, and of the `RoleBinding`.
const ROLE_NAME: &str = "leader-migration";

/// The user that a controller manager authenticates as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    User(String),
    ServiceAccount { namespace: String, name: String },
}

impl Identity {
    /// The user name that the API server sees.
    pub fn user(&self) -> String {
        match self {
            Self::User(name) => name.clone(),
            Self::ServiceAccount { namespace, name } => format!("system:serviceaccount:{namespace}:{name}"),
        }
    }

    fn subject(&self) -> Value {
        match self {
            Self::User(name) => json!({"apiGroup": RBAC, "kind": "User", "name": name}),
            Self::ServiceAccount { namespace, name } => {
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
        }
    }
}

/// Returns the Role with the permissions for a lock.
pub fn role(lock: &Lock) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "Role",
        "metadata": {"name": ROLE_NAME, "namespace": lock.namespace},
        "rules": [
            {"apiGroups": [LEASES], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": [LEASES], "resources": ["leases"], "resourceNames": [lock.name], "verbs": ["get", "update"]},
        ],
    })
}

/// Returns the `RoleBinding` that gives the Role to identities.
pub fn role_binding(lock: &Lock, identities: &[Identity]) -> Value {
    let subjects: Vec<Value> = identities.iter().map(Identity::subject).collect();
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "RoleBinding",
        "metadata": {"name": ROLE_NAME, "namespace": lock.namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": ROLE_NAME},
        "subjects": subjects,
    })
}
