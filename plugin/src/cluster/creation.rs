//! What comes of making an object.

use std::fmt;

use kube::core::ApiResource;
use serde_json::Value;

use super::{
    Connection, Error,
    written::{Written, written},
};

/// An object that is to be made. It may be a Secret: there is no `Debug`.
#[derive(Clone, Copy)]
pub struct Create<'c> {
    /// What it is.
    pub resource: &'c ApiResource,
    /// None for what is in no namespace.
    pub namespace: Option<&'c str>,
    /// With `apiVersion`, `kind` and `metadata.name`.
    pub object: &'c Value,
    /// Recorded by the server.
    pub field_manager: &'c str,
}

/// What came of it.
pub enum Created {
    /// As the server keeps it.
    Stored(Value),
    /// There is one of that name.
    Exists,
    /// Nobody knows: no answer, or none that tells. It may even be stored later.
    Unknown(Error),
}

impl fmt::Debug for Created {
    /// Without the object: it may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored(_) => f.write_str("Stored"),
            Self::Exists => f.write_str("Exists"),
            Self::Unknown(error) => f.debug_tuple("Unknown").field(error).finish(),
        }
    }
}

impl Connection {
    /// Makes an object, which may be there already.
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
        match self.create(resource, namespace, object, field_manager).await {
            Ok(object) => Ok(Created::Stored(object)),
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
    use serde_json::{Value, json};

    use super::{Create, Created};
    use crate::cluster::{Connection, Error, Kind, canned::failure};

    const LEASE: Kind = Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        versions: &["v1"],
        product: "Kubernetes",
    };

    fn run<T>(answer: (u16, Value), work: impl AsyncFnOnce(Connection) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let connection = Connection::canned(move |method, path| {
                let collection = "/apis/coordination.k8s.io/v1/namespaces/d/leases";
                assert_eq!((method, path), (&Method::POST, collection));
                answer.clone()
            });
            work(connection).await
        })
    }

    fn create(answer: (u16, Value)) -> Result<Created, Error> {
        run(answer, async |connection| {
            let object = json!({"metadata": {"name": "a"}});
            let create = Create {
                resource: &LEASE.at("v1"),
                namespace: Some("d"),
                object: &object,
                field_manager: "kubectl-kcp",
            };
            connection.make(&create).await
        })
    }

    #[test]
    fn what_comes_of_making() {
        let secret = create((201, json!({"data": "sesame"}))).unwrap();
        assert_eq!(format!("{secret:?}"), "Stored");
        assert!(matches!(create((201, json!({"a": 1}))), Ok(Created::Stored(object)) if object["a"] == 1));
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
