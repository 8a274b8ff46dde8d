//! Deletes objects.

use kube::{
    Resource as _,
    api::{DeleteParams, DynamicObject, Preconditions},
    core::{ApiResource, Request},
};
use serde_json::Value;

use crate::{
    Action, Connection, Error,
    request::check_safe_in_url,
    written::{Written, classify_write},
};

/// A deletion of the object that was read.
#[derive(Clone, Copy, Debug)]
pub struct DeleteRequest<'d> {
    pub resource: &'d ApiResource,
    /// The namespace of the object. `None` for a cluster-scoped kind.
    pub namespace: Option<&'d str>,
    pub name: &'d str,
    /// The uid of the object to delete. If another object has the name by now, the server rejects the
    /// deletion (409).
    pub uid: &'d str,
    /// The resource version of the object. If the object has changed since, the server rejects the deletion (409). `None`
    /// deletes any version.
    pub resource_version: Option<&'d str>,
    /// Whether the server only checks the deletion and does not perform it.
    pub dry_run: bool,
}

impl DeleteRequest<'_> {
    fn parameters(&self) -> DeleteParams {
        DeleteParams {
            dry_run: self.dry_run,
            preconditions: Some(Preconditions {
                uid: Some(self.uid.to_owned()),
                resource_version: self.resource_version.map(str::to_owned),
            }),
            ..DeleteParams::default()
        }
    }
}

impl Connection {
    /// Deletes one object. Like [`Connection::patch`], never retries the request.
    pub async fn delete(&self, delete: &DeleteRequest<'_>) -> Result<Written, Error> {
        let DeleteRequest {
            resource,
            namespace,
            name,
            ..
        } = *delete;
        let action = Action::new("delete", resource).within(namespace).with_name(name);
        check_safe_in_url(&action)?;
        let requests = Request::new(DynamicObject::url_path(resource, namespace));
        let request = requests.delete(name, &delete.parameters());
        let answer = self.call(&action, async {
            // The response is the object while it has finalizers, otherwise a Status.
            self.client
                .request::<Value>(request.map_err(kube::Error::BuildRequest)?)
                .await
        });
        classify_write(answer.await, delete.dry_run)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use kcp_api::kind::MACHINE;
    use kube::core::ApiResource;
    use serde_json::{Value, json};

    use super::DeleteRequest;
    use crate::{Connection, Error, Written, testing::failure};

    fn machine(resource: &ApiResource) -> DeleteRequest<'_> {
        DeleteRequest {
            resource,
            namespace: Some("d"),
            name: "m1",
            uid: "u",
            resource_version: Some("7"),
            dry_run: false,
        }
    }

    fn delete(answer: (u16, Value)) -> Result<Written, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let connection = Connection::canned(move |method, path| {
                let machine = "/apis/cluster.x-k8s.io/v1beta2/namespaces/d/machines/m1";
                assert_eq!((method, path), (&Method::DELETE, machine));
                answer.clone()
            });
            connection
                .delete(&machine(&MACHINE.api_resource("v1beta2")))
                .await
        })
    }

    #[test]
    fn what_comes_of_a_deletion() {
        let (_, mut gone) = failure(404, "NotFound", "machines \"m1\" not found");
        gone["details"] = json!({"name": "m1"});
        assert!(matches!(delete((200, json!({}))), Ok(Written::Stored)));
        assert!(matches!(delete((404, gone)), Err(Error::NotFound { .. })));
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

    #[test]
    fn only_what_was_read_is_deleted() {
        let machines = MACHINE.api_resource("v1beta2");
        for (dry_run, sent) in [(false, json!(null)), (true, json!(["All"]))] {
            let delete = DeleteRequest {
                dry_run,
                ..machine(&machines)
            };
            let body = serde_json::to_value(delete.parameters()).expect("serializes");
            assert_eq!(
                body.get("preconditions"),
                Some(&json!({"uid": "u", "resourceVersion": "7"}))
            );
            assert_eq!(body.get("dryRun").unwrap_or(&json!(null)), &sent);
        }
    }
}
