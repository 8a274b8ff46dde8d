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

/// The verbs that a controller manager uses on the Lease of a lock. RBAC cannot limit the verb `create` to an object's name.
pub const VERBS: [&str; 3] = ["create", "get", "update"];

/// The user that a controller manager authenticates as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    User(String),
    ServiceAccount { namespace: String, name: String },
}

/// How a Role or `RoleBinding` must change so that it contains the desired rules or subjects.
#[derive(Clone, Debug, PartialEq)]
pub enum Grant {
    Create,
    Unchanged,
    /// The object must be merge-patched so that its list contains the missing items.
    Extend(Value),
    /// The object cannot be extended, for the reason in the text.
    Refused(String),
}

impl Identity {
    /// The user name that the API server sees.
    pub fn user(&self) -> String {
        match self {
            Self::User(name) => name.clone(),
            Self::ServiceAccount { namespace, name } => format!("system:serviceaccount:{namespace}:{name}"),
        }
    }

    /// The groups to which the API server adds the user.
    pub fn groups(&self) -> Vec<String> {
        let mut groups = vec!["system:authenticated".to_owned()];
        if let Self::ServiceAccount { namespace, .. } = self {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        groups
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

/// Decides how to change the existing Role or `RoleBinding` so that it contains all rules or subjects of the
/// desired one. The object keeps the items that it has.
pub fn decide_grant(existing: Option<&Value>, desired: &Value) -> Grant {
    let Some(existing) = existing else {
        return Grant::Create;
    };
    if existing.get("roleRef") != desired.get("roleRef") {
        return Grant::Refused(format!(
            "RoleBinding {ROLE_NAME} refers to another role; delete the RoleBinding, or recreate it under another \
             name"
        ));
    }
    let list = if desired.get("rules").is_some() {
        "rules"
    } else {
        "subjects"
    };
    let items = |object: &Value| {
        let items = object.get(list).and_then(Value::as_array);
        items.cloned().unwrap_or_default()
    };
    let mut all = items(existing);
    let missing: Vec<Value> = items(desired)
        .into_iter()
        .filter(|item| !all.contains(item))
        .collect();
    if missing.is_empty() {
        return Grant::Unchanged;
    }
    all.extend(missing);
    Grant::Extend(json!({ list: all }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str) -> Lock {
        Lock {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_role_is_created_or_extended_and_keeps_its_rules() {
        let desired = role(&lock("m"));
        assert_eq!(decide_grant(None, &desired), Grant::Create);
        assert_eq!(decide_grant(Some(&desired), &desired), Grant::Unchanged);
        let mut other = role(&lock("other"));
        other["metadata"]["resourceVersion"] = json!("7");
        let rule = |name: &str| role(&lock(name))["rules"][1].clone();
        let create = desired["rules"][0].clone();
        assert_eq!(
            decide_grant(Some(&other), &desired),
            Grant::Extend(json!({"rules": [create, rule("other"), rule("m")]}))
        );
    }

    #[test]
    fn a_role_binding_is_extended_unless_it_refers_to_another_role() {
        let user = Identity::User("system:kube-controller-manager".to_owned());
        let account = Identity::ServiceAccount {
            namespace: "kube-system".to_owned(),
            name: "ccm".to_owned(),
        };
        assert_eq!(account.user(), "system:serviceaccount:kube-system:ccm");
        let existing = role_binding(&lock("m"), std::slice::from_ref(&user));
        let desired = role_binding(&lock("m"), &[user.clone(), account.clone()]);
        assert_eq!(
            decide_grant(Some(&existing), &desired),
            Grant::Extend(json!({"subjects": [user.subject(), account.subject()]}))
        );
        let mut foreign = existing;
        foreign["roleRef"]["name"] = json!("admin");
        assert!(matches!(
            decide_grant(Some(&foreign), &desired),
            Grant::Refused(_)
        ));
    }
}
