//! A change of one Machine: read, decided on, and written under the version that was read; all anew when others have
//! written in between.

use serde_json::{Value, json};

use super::read::{Found, begun_beside, read_machine_situation};
use crate::{arguments::DryRun, edit, terminal::Terminal};
use kcp_client::{Delete, Error, Write, Written, events::Events, reader::Reader};
use kcp_control_plane::verbs::machine::{
    decision::{Decision, MachineWrite, Proposal},
    object::MachineObject,
    situation::MachineSituation,
};
use kcp_control_plane::{
    change::decision::{Refusal, RefusedBy},
    judgement::rejection,
    merge_patch,
};

/// How often a Machine is read and judged anew when somebody else writes to it between our read and our write.
/// Controllers write its status several times a second at most, and only in bursts.
const ATTEMPTS: usize = 5;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was as wanted.
    Unchanged {
        /// Why that is so.
        why: String,
        /// The Machine, as the server wrote it.
        object: String,
    },
    /// Not sent.
    Refused(Refusal),
    /// Refused by the server or a webhook, and why, a line each.
    Rejected(Vec<String>),
    /// It was made, or would be if this were no dry run.
    Made {
        /// The Machine when that was decided, as the server wrote it.
        object: String,
        /// What was written to it, or would be; none where it is deleted.
        patch: Option<Value>,
    },
}

/// What came of it, and on what ground.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Changed {
    /// The control plane of the Machine; none where it has none.
    pub(super) control_plane: Option<String>,
    /// What is said without refusing it.
    pub(super) warnings: Vec<String>,
    /// What comes of it that one has to know.
    pub(super) consequences: Vec<String>,
    /// What came of it.
    pub(super) outcome: Outcome,
}

impl Changed {
    fn without_write(control_plane: Option<String>, outcome: Outcome) -> Self {
        Self {
            control_plane,
            warnings: Vec::new(),
            consequences: Vec::new(),
            outcome,
        }
    }
}

/// A change of a Machine that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineChange<'c> {
    /// Of which Machine.
    pub(super) name: &'c str,
    /// What is done to it, for messages: `replace`.
    pub(super) verb: &'static str,
    /// Where it ends, if it is to change nothing.
    pub(super) dry_run: Option<DryRun>,
    /// Recorded by the server.
    pub(super) field_manager: &'c str,
    /// Whether it is judged on the `MachineHealthChecks` too.
    pub(super) with_health_checks: bool,
}

impl MachineChange<'_> {
    /// Makes the change that `decide` makes of a Machine and what surrounds it.
    ///
    /// # Errors
    /// When nothing could be decided, or it is not known whether the change was made.
    pub(super) async fn make(
        &self,
        reader: &Reader<'_>,
        terminal: &Terminal,
        decide: impl Fn(&MachineSituation) -> Decision,
    ) -> anyhow::Result<Changed> {
        let Self { name, verb, .. } = self;
        for _ in 0..ATTEMPTS {
            let read = read_machine_situation(reader, name, self.with_health_checks);
            let of = match Box::pin(read).await? {
                Found::Ours(of) => of,
                Found::NotOurs(why) => {
                    let refusal = Refusal::new(RefusedBy::Command, vec![why]);
                    return Ok(Changed::without_write(None, Outcome::Refused(refusal)));
                }
            };
            let control_plane = Some(of.situation.control_plane().name.clone());
            let without_write = |outcome| Ok(Changed::without_write(control_plane.clone(), outcome));
            let proposal = match decide(&of) {
                Decision::Unchanged(why) => {
                    let object = of.object.text;
                    return without_write(Outcome::Unchanged { why, object });
                }
                Decision::Refused(refusal) => return without_write(Outcome::Refused(refusal)),
                Decision::Write(proposal) => proposal,
            };
            if let Some(outcome) = self.attempt(reader, terminal, &of, &proposal).await? {
                let mut warnings = proposal.warnings;
                let is_made = matches!(outcome, Outcome::Made { .. });
                if is_made && proposal.write == MachineWrite::Delete && self.dry_run.is_none() {
                    warnings.extend(begun_beside(&of, reader).await);
                }
                return Ok(Changed {
                    control_plane,
                    warnings,
                    consequences: proposal.consequences,
                    outcome,
                });
            }
        }
        Err(Error::Contended {
            goal: format!("{verb} {name}"),
            attempts: ATTEMPTS,
        }
        .into())
    }

    /// Writes, as far as this is no dry run, and tells of it; none when others have written meanwhile.
    async fn attempt(
        &self,
        reader: &Reader<'_>,
        terminal: &Terminal,
        of: &MachineSituation,
        proposal: &Proposal,
    ) -> Result<Option<Outcome>, Error> {
        let control_plane = of.situation.control_plane();
        let made = || Outcome::Made {
            object: of.object.text.clone(),
            patch: proposal.write.patch().cloned(),
        };
        match self.dry_run {
            Some(DryRun::Client) => return Ok(Some(made())),
            Some(DryRun::Server) => {}
            None => terminal.on_interrupt(format!(
                "the change may have been accepted already; look with: kubectl kcp status {} -n {}",
                control_plane.name, control_plane.namespace
            )),
        }
        match self.write(reader, &of.object, &proposal.write).await {
            Ok(Fate::Made) => {}
            Ok(Fate::Overtaken) => return Ok(None),
            Err(Error::Rejected { status, .. }) => return Ok(Some(Outcome::Rejected(rejection(&status)))),
            Err(error) => return Err(error),
        }
        if self.dry_run.is_none() {
            let events = Events {
                connection: reader.connection,
                field_manager: self.field_manager,
            };
            let regarding = edit::subject(control_plane, &reader.control_planes.api_version);
            let related = of.object.subject(&reader.machines.api_version);
            if let Err(error) = events
                .write(&proposal.occurrence, &regarding, Some(&related))
                .await
            {
                terminal.warning(&format!("no Event tells of the change: {error}"));
            }
        }
        Ok(Some(made()))
    }

    /// Writes once. When the answer is lost the object is read back.
    async fn write(
        &self,
        reader: &Reader<'_>,
        object: &MachineObject,
        write: &MachineWrite,
    ) -> Result<Fate, Error> {
        let connection = reader.connection;
        let namespace = &connection.namespace;
        let dry_run = self.dry_run == Some(DryRun::Server);
        let written = match write {
            MachineWrite::Delete => {
                let delete = Delete {
                    resource: &reader.machines,
                    namespace,
                    name: self.name,
                    uid: &object.uid,
                    resource_version: Some(&object.resource_version),
                    dry_run,
                };
                connection.delete(&delete).await
            }
            MachineWrite::Patch(patch) => {
                let mut patch = patch.clone();
                let version =
                    json!({"metadata": {"uid": object.uid, "resourceVersion": object.resource_version}});
                merge_patch::apply(&mut patch, &version);
                let write = Write {
                    resource: &reader.machines,
                    namespace,
                    name: self.name,
                    subresource: None,
                    patch: &patch,
                    field_manager: self.field_manager,
                    dry_run,
                };
                connection.patch(&write).await
            }
        };
        let lost = match written {
            Ok(Written::Stored) => return Ok(Fate::Made),
            // Another has deleted it: whether that is what was wanted is decided anew.
            Ok(Written::Changed) | Err(Error::NotFound { .. }) => return Ok(Fate::Overtaken),
            Ok(Written::Unknown(error)) => error,
            Err(error) => return Err(error),
        };
        let fate = match connection.get_text(&reader.machines, namespace, self.name).await {
            Ok(now) => fate(&now, object, write),
            Err(Error::NotFound { .. }) => Some(Fate::of_what_is_gone(write)),
            Err(_) => None,
        };
        fate.ok_or_else(|| Error::OutcomeUnknown {
            source: Box::new(lost),
        })
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is in the object, or the object is gone as it was to be.
    Made,
    /// It is not, and never will be: the version that it was made under has passed.
    Overtaken,
}

impl Fate {
    const fn of_what_is_gone(write: &MachineWrite) -> Self {
        match write {
            MachineWrite::Delete => Self::Made,
            MachineWrite::Patch(_) => Self::Overtaken,
        }
    }
}

/// What a Machine that is read after a write tells of that write; none when it may be stored yet.
fn fate(now: &str, before: &MachineObject, write: &MachineWrite) -> Option<Fate> {
    let object = MachineObject::decode(now).ok()?;
    if object.uid != before.uid {
        return Some(Fate::of_what_is_gone(write));
    }
    let is_made = match write {
        MachineWrite::Delete => object.is_deleting,
        MachineWrite::Patch(patch) => merge_patch::is_applied(&serde_json::from_str(now).ok()?, patch),
    };
    if is_made {
        return Some(Fate::Made);
    }
    (object.resource_version != before.resource_version).then_some(Fate::Overtaken)
}

#[cfg(test)]
mod tests;
