//! Announces the replacement of a Machine on its control plane, so that two commands never delete two Machines at the
//! same time.

use std::cell::RefCell;

use anyhow::Context as _;
use jiff::SignedDuration;
use kcp_api::Object as _;
use kcp_client::{
    Error, PatchRequest, Written,
    reads::machine::FoundMachine,
    retry::{CONFLICT_ATTEMPTS, conflict_backoff},
    update::WriteMode,
};
use kcp_control_plane::{
    change::{
        decision::{Decision, Refusal},
        replacement::{Replacement, ReplacementState, refusal_during_replacement, replacement_state},
    },
    merge_patch,
    snapshot::change::{ChangeSnapshot, MachineSnapshot},
};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::change::engine::{Engine, Verb};

/// How long the checks between the announcement and the deletion may take. A command that was suspended for longer checks
/// everything again, because members of etcd may have failed in the meantime. The reads themselves take 10 s at most.
const CHECKS_LIMIT: SignedDuration = SignedDuration::from_secs(15);

impl Engine<'_> {
    /// The refusal of a verb while a Machine other than `target` is being replaced; `None` if no other
    /// Machine is being replaced.
    pub(crate) fn refusal_during_replacement(
        &self,
        verb: &Verb<'_>,
        snapshot: &ChangeSnapshot,
        target: Option<&str>,
    ) -> Option<Refusal> {
        let applies = verb.waits_for_replacement && snapshot.are_machines_read;
        applies
            .then(|| refusal_during_replacement(&snapshot.observed, target, self.now()))
            .flatten()
    }

    /// Writes to the Machine of an abandoned replacement. If the command that abandoned the replacement still tries to delete the
    /// Machine, the deletion fails with a conflict.
    pub(super) async fn withdraw_abandoned_replacement(
        &self,
        snapshot: &ChangeSnapshot,
        target: Option<&str>,
    ) -> anyhow::Result<()> {
        let state = replacement_state(&snapshot.observed, target, self.now());
        let ReplacementState::Abandoned(replacement) = state else {
            return Ok(());
        };
        if self.arguments.mode() == WriteMode::ClientDryRun {
            return Ok(());
        }
        self.withdraw(&replacement).await.with_context(|| {
            format!(
                "cannot stop an earlier `machine replace`, which announced at {} that it would delete \
                 Machine {}, but has not deleted it",
                replacement.time, replacement.machine
            )
        })
    }

    /// Withdraws the announcement of a replacement that this command does not carry out.
    pub(super) async fn withdraw_own_replacement(&self, replacement: &Replacement) {
        if let Err(error) = self.withdraw(replacement).await {
            self.terminal.warning(&format!(
                "could not withdraw the announcement that Machine {} is being replaced: {error}; for up to \
                 two minutes, kubectl-kcp refuses other changes",
                replacement.machine
            ));
        }
    }

    async fn withdraw(&self, replacement: &Replacement) -> Result<(), Error> {
        let patch = with_uid(replacement.withdrawal(), &replacement.uid, None);
        match self
            .patch(&self.reader.machine_resource, &replacement.machine, &patch)
            .await
        {
            // If the Machine no longer exists, a late deletion does no harm.
            Ok(Written::Stored | Written::Changed) | Err(Error::NotFound { .. }) => Ok(()),
            Ok(Written::Unknown(error)) | Err(error) => Err(error),
        }
    }

    /// Reads a Machine. If the verb deletes the Machine, announces its replacement on the control plane, with
    /// a write that requires the resourceVersion that was checked. Then reads everything again, because
    /// another command may have deleted a Machine, and because a member of etcd may have failed. Stores the
    /// announcement in `announced`. In a server dry run, the server only checks whether the user is allowed
    /// to announce the replacement.
    pub(super) async fn read_and_announce(
        &self,
        verb: &Verb<'_>,
        announced: &RefCell<Option<Replacement>>,
        decide: impl Fn(&FoundMachine) -> Decision,
    ) -> anyhow::Result<FoundMachine> {
        let mut delays = conflict_backoff();
        loop {
            let found = self.read_machine(verb, false).await?;
            let is_written = matches!(decide(&found), Decision::Write(_));
            let FoundMachine::OfControlPlane(machine) = &found else {
                return Ok(found);
            };
            let mode = self.arguments.mode();
            if !is_written || mode == WriteMode::ClientDryRun {
                return Ok(found);
            }
            let target = machine.object.name().to_owned();
            self.withdraw_abandoned_replacement(&machine.control_plane_snapshot, Some(&target))
                .await?;
            let replacement = Replacement::new(&machine.object.machine, self.now());
            let started = self.now();
            let written = self.announce(machine, &replacement).await?;
            if mode == WriteMode::ServerDryRun && matches!(written, Written::Stored) {
                return Ok(found);
            }
            let uid = replacement.uid.clone();
            if mode == WriteMode::Store && !matches!(written, Written::Changed) {
                announced.replace(Some(replacement));
            }
            if matches!(written, Written::Stored) {
                let found = self.read_machine(verb, false).await?;
                let is_same = match &found {
                    FoundMachine::OfControlPlane(machine) => machine.object.uid() == uid,
                    FoundMachine::Other { .. } => true,
                };
                if is_same && self.now().duration_since(started) < CHECKS_LIMIT {
                    return Ok(found);
                }
            }
            let Some(delay) = delays.next() else {
                return Err(Error::Contended {
                    goal: format!("{} {target}", verb.infinitive),
                    attempts: CONFLICT_ATTEMPTS,
                }
                .into());
            };
            tokio::time::sleep(delay).await;
        }
    }

    async fn announce(&self, machine: &MachineSnapshot, replacement: &Replacement) -> Result<Written, Error> {
        let control_plane = machine.control_plane_snapshot.control_plane();
        let patch = with_uid(
            replacement.announcement(),
            control_plane.uid(),
            Some(control_plane.resource_version()),
        );
        self.patch(&self.reader.control_plane_resource, control_plane.name(), &patch)
            .await
    }

    async fn patch(&self, resource: &ApiResource, name: &str, patch: &Value) -> Result<Written, Error> {
        let connection = self.reader.connection;
        let write = PatchRequest {
            resource,
            namespace: Some(&connection.namespace),
            name,
            subresource: None,
            patch,
            field_manager: &self.arguments.field_manager,
            dry_run: self.arguments.mode() == WriteMode::ServerDryRun,
        };
        connection.patch(&write).await
    }
}

/// Adds the uid to a patch, so that the patch applies only to this object. With `resource_version`, the patch
/// applies only to this version.
fn with_uid(mut patch: Value, uid: &str, resource_version: Option<&str>) -> Value {
    let metadata = match resource_version {
        Some(version) => json!({"uid": uid, "resourceVersion": version}),
        None => json!({ "uid": uid }),
    };
    merge_patch::apply(&mut patch, &json!({ "metadata": metadata }));
    patch
}
