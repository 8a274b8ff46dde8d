//! Announces the replacement of a Machine on its control plane, so that two commands never delete two Machines at the
//! same time.

use kcp_api::Object as _;
use kcp_client::{
    Error, Write, Written,
    reads::machine::{FoundMachine, read_machines_again},
    retry::{CONFLICT_ATTEMPTS, after_conflicts},
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

impl Engine<'_> {
    /// The refusal of a verb while a Machine other than `target` is being replaced; `None` if no other is.
    pub(crate) fn refusal_during_replacement(
        &self,
        verb: &Verb<'_>,
        snapshot: &ChangeSnapshot,
        target: Option<&str>,
    ) -> Option<Refusal> {
        let applies = verb.waits_for_replacement && snapshot.machines_read;
        applies
            .then(|| refusal_during_replacement(&snapshot.observed, target, self.now()))
            .flatten()
    }

    /// Writes to the Machine of an abandoned replacement. If the command that abandoned it still deletes the Machine, the
    /// deletion then fails with a conflict.
    ///
    /// # Errors
    /// The Machine cannot be written.
    pub(super) async fn withdraw_abandoned_replacement(
        &self,
        snapshot: &ChangeSnapshot,
        target: Option<&str>,
    ) -> Result<(), Error> {
        let state = replacement_state(&snapshot.observed, target, self.now());
        let (ReplacementState::Abandoned(replacement), WriteMode::Store) = (state, self.arguments.mode())
        else {
            return Ok(());
        };
        let patch = with_uid(replacement.withdrawal(), &replacement.uid, None);
        match self
            .patch(&self.reader.machines, &replacement.machine, &patch)
            .await
        {
            // If the Machine no longer exists, a late deletion does no harm.
            Ok(Written::Stored | Written::Changed) | Err(Error::NotFound { .. }) => Ok(()),
            Ok(Written::Unknown(error)) | Err(error) => Err(error),
        }
    }

    /// Reads a Machine. If the verb deletes the Machine, announces its replacement on the control plane, with a write that
    /// requires the resourceVersion that was checked. Then reads the Machines again, because another command may have
    /// deleted one.
    ///
    /// # Errors
    /// The Machine cannot be read, or its control plane cannot be written.
    pub(super) async fn read_and_announce(
        &self,
        verb: &Verb<'_>,
        decide: impl Fn(&FoundMachine) -> Decision,
    ) -> anyhow::Result<FoundMachine> {
        let mut delays = after_conflicts();
        loop {
            let mut found = self.read_machine(verb, false).await?;
            let is_written = matches!(decide(&found), Decision::Write(_));
            let FoundMachine::OfControlPlane(machine) = &mut found else {
                return Ok(found);
            };
            if !is_written || self.arguments.mode() != WriteMode::Store {
                return Ok(found);
            }
            let target = machine.object.name().to_owned();
            self.withdraw_abandoned_replacement(&machine.context, Some(&target))
                .await?;
            match self.announce(machine).await? {
                Written::Stored => {
                    read_machines_again(self.reader, machine).await?;
                    return Ok(found);
                }
                Written::Changed | Written::Unknown(_) => {}
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

    async fn announce(&self, machine: &MachineSnapshot) -> Result<Written, Error> {
        let control_plane = machine.context.control_plane();
        let replacement = Replacement::new(&machine.object.machine, self.now());
        let patch = with_uid(
            replacement.announcement(),
            control_plane.uid(),
            Some(control_plane.resource_version()),
        );
        self.patch(&self.reader.control_planes, control_plane.name(), &patch)
            .await
    }

    async fn patch(&self, resource: &ApiResource, name: &str, patch: &Value) -> Result<Written, Error> {
        let connection = self.reader.connection;
        let write = Write {
            resource,
            namespace: &connection.namespace,
            name,
            subresource: None,
            patch,
            field_manager: &self.arguments.field_manager,
            dry_run: false,
        };
        connection.patch(&write).await
    }
}

/// Adds the uid to a patch, so that it applies to this object only. With `resource_version`, it applies to this version
/// only.
fn with_uid(mut patch: Value, uid: &str, resource_version: Option<&str>) -> Value {
    let metadata = match resource_version {
        Some(version) => json!({"uid": uid, "resourceVersion": version}),
        None => json!({ "uid": uid }),
    };
    merge_patch::apply(&mut patch, &json!({ "metadata": metadata }));
    patch
}
