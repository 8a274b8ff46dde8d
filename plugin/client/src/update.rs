//! Changes objects that other clients may change at the same time.
//!
//! [`update`] reads the object, lets the caller decide, and writes with the uid and resource version that it read.
//! After a conflict, it reads and decides again. If it gets no response to the write, it reads the object to find out
//! whether the write was stored. It never resends the write.

use kcp_api::{DecodeError, PartialObjectMetadata, decode};
use kube::core::{ApiResource, ObjectMeta};
use serde_json::json;

use kcp_control_plane::{
    change::decision::ObjectWrite,
    merge_patch,
    ownership::FieldConflict,
    review::server_rejection,
    snapshot::change::{ChangeSnapshot, MachineSnapshot},
};

use crate::{
    Connection, DeleteRequest, Error, PatchRequest, Written,
    retry::{CONFLICT_ATTEMPTS, conflict_backoff},
};

#[derive(Clone, Copy)]
pub struct UpdateTarget<'t> {
    pub connection: &'t Connection,
    pub resource: &'t ApiResource,
    /// The namespace of the object. `None` for a cluster-scoped kind.
    pub namespace: Option<&'t str>,
    pub name: &'t str,
    pub field_manager: &'t str,
    /// The verb that error messages name, such as `scale`.
    pub verb: &'t str,
    pub mode: WriteMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    Store,
    /// The server and its webhooks check the write, but the server does not store it.
    ServerDryRun,
    ClientDryRun,
}

/// The facts that a decision needs, including the object to change.
pub trait ReadObject {
    /// The JSON of the object to change, from the last read.
    fn object(&self) -> &str;

    /// The JSON of the object to change, from the first read. The last read may differ, because reading the other facts
    /// takes time.
    fn object_at_start(&self) -> &str {
        self.object()
    }
}

impl ReadObject for ChangeSnapshot {
    fn object(&self) -> &str {
        &self.json
    }

    fn object_at_start(&self) -> &str {
        &self.json_at_start
    }
}

impl ReadObject for MachineSnapshot {
    fn object(&self) -> &str {
        &self.object.json
    }

    fn object_at_start(&self) -> &str {
        &self.json_at_start
    }
}

/// What the caller of [`update`] has decided about the object.
#[derive(Debug)]
pub struct Change<D> {
    /// The write to send. `None` leaves the object unchanged.
    pub write: Option<ObjectWrite>,
    /// The caller's own data about the decision, which [`Updated`] returns.
    pub decision: D,
}

/// The outcome of [`update`], and the snapshot and decision on which it is based.
#[derive(Debug)]
pub struct Updated<S, D> {
    pub snapshot: S,
    pub decision: D,
    pub result: WriteResult,
    /// The spec fields that another client has changed since the first read, and that this change does not
    /// write, one line each.
    pub other_changes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult {
    NotWritten,
    /// The server has stored the write, unless this is a dry run.
    Stored,
    /// Why the server or a webhook rejected the write, one line for each reason.
    Rejected(Vec<String>),
    /// The fields that another client has changed after the check, and that this change also writes, one line
    /// each.
    Conflict(Vec<String>),
}

/// Reads an object, decides, and writes. Repeats this after a conflict. Fails if `read` or `decide` fails; the write fails; other
/// clients change the object before every attempt; or it is unknown whether the write was stored.
pub async fn update<S: ReadObject, D, E: From<Error>>(
    target: &UpdateTarget<'_>,
    mut read: impl AsyncFnMut() -> Result<S, E>,
    mut decide: impl FnMut(&S) -> Result<Change<D>, E>,
) -> Result<Updated<S, D>, E> {
    let mut delays = conflict_backoff();
    let mut last: Option<(S, Change<D>)> = None;
    let mut other_changes = Vec::new();
    loop {
        let snapshot = read().await?;
        if let Some((checked, Change { write, decision })) = last.take() {
            let conflict = conflict_between(checked.object(), snapshot.object(), write.as_ref());
            if !conflict.contested.is_empty() {
                return Ok(Updated {
                    snapshot,
                    decision,
                    result: WriteResult::Conflict(conflict.contested),
                    other_changes,
                });
            }
            other_changes.extend(conflict.others);
        }
        let Change { write, decision } = decide(&snapshot)?;
        let conflict = conflict_between(snapshot.object_at_start(), snapshot.object(), write.as_ref());
        other_changes.extend(conflict.others);
        let result = match &write {
            None => WriteResult::NotWritten,
            Some(_) if !conflict.contested.is_empty() => WriteResult::Conflict(conflict.contested),
            Some(write) => match target.write(snapshot.object(), write).await? {
                Attempt::Stored => WriteResult::Stored,
                Attempt::Rejected(why) => WriteResult::Rejected(why),
                Attempt::Changed => {
                    let Some(delay) = delays.next() else {
                        return Err(target.contended().into());
                    };
                    tokio::time::sleep(delay).await;
                    last = Some((
                        snapshot,
                        Change {
                            write: Some(write.clone()),
                            decision,
                        },
                    ));
                    continue;
                }
            },
        };
        return Ok(Updated {
            snapshot,
            decision,
            result,
            other_changes,
        });
    }
}

fn conflict_between(checked: &str, now: &str, write: Option<&ObjectWrite>) -> FieldConflict {
    FieldConflict::between(checked, now, write.unwrap_or(&ObjectWrite::Delete).fields())
}

enum Attempt {
    Stored,
    /// Another client has changed or deleted the object. Nothing is stored.
    Changed,
    Rejected(Vec<String>),
}

impl UpdateTarget<'_> {
    fn contended(&self) -> Error {
        Error::Contended {
            goal: format!("{} {}", self.verb, self.name),
            attempts: CONFLICT_ATTEMPTS,
        }
    }

    /// Sends one write, with the uid and resource version of `object`.
    async fn write(&self, object: &str, write: &ObjectWrite) -> Result<Attempt, Error> {
        if self.mode == WriteMode::ClientDryRun {
            return Ok(Attempt::Stored);
        }
        let before = self.metadata(object)?;
        let lost = match self.send(&before, write).await {
            Ok(Written::Stored) => return Ok(Attempt::Stored),
            Ok(Written::Changed) | Err(Error::NotFound { .. }) => return Ok(Attempt::Changed),
            Ok(Written::Unknown(error)) => error,
            Err(Error::Rejected { status, .. }) => return Ok(Attempt::Rejected(server_rejection(&status))),
            Err(error) => return Err(error),
        };
        let now = match self
            .connection
            .get_text_in(self.resource, self.namespace, self.name)
            .await
        {
            Ok(now) => Some(now),
            Err(Error::NotFound { .. }) => None,
            Err(_) => return Err(Error::outcome_unknown(self.connection, lost)),
        };
        match was_stored(now.as_deref(), &before, write) {
            Some(true) => Ok(Attempt::Stored),
            Some(false) => Ok(Attempt::Changed),
            None => Err(Error::outcome_unknown(self.connection, lost)),
        }
    }

    async fn send(&self, before: &ObjectMeta, write: &ObjectWrite) -> Result<Written, Error> {
        let dry_run = self.mode == WriteMode::ServerDryRun;
        match write {
            ObjectWrite::Delete => {
                let delete = DeleteRequest {
                    resource: self.resource,
                    namespace: self.namespace,
                    name: self.name,
                    uid: before.uid.as_deref().unwrap_or_default(),
                    resource_version: before.resource_version.as_deref(),
                    dry_run,
                };
                self.connection.delete(&delete).await
            }
            ObjectWrite::Patch { patch, subresource } => {
                let mut patch = patch.clone();
                let version = json!({"uid": before.uid, "resourceVersion": before.resource_version});
                merge_patch::apply(&mut patch, &json!({ "metadata": version }));
                let write = PatchRequest {
                    resource: self.resource,
                    namespace: self.namespace,
                    name: self.name,
                    subresource: *subresource,
                    patch: &patch,
                    field_manager: self.field_manager,
                    dry_run,
                };
                self.connection.patch(&write).await
            }
        }
    }

    fn metadata(&self, object: &str) -> Result<ObjectMeta, Error> {
        metadata(object).map_err(|source| {
            Error::malformed(
                crate::Action::new("get", self.resource)
                    .within(self.namespace)
                    .with_name(self.name),
                source,
            )
        })
    }
}

fn metadata(object: &str) -> Result<ObjectMeta, DecodeError> {
    decode(object).map(|object: PartialObjectMetadata| object.metadata)
}

/// Whether a write with the uid and resource version of `before` was stored, according to the current object
/// `now`. `now` is none if the object no longer exists. Returns none if the write may still be stored.
fn was_stored(now: Option<&str>, before: &ObjectMeta, write: &ObjectWrite) -> Option<bool> {
    let is_deletion = *write == ObjectWrite::Delete;
    let Some(now) = now else { return Some(is_deletion) };
    let current = metadata(now).ok()?;
    if current.uid != before.uid {
        // The object was deleted, and a new object has its name.
        return Some(is_deletion);
    }
    let was_stored = match write {
        ObjectWrite::Delete => current.deletion_timestamp.is_some(),
        ObjectWrite::Patch { patch, .. } => merge_patch::is_applied(&serde_json::from_str(now).ok()?, patch),
    };
    if was_stored {
        return Some(true);
    }
    // The object has a newer resource version, so the write can no longer succeed.
    let current = current.resource_version?;
    (Some(&current) != before.resource_version.as_ref()).then_some(false)
}

#[cfg(test)]
mod tests;
