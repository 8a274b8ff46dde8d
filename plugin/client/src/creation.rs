//! Creates objects that may already exist.

use kube::{api::PostParams, core::ApiResource};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    Connection, Error,
    written::{Written, classify_write},
};

/// An object to create. It has no `Debug`, because the object may be a Secret.
#[derive(Clone, Copy)]
pub struct CreateRequest<'c> {
    pub resource: &'c ApiResource,
    /// The namespace of the object. `None` for a cluster-scoped kind.
    pub namespace: Option<&'c str>,
    /// The object's JSON, with `apiVersion`, `kind` and `metadata.name`.
    pub object: &'c Value,
    pub field_manager: &'c str,
    /// Whether the server only checks the object and does not store it.
    pub dry_run: bool,
}

#[derive(Debug)]
pub enum CreateResult {
    Created,
    AlreadyExists,
    /// The server neither confirmed nor rejected the write, so the object may be stored now or later.
    Unknown(Error),
}

impl Connection {
    /// Creates an object, and succeeds if it already exists.
    pub async fn create_or_find(&self, create: &CreateRequest<'_>) -> Result<CreateResult, Error> {
        let CreateRequest {
            resource,
            namespace,
            object,
            field_manager,
            dry_run,
        } = *create;
        let parameters = PostParams {
            field_manager: Some(field_manager.to_owned()),
            dry_run,
        };
        match self
            .create_with::<IgnoredAny>(resource, namespace, object, &parameters)
            .await
        {
            Ok(_) => Ok(CreateResult::Created),
            Err(error) => match classify_write::<()>(Err(error), dry_run)? {
                Written::Stored | Written::Changed => Ok(CreateResult::AlreadyExists),
                Written::Unknown(error) => Ok(CreateResult::Unknown(error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use kcp_api::Kind;
    use serde_json::{Value, json};

    use super::{CreateRequest, CreateResult};
    use crate::{Connection, Error, testing::failure};

    const LEASE: Kind = Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        versions: &["v1"],
        product: "Kubernetes",
    };

    fn create(answer: (u16, Value)) -> Result<CreateResult, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let connection = Connection::canned(move |method, path| {
                let collection = "/apis/coordination.k8s.io/v1/namespaces/d/leases";
                assert_eq!((method, path), (&Method::POST, collection));
                answer.clone()
            });
            let create = CreateRequest {
                resource: &LEASE.api_resource("v1"),
                namespace: Some("d"),
                object: &json!({"metadata": {"name": "a"}}),
                field_manager: "kubectl-kcp",
                dry_run: false,
            };
            connection.create_or_find(&create).await
        })
    }

    #[test]
    fn what_comes_of_making() {
        assert!(matches!(
            create((201, json!({"a": 1}))),
            Ok(CreateResult::Created)
        ));
        assert!(matches!(
            create(failure(409, "AlreadyExists", "")),
            Ok(CreateResult::AlreadyExists)
        ));
        assert!(matches!(
            create(failure(504, "Timeout", "")),
            Ok(CreateResult::Unknown(_))
        ));
        assert_eq!(
            create(failure(403, "Forbidden", "")).unwrap_err().to_string(),
            "cannot create leases in namespace \"d\": forbidden"
        );
    }
}
