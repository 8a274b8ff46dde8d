//! Creates objects that may exist already.

use kube::core::ApiResource;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    Connection, Error,
    written::{Written, written},
};

/// An object to create. It may be a Secret: there is no `Debug`.
#[derive(Clone, Copy)]
pub struct Create<'c> {
    pub resource: &'c ApiResource,
    /// None for a cluster-scoped kind.
    pub namespace: Option<&'c str>,
    /// With `apiVersion`, `kind` and `metadata.name`.
    pub object: &'c Value,
    pub field_manager: &'c str,
}

#[derive(Debug)]
pub enum Created {
    Stored,
    Exists,
    /// No answer, or one that does not say. The object may even be stored later.
    Unknown(Error),
}

impl Connection {
    /// Creates an object that may exist already.
    ///
    /// # Errors
    /// As [`Connection::patch`].
    pub async fn make(&self, create: &Create<'_>) -> Result<Created, Error> {
        let Create {
            resource,
            namespace,
            object,
            field_manager,
        } = *create;
        match self
            .create::<IgnoredAny>(resource, namespace, object, field_manager)
            .await
        {
            Ok(_) => Ok(Created::Stored),
            Err(error) => match written::<()>(Err(error), false)? {
                Written::Stored | Written::Changed => Ok(Created::Exists),
                Written::Unknown(error) => Ok(Created::Unknown(error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use kcp_api::Kind;
    use serde_json::{Value, json};

    use super::{Create, Created};
    use crate::{Connection, Error, canned::failure};

    const LEASE: Kind = Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        versions: &["v1"],
        product: "Kubernetes",
    };

    fn create(answer: (u16, Value)) -> Result<Created, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let connection = Connection::canned(move |method, path| {
                let collection = "/apis/coordination.k8s.io/v1/namespaces/d/leases";
                assert_eq!((method, path), (&Method::POST, collection));
                answer.clone()
            });
            let create = Create {
                resource: &LEASE.at("v1"),
                namespace: Some("d"),
                object: &json!({"metadata": {"name": "a"}}),
                field_manager: "kubectl-kcp",
            };
            connection.make(&create).await
        })
    }

    #[test]
    fn what_comes_of_making() {
        assert!(matches!(create((201, json!({"a": 1}))), Ok(Created::Stored)));
        assert!(matches!(
            create(failure(409, "AlreadyExists", "")),
            Ok(Created::Exists)
        ));
        assert!(matches!(
            create(failure(504, "Timeout", "")),
            Ok(Created::Unknown(_))
        ));
        assert_eq!(
            create(failure(403, "Forbidden", "")).unwrap_err().to_string(),
            "cannot create leases in namespace \"d\": forbidden"
        );
    }
}
