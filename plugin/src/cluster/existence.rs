//! Requests that make an object, or do away with one. Sent once, as patches are.

use std::fmt;

use kube::{
    Resource as _,
    api::{DeleteParams, DynamicObject, PostParams, Preconditions},
    core::{ApiResource, Request},
};
use serde_json::Value;

use super::{
    Action, Connection, Error,
    request::safe_in_url,
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

/// An object that is to go.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'d> {
    /// What it is.
    pub resource: &'d ApiResource,
    /// Where.
    pub namespace: &'d str,
    /// Which object.
    pub name: &'d str,
    /// Not another of the same name.
    pub uid: &'d str,
    /// The server refuses (409) once the object has changed; none where any version of it is to go.
    pub resource_version: Option<&'d str>,
}

impl Connection {
    /// Makes an object.
    ///
    /// # Errors
    /// As [`Connection::patch`].
    pub async fn create(&self, create: &Create<'_>) -> Result<Created, Error> {
        let mut action = Action::new("create", create.resource);
        action.namespace = create.namespace.map(str::to_owned);
        action.name = create
            .object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .map(str::to_owned);
        safe_in_url(&action)?;
        let parameters = PostParams {
            dry_run: false,
            field_manager: Some(create.field_manager.to_owned()),
        };
        let requests = Request::new(DynamicObject::url_path(create.resource, create.namespace));
        let request = requests.create(&parameters, create.object.to_string().into_bytes());
        let answer = self
            .call(&action, async {
                self.client
                    .request::<Value>(request.map_err(kube::Error::BuildRequest)?)
                    .await
            })
            .await;
        match answer {
            Ok(object) => Ok(Created::Stored(object)),
            Err(error) => match written::<()>(Err(error), false)? {
                Written::Stored | Written::Changed => Ok(Created::Exists),
                Written::Unknown(error) => Ok(Created::Unknown(error)),
            },
        }
    }

    /// Does away with an object, in the background. One that is gone already is [`Written::Stored`].
    ///
    /// # Errors
    /// As [`Connection::patch`].
    pub async fn delete(&self, delete: &Delete<'_>) -> Result<Written, Error> {
        let action = Action::new("delete", delete.resource)
            .in_namespace(delete.namespace)
            .named(delete.name);
        safe_in_url(&action)?;
        let parameters = DeleteParams::background().preconditions(Preconditions {
            uid: Some(delete.uid.to_owned()),
            resource_version: delete.resource_version.map(str::to_owned),
        });
        let requests = Request::new(DynamicObject::url_path(delete.resource, Some(delete.namespace)));
        let request = requests.delete(delete.name, &parameters);
        let answer = self.call(&action, async {
            self.client
                .request::<Value>(request.map_err(kube::Error::BuildRequest)?)
                .await
        });
        match answer.await {
            Err(Error::NotFound { .. }) => Ok(Written::Stored),
            answer => written(answer, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::{Create, Created, Delete};
    use crate::cluster::{Connection, Error, Kind, Written, canned::failure};

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
                assert!(
                    (method == Method::POST && path == collection)
                        || (method == Method::DELETE && path == format!("{collection}/a")),
                    "{method} {path}"
                );
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
            connection.create(&create).await
        })
    }

    fn delete(answer: (u16, Value)) -> Result<Written, Error> {
        run(answer, async |connection| {
            let delete = Delete {
                resource: &LEASE.at("v1"),
                namespace: "d",
                name: "a",
                uid: "u",
                resource_version: Some("7"),
            };
            connection.delete(&delete).await
        })
    }

    fn not_found() -> (u16, Value) {
        let (code, mut status) = failure(404, "NotFound", "leases \"a\" not found");
        status["details"] = json!({"name": "a"});
        (code, status)
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
            "cannot create leases \"a\" in namespace \"d\": forbidden"
        );
    }

    #[test]
    fn what_comes_of_doing_away() {
        assert!(matches!(delete((200, json!({}))), Ok(Written::Stored)));
        assert!(matches!(delete(not_found()), Ok(Written::Stored)));
        assert!(matches!(
            delete(failure(409, "Conflict", "")),
            Ok(Written::Changed)
        ));
        assert!(matches!(
            delete(failure(504, "Timeout", "")),
            Ok(Written::Unknown(_))
        ));
        assert!(matches!(
            delete(failure(403, "Forbidden", "")),
            Err(Error::Forbidden { .. })
        ));
    }
}
