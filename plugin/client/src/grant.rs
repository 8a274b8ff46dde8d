//! Creates a Role or a `RoleBinding`, or adds to an existing one.

use kcp_control_plane::{
    change::decision::ObjectWrite,
    leader_migration::permissions::{Grant, decide_grant},
};
use kube::core::ApiResource;
use serde_json::Value;

use crate::{
    Action, Connection, CreateRequest, CreateResult, Error,
    retry::CONFLICT_ATTEMPTS,
    update::{Change, ReadObject, Target, Updated, WriteMode, WriteResult, update},
};

/// What [`Grantor::grant`] did to a Role or `RoleBinding`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granted {
    Created,
    Extended,
    Unchanged,
    /// Nothing was written, for the reason in the text.
    Refused(String),
}

/// In which cluster and namespace to create or extend Roles and `RoleBindings`, and whether as a dry run.
#[derive(Clone, Copy)]
pub struct Grantor<'g> {
    pub connection: &'g Connection,
    pub namespace: &'g str,
    pub field_manager: &'g str,
    pub mode: WriteMode,
}

struct ObjectText(String);

impl ReadObject for ObjectText {
    fn object(&self) -> &str {
        &self.0
    }
}

impl Grantor<'_> {
    /// Creates a Role or `RoleBinding`, or adds what is missing to the existing one. Writes only the version
    /// that it read.
    ///
    /// # Errors
    /// The object cannot be read or written, or it is unknown whether it was written.
    pub async fn grant(&self, resource: &ApiResource, desired: &Value) -> Result<Granted, Error> {
        let name = desired
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // Another client may create or delete the object at any time.
        for _ in 0..CONFLICT_ATTEMPTS {
            match self.connection.get_text(resource, self.namespace, name).await {
                Ok(_) => {}
                Err(Error::NotFound { .. }) => match self.create(resource, desired).await? {
                    Some(granted) => return Ok(granted),
                    None => continue,
                },
                Err(error) => return Err(error),
            }
            match self.extend(resource, name, desired).await {
                Err(Error::NotFound { .. }) => {}
                outcome => return outcome,
            }
        }
        Err(Error::Contended {
            goal: format!("write {} {name}", resource.plural),
            attempts: CONFLICT_ATTEMPTS,
        })
    }

    /// Creates the object. None if it already exists.
    async fn create(&self, resource: &ApiResource, desired: &Value) -> Result<Option<Granted>, Error> {
        if self.mode == WriteMode::ClientDryRun {
            return Ok(Some(Granted::Created));
        }
        let create = CreateRequest {
            resource,
            namespace: Some(self.namespace),
            object: desired,
            field_manager: self.field_manager,
            dry_run: self.mode == WriteMode::ServerDryRun,
        };
        match self.connection.create_or_find(&create).await? {
            CreateResult::Created => Ok(Some(Granted::Created)),
            CreateResult::AlreadyExists => Ok(None),
            CreateResult::Unknown(source) => Err(Error::outcome_unknown(self.connection, source)),
        }
    }

    async fn extend(&self, resource: &ApiResource, name: &str, desired: &Value) -> Result<Granted, Error> {
        let target = Target {
            connection: self.connection,
            resource,
            namespace: Some(self.namespace),
            name,
            field_manager: self.field_manager,
            verb: "extend",
            mode: self.mode,
        };
        let read = async || {
            self.connection
                .get_text(resource, self.namespace, name)
                .await
                .map(ObjectText)
        };
        let decide = |text: &ObjectText| -> Result<Change<Grant>, Error> {
            let existing: Value = serde_json::from_str(&text.0).map_err(|error| Error::Other {
                action: Action::new("get", resource)
                    .in_namespace(self.namespace)
                    .with_name(name),
                cause: error.to_string(),
            })?;
            let decision = decide_grant(Some(&existing), desired);
            let write = match &decision {
                Grant::Extend(patch) => Some(ObjectWrite::Patch {
                    patch: patch.clone(),
                    subresource: None,
                }),
                Grant::Create | Grant::Unchanged | Grant::Refused(_) => None,
            };
            Ok(Change { write, decision })
        };
        let Updated { decision, result, .. } = update(&target, read, decide).await?;
        Ok(match (result, decision) {
            (WriteResult::Stored, _) => Granted::Extended,
            (WriteResult::Rejected(why) | WriteResult::Conflict(why), _) => Granted::Refused(why.join("; ")),
            (WriteResult::NotWritten, Grant::Refused(why)) => Granted::Refused(why),
            (WriteResult::NotWritten, _) => Granted::Unchanged,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Method;
    use kcp_control_plane::leader_migration::permissions::role;
    use kcp_rules::leader_migration::Lock;
    use serde_json::json;

    use super::*;
    use crate::{canned::failure, reads::leader_migration::permissions::ROLE};

    /// The requests to a server with this Role, and what `grant` did.
    fn granted(existing: Option<Value>, mode: WriteMode) -> (Vec<String>, Granted) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let granted = runtime.unwrap().block_on(async move {
            let connection = Connection::canned(move |method, _| {
                seen.lock().unwrap().push(method.to_string());
                match (method, &existing) {
                    (&Method::GET, None) => {
                        let (code, mut status) = failure(404, "NotFound", "not found");
                        status["details"] = json!({"name": "leader-migration"});
                        (code, status)
                    }
                    (&Method::GET | &Method::PATCH, Some(role)) => (200, role.clone()),
                    _ => (201, json!({})),
                }
            });
            let grantor = Grantor {
                connection: &connection,
                namespace: "kube-system",
                field_manager: "kubectl-kcp",
                mode,
            };
            grantor
                .grant(&ROLE.api_resource("v1"), &role(&lock("m")))
                .await
                .unwrap()
        });
        let requests = requests.lock().unwrap().clone();
        (requests, granted)
    }

    fn lock(name: &str) -> Lock {
        Lock {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn only_what_is_missing_is_written() {
        let with = |name: &str| {
            let mut role = role(&lock(name));
            role["metadata"]["uid"] = json!("u");
            role["metadata"]["resourceVersion"] = json!("7");
            Some(role)
        };
        for (existing, mode, requests, expected) in [
            (None, WriteMode::Store, vec!["GET", "POST"], Granted::Created),
            (None, WriteMode::ClientDryRun, vec!["GET"], Granted::Created),
            (
                with("m"),
                WriteMode::Store,
                vec!["GET", "GET"],
                Granted::Unchanged,
            ),
            (
                with("other"),
                WriteMode::Store,
                vec!["GET", "GET", "PATCH"],
                Granted::Extended,
            ),
            (
                with("other"),
                WriteMode::ClientDryRun,
                vec!["GET", "GET"],
                Granted::Extended,
            ),
        ] {
            let requests = requests.into_iter().map(str::to_owned).collect();
            assert_eq!(granted(existing, mode), (requests, expected));
        }
    }
}
