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
        let parameters = DeleteParams {
            dry_run: delete.dry_run,
            preconditions: Some(Preconditions {
                uid: Some(delete.uid.to_owned()),
                resource_version: Some(delete.resource_version.to_owned()),
            }),
            ..DeleteParams::default()
        };
        let requests = Request::new(DynamicObject::url_path(resource, Some(namespace)));
        let request = requests.delete(name, &parameters);
        let answer = self.call(&action, async {
            // The object while it has finalizers, and a Status once it has none.
            self.client
                .request::<Value>(request.map_err(kube::Error::BuildRequest)?)
                .await
        });
        written(answer.await, delete.dry_run)
    }
}
