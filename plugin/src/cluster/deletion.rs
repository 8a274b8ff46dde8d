//! Requests that delete objects.

use kube::{
    Resource as _,
    api::{DeleteParams, DynamicObject, Preconditions},
    core::{ApiResource, Request},
};
use serde_json::Value;

use super::{
    Action, Connection, Error,
    request::safe_in_url,
    written::{Written, written},
};

/// The deletion of one object as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'d> {
    /// What is deleted.
    pub resource: &'d ApiResource,
    /// Where.
    pub namespace: &'d str,
    /// Which object.
    pub name: &'d str,
    /// The server refuses it (409) for a later object of that name.
    pub uid: &'d str,
    /// The server refuses it (409) once the object has changed.
    pub resource_version: &'d str,
    /// Let the server judge and not delete.
    pub dry_run: bool,
}

impl Delete<'_> {
    fn parameters(&self) -> DeleteParams {
        DeleteParams {
            dry_run: self.dry_run,
            preconditions: Some(Preconditions {
                uid: Some(self.uid.to_owned()),
                resource_version: Some(self.resource_version.to_owned()),
            }),
            ..DeleteParams::default()
        }
    }
}

impl Connection {
    /// Deletes one object. Sent once, as [`Connection::patch`].
    ///
    /// # Errors
    /// As [`Connection::patch`].
    pub async fn delete(&self, delete: &Delete<'_>) -> Result<Written, Error> {
        let Delete {
            resource,
            namespace,
            name,
            ..
        } = *delete;
        let action = Action::new("delete", resource)
            .in_namespace(namespace)
            .named(name);
        safe_in_url(&action)?;
        let requests = Request::new(DynamicObject::url_path(resource, Some(namespace)));
        let request = requests.delete(name, &delete.parameters());
        let answer = self.call(&action, async {
            // The object while it has finalizers, and a Status once it has none.
            self.client
                .request::<Value>(request.map_err(kube::Error::BuildRequest)?)
                .await
        });
        written(answer.await, delete.dry_run)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Delete;
    use crate::cluster::MACHINE;

    #[test]
    fn only_what_was_read_is_deleted() {
        for (dry_run, sent) in [(false, json!(null)), (true, json!(["All"]))] {
            let delete = Delete {
                resource: &MACHINE.at("v1beta2"),
                namespace: "d",
                name: "m1",
                uid: "u",
                resource_version: "7",
                dry_run,
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
