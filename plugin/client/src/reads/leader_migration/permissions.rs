//! Asks the API server what controller managers may do with the Lease of a migration lock.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kcp_api::Kind;
use kcp_control_plane::leader_migration::permissions::{Identity, LEASES, RBAC, VERBS};
use kcp_rules::leader_migration::Lock;
use serde_json::json;

use crate::{Connection, Error};

const fn kind(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        kind,
        plural,
        versions: &["v1"],
        product: "Kubernetes",
    }
}

pub const ROLE: Kind = kind(RBAC, "Role", "roles");

pub const ROLE_BINDING: Kind = kind(RBAC, "RoleBinding", "rolebindings");

pub const LEASE: Kind = kind(LEASES, "Lease", "leases");

const REVIEW: Kind = kind(
    "authorization.k8s.io",
    "SubjectAccessReview",
    "subjectaccessreviews",
);

/// Whether an identity may use a verb on the Lease of a migration lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    pub user: String,
    pub verb: &'static str,
    pub is_allowed: bool,
}

/// Asks the API server of a workload cluster, for each identity and each verb, whether the identity may use
/// the verb on the Lease.
///
/// # Errors
/// A `SubjectAccessReview` cannot be created.
pub async fn read_permissions(
    cluster: &Connection,
    identities: &[Identity],
    lock: &Lock,
    field_manager: &str,
) -> Result<Vec<Permission>, Error> {
    let mut found = Vec::new();
    for identity in identities {
        for verb in VERBS {
            // RBAC cannot restrict `create` to a name.
            let name = if verb == "create" { "" } else { lock.name.as_str() };
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": REVIEW.kind,
                "spec": {
                    "user": identity.user(),
                    "groups": identity.groups(),
                    "resourceAttributes": {"group": LEASES, "resource": "leases", "namespace": lock.namespace,
                        "name": name, "verb": verb},
                },
            });
            let reviewed: SubjectAccessReview = cluster
                .create(&REVIEW.api_resource("v1"), None, &review, field_manager)
                .await?;
            found.push(Permission {
                user: identity.user(),
                verb,
                is_allowed: reviewed.status.is_some_and(|status| status.allowed),
            });
        }
    }
    Ok(found)
}
