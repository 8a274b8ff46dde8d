//! Reads an object, lets a verb decide what to change, and writes the change.

use std::cell::RefCell;

use jiff::Timestamp;
use kcp_api::{
    Kind, KubeadmControlPlane, Object as _,
    kind::{CLUSTER, KUBEADM_CONTROL_PLANE, MACHINE},
};
use kcp_rules::{Configuration, view::View};
use kube::core::ApiResource;

use crate::{change::arguments::WriteArguments, terminal::Terminal};
use kcp_client::{
    Error,
    events::Events,
    reader::Reader,
    reads::{
        change::{LIMIT, read_control_plane_alone, read_everything},
        machine::{FoundMachine, ReadMachineError, read_concurrent_deletions, read_machine},
    },
    update::{Change, ReadObject, UpdateTarget, Updated, WriteMode, WriteResult, update},
};
use kcp_control_plane::{
    change::{
        cluster_write::{in_cluster, is_written_to_cluster},
        decision::{ChangeEvent, Decision, ObjectReference, ObjectWrite, Proposal, Refusal, RefusedBy},
        replacement::apply_replacement_refusal,
    },
    review::ReviewContext,
    snapshot::change::{ChangeSnapshot, MachineSnapshot, ReadScope},
};

/// The hint about `--force` for verbs that change a control plane.
pub const FORCE_EFFECT: &str = "use --force to write the change anyway; the controller carries it out once Cluster \
    API's preflight checks pass";

/// A verb such as `scale`, with the texts that report its result.
#[derive(Clone, Copy, Debug)]
pub struct Verb<'v> {
    pub name: &'v str,
    /// The verb before the object's name in error messages, such as `scale`.
    pub infinitive: &'static str,
    /// The text after the object's name if the verb changed nothing, such as `not scaled to 5`.
    pub not_done: &'v str,
    /// The hint about `--force`; `None` if the verb does not have that flag.
    pub force_effect: Option<&'static str>,
    /// Whether the verb is refused while a Machine is being replaced. `false` if the verb costs etcd no member.
    pub waits_for_replacement: bool,
}

/// Everything that a change needs: the connection, the flags, and the output.
#[derive(Clone, Copy)]
pub struct Engine<'e> {
    pub reader: &'e Reader<'e>,
    pub terminal: &'e Terminal,
    pub arguments: &'e WriteArguments,
    /// The webhook's configuration; `None` if the user did not pass it.
    pub configuration: Option<&'e Configuration>,
}

/// What a verb did to an object, or why it did nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    pub kind: &'static Kind,
    pub name: String,
    /// The JSON of the object on which the verb decided.
    pub json: String,
    /// The name of the control plane; `None` for a Machine without one.
    pub control_plane: Option<String>,
    pub warnings: Vec<String>,
    pub consequences: Vec<String>,
    pub outcome: ChangeOutcome,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ChangeOutcome {
    /// The object already is in the requested state, which the text describes.
    Unchanged(String),
    /// The verb refused the change, so nothing was sent to the server.
    Refused(Refusal),
    /// The server or a webhook rejected the change. Contains the reasons, one line each.
    Rejected(Vec<String>),
    /// Another client changed the object at the same time. Contains the changed fields, one line each.
    Conflict(Vec<String>),
    /// The change was written, or in a dry run could be written.
    Done { done: String, write: ObjectWrite },
}

/// What to read before a change of a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineScope {
    /// Read the Machine, and everything about its control plane. This queries etcd, which takes seconds.
    Machine,
    MachineAndHealthChecks,
    /// Read everything, and announce on the control plane that the Machine is being replaced.
    Replacement,
}

/// The objects to which an Event refers: the control plane, and the Machine if one was changed.
struct EventReferences {
    regarding: ObjectReference,
    related: Option<ObjectReference>,
}

/// A control plane that the topology of a Cluster manages, and the JSON of this Cluster. The change writes the Cluster.
struct ClusterSnapshot {
    control_plane: ChangeSnapshot,
    cluster: String,
}

impl ReadObject for ClusterSnapshot {
    fn object(&self) -> &str {
        &self.cluster
    }
}

impl Engine<'_> {
    /// Lets a verb change a control plane. If Cluster API's topology controller sets the changed fields, the verb changes the
    /// Cluster instead.
    pub async fn change_control_plane(
        &self,
        verb: &Verb<'_>,
        scope: ReadScope,
        decide: impl Fn(&ChangeSnapshot, ReviewContext<'_>) -> anyhow::Result<Decision>,
    ) -> anyhow::Result<Changed> {
        self.change_control_plane_from(None, verb, scope, decide).await
    }

    /// Like [`Self::change_control_plane`]. If `first` is given, the verb decides on it first, before anything is read.
    pub(super) async fn change_control_plane_from(
        &self,
        first: Option<ChangeSnapshot>,
        verb: &Verb<'_>,
        scope: ReadScope,
        decide: impl Fn(&ChangeSnapshot, ReviewContext<'_>) -> anyhow::Result<Decision>,
    ) -> anyhow::Result<Changed> {
        let first = match first {
            Some(first) => first,
            None => Box::pin(self.read(verb.name, scope)).await?,
        };
        let decide = |snapshot: &ChangeSnapshot| {
            let view = snapshot.view();
            let decision = decide(snapshot, self.context(&view))?;
            let refusal = self.refusal_during_replacement(verb, snapshot, None);
            Ok(apply_replacement_refusal(decision, refusal))
        };
        let references = |snapshot: &ChangeSnapshot| EventReferences {
            regarding: self.control_plane_reference(snapshot.control_plane()),
            related: None,
        };
        let manager = &self.arguments.field_manager;
        let is_written_to_cluster = first.observed.has_managed_topology()
            && is_written_to_cluster(&decide(&first)?, &first.json, manager)?;
        let cluster = first.control_plane().cluster().map(str::to_owned);
        let mut first = Some(first);
        let read = async || {
            let snapshot = match first.take() {
                Some(first) => first,
                None => Box::pin(self.read(verb.name, scope)).await?,
            };
            if verb.waits_for_replacement {
                Box::pin(self.withdraw_abandoned_replacement(&snapshot, None)).await?;
            }
            anyhow::Ok(snapshot)
        };
        if let Some(cluster) = cluster.filter(|_| is_written_to_cluster) {
            let changed = self.change_cluster(verb, &cluster, read, decide, references);
            return Box::pin(changed).await;
        }
        let resource = &self.reader.control_plane_resource;
        let updated = Box::pin(self.apply(verb, resource, read, decide, references)).await?;
        let control_plane = Some(updated.snapshot.control_plane().name().to_owned());
        Ok(Changed::new(
            &KUBEADM_CONTROL_PLANE,
            verb.name,
            control_plane,
            updated,
        ))
    }

    /// Lets a verb change the Cluster of a control plane.
    async fn change_cluster(
        &self,
        verb: &Verb<'_>,
        cluster: &str,
        mut read_control_plane: impl AsyncFnMut() -> anyhow::Result<ChangeSnapshot>,
        decide_control_plane: impl Fn(&ChangeSnapshot) -> anyhow::Result<Decision>,
        control_plane_references: impl Fn(&ChangeSnapshot) -> EventReferences,
    ) -> anyhow::Result<Changed> {
        let connection = self.reader.connection;
        let resource = &self.reader.cluster_resource;
        let read = async || {
            // The control plane is read last, because reading etcd takes seconds, and the write depends on the Cluster that was read.
            let cluster = connection
                .get_text(resource, &connection.namespace, cluster)
                .await?;
            let control_plane = read_control_plane().await?;
            anyhow::Ok(ClusterSnapshot {
                control_plane,
                cluster,
            })
        };
        let decide = |snapshot: &ClusterSnapshot| {
            let ClusterSnapshot {
                control_plane,
                cluster,
            } = snapshot;
            let decision = decide_control_plane(control_plane)?;
            let manager = &self.arguments.field_manager;
            Ok(in_cluster(decision, &control_plane.json, cluster, manager)?)
        };
        let references = |snapshot: &ClusterSnapshot| control_plane_references(&snapshot.control_plane);
        let cluster_verb = Verb {
            name: cluster,
            ..*verb
        };
        let updated = self
            .apply(&cluster_verb, resource, read, decide, references)
            .await?;
        let control_plane = Some(verb.name.to_owned());
        Ok(Changed::new(&CLUSTER, cluster, control_plane, updated))
    }

    /// Lets a verb change a Machine of a control plane.
    pub async fn change_machine(
        &self,
        verb: &Verb<'_>,
        scope: MachineScope,
        decide: impl Fn(&MachineSnapshot, Timestamp) -> Decision,
    ) -> anyhow::Result<Changed> {
        let decide = |found: &FoundMachine| self.decide_machine(verb, found, &decide);
        let announced = RefCell::new(None);
        let read = async || match scope {
            MachineScope::Replacement => Box::pin(self.read_and_announce(verb, &announced, &decide)).await,
            MachineScope::Machine => Box::pin(self.read_machine(verb, false)).await,
            MachineScope::MachineAndHealthChecks => Box::pin(self.read_machine(verb, true)).await,
        };
        let decide = |found: &FoundMachine| Ok(decide(found));
        let references = |found: &FoundMachine| match found {
            FoundMachine::OfControlPlane(machine) => EventReferences {
                regarding: self.control_plane_reference(machine.control_plane_snapshot.control_plane()),
                related: Some(ObjectReference::new(
                    &machine.object,
                    &MACHINE,
                    &self.reader.machine_resource.api_version,
                )),
            },
            FoundMachine::Other { .. } => EventReferences {
                regarding: ObjectReference::default(),
                related: None,
            },
        };
        let resource = &self.reader.machine_resource;
        let updated = self.apply(verb, resource, read, decide, references).await;
        let is_deleted = self.arguments.mode() == WriteMode::Store
            && updated.as_ref().is_ok_and(|updated| {
                let write = match &updated.decision {
                    Decision::Write(proposal) => Some(&proposal.write),
                    Decision::Unchanged(_) | Decision::Refused(_) => None,
                };
                write == Some(&ObjectWrite::Delete) && updated.result == WriteResult::Stored
            });
        if let Some(replacement) = announced.take().filter(|_| !is_deleted) {
            self.withdraw_own_replacement(&replacement).await;
        }
        let updated = updated?;
        let (mut control_plane, mut warnings) = (None, Vec::new());
        if let FoundMachine::OfControlPlane(machine) = &updated.snapshot {
            control_plane = Some(machine.control_plane_snapshot.control_plane().name().to_owned());
            if is_deleted {
                warnings = read_concurrent_deletions(machine, self.reader).await;
            }
        }
        let mut changed = Changed::new(&MACHINE, verb.name, control_plane, updated);
        changed.warnings.extend(warnings);
        Ok(changed)
    }

    /// Reads a Machine, its control plane, and everything else on which a change of the Machine depends.
    pub(crate) async fn read_machine(
        &self,
        verb: &Verb<'_>,
        with_health_checks: bool,
    ) -> anyhow::Result<FoundMachine> {
        let read = read_machine(self.reader, verb.name, with_health_checks);
        read.await.map_err(into_error)
    }

    pub(crate) fn decide_machine(
        &self,
        verb: &Verb<'_>,
        found: &FoundMachine,
        decide: impl Fn(&MachineSnapshot, Timestamp) -> Decision,
    ) -> Decision {
        let machine = match found {
            FoundMachine::OfControlPlane(machine) => machine,
            FoundMachine::Other { why, .. } => {
                return Decision::Refused(Refusal::new(RefusedBy::Command, vec![why.clone()]));
            }
        };
        let decision = decide(machine, self.now());
        let refusal = self.refusal_during_replacement(
            verb,
            &machine.control_plane_snapshot,
            Some(machine.object.name()),
        );
        apply_replacement_refusal(decision, refusal)
    }

    /// Reads the object, lets the verb decide, and writes the change. Records an Event if the change was written.
    async fn apply<S: ReadObject>(
        &self,
        verb: &Verb<'_>,
        resource: &ApiResource,
        read: impl AsyncFnMut() -> anyhow::Result<S>,
        decide: impl Fn(&S) -> anyhow::Result<Decision>,
        references: impl Fn(&S) -> EventReferences,
    ) -> anyhow::Result<Updated<S, Decision>> {
        let namespace = &self.reader.connection.namespace;
        let mode = self.arguments.mode();
        let target = UpdateTarget {
            connection: self.reader.connection,
            resource,
            namespace: Some(namespace),
            name: verb.name,
            field_manager: &self.arguments.field_manager,
            verb: verb.infinitive,
            mode,
        };
        let decide = |snapshot: &S| {
            let decision = decide(snapshot)?;
            if let Decision::Write(proposal) = &decision {
                self.warn(&proposal.warnings);
            }
            let write = match &decision {
                Decision::Write(Proposal { write, .. }) => Some(write.clone()),
                Decision::Unchanged(_) | Decision::Refused(_) => None,
            };
            if write.is_some() && mode == WriteMode::Store {
                let control_plane = references(snapshot).regarding.name;
                self.terminal.set_interrupt_note(format!(
                    "the change may already be stored; check with: kubectl kcp status {control_plane} -n {namespace}"
                ));
            }
            Ok(Change { write, decision })
        };
        let updated: Updated<S, Decision> = update(&target, read, decide).await?;
        if let (Decision::Write(proposal), WriteResult::Stored, WriteMode::Store) =
            (&updated.decision, &updated.result, mode)
        {
            self.record(&proposal.event, &references(&updated.snapshot)).await;
        }
        Ok(updated)
    }

    /// The API server's time, or the local time if the server has not responded yet.
    pub(crate) fn now(&self) -> Timestamp {
        self.reader.connection.now()
    }

    /// Prints the warnings that this command has not printed before.
    pub(crate) fn warn(&self, warnings: &[String]) {
        for warning in warnings {
            self.terminal.warning_once(warning);
        }
    }

    /// The context in which the admission rules check the write.
    pub(crate) fn context<'v>(&'v self, view: &'v View) -> ReviewContext<'v> {
        ReviewContext {
            now: self.now(),
            field_manager: &self.arguments.field_manager,
            view,
            configuration: self.configuration,
        }
    }

    /// Reads the objects on which a change with this scope depends.
    pub(crate) async fn read(&self, name: &str, scope: ReadScope) -> Result<ChangeSnapshot, Error> {
        let namespace = &self.reader.connection.namespace;
        if scope != ReadScope::All {
            let snapshot = read_control_plane_alone(self.reader, namespace, name, LIMIT).await?;
            if scope.needs_control_plane_only(snapshot.control_plane(), self.now()) {
                return Ok(snapshot);
            }
        }
        read_everything(self.reader, namespace, name, LIMIT).await
    }

    /// Records an Event about the change. A failure is only a warning, because the change is already stored.
    async fn record(&self, event: &ChangeEvent, EventReferences { regarding, related }: &EventReferences) {
        let events = Events {
            connection: self.reader.connection,
            field_manager: &self.arguments.field_manager,
        };
        if let Err(error) = events.write(event, regarding, related.as_ref()).await {
            self.terminal
                .warning(&format!("could not record an Event for the change: {error}"));
        }
    }

    fn control_plane_reference(&self, control_plane: &KubeadmControlPlane) -> ObjectReference {
        ObjectReference::new(
            control_plane,
            &KUBEADM_CONTROL_PLANE,
            &self.reader.control_plane_resource.api_version,
        )
    }
}

impl Changed {
    /// The result of a verb whose confirmation prompt the user answered with no.
    pub(crate) fn unconfirmed(
        kind: &'static Kind,
        name: &str,
        object: &str,
        control_plane: &KubeadmControlPlane,
    ) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            json: object.to_owned(),
            control_plane: Some(control_plane.name().to_owned()),
            warnings: Vec::new(),
            consequences: Vec::new(),
            outcome: ChangeOutcome::Refused(Refusal::unconfirmed()),
        }
    }

    /// The result of a verb that did not write the control plane.
    pub(crate) fn without_write(snapshot: &ChangeSnapshot, outcome: ChangeOutcome) -> Self {
        Self {
            kind: &KUBEADM_CONTROL_PLANE,
            name: snapshot.control_plane().name().to_owned(),
            json: snapshot.json.clone(),
            control_plane: Some(snapshot.control_plane().name().to_owned()),
            warnings: Vec::new(),
            consequences: Vec::new(),
            outcome,
        }
    }

    fn new<S: ReadObject>(
        kind: &'static Kind,
        name: &str,
        control_plane: Option<String>,
        updated: Updated<S, Decision>,
    ) -> Self {
        let Updated {
            snapshot,
            decision,
            result,
            other_changes,
        } = updated;
        let (mut warnings, mut consequences) = (Vec::new(), Vec::new());
        let outcome = match (decision, result) {
            (Decision::Unchanged(why), _) => ChangeOutcome::Unchanged(why),
            (Decision::Refused(mut refusal), _) => {
                // Also list what other clients changed, because that may be why the verb now refuses.
                refusal.why.extend(other_changes);
                ChangeOutcome::Refused(refusal)
            }
            (Decision::Write(_), WriteResult::Conflict(fields)) => ChangeOutcome::Conflict(fields),
            (Decision::Write(proposal), result) => {
                warnings = other_changes;
                warnings.extend(proposal.warnings);
                consequences = proposal.consequences;
                match result {
                    WriteResult::Rejected(why) => ChangeOutcome::Rejected(why),
                    _ => ChangeOutcome::Done {
                        done: proposal.outcome,
                        write: proposal.write,
                    },
                }
            }
        };
        Self {
            kind,
            name: name.to_owned(),
            json: snapshot.object().to_owned(),
            control_plane,
            warnings,
            consequences,
            outcome,
        }
    }
}

/// The inner error, so that the command prints its hint.
pub(crate) fn into_error(error: ReadMachineError) -> anyhow::Error {
    match error {
        ReadMachineError::NoSuchMachine(error) => error.into(),
        ReadMachineError::Other(error) => error.into(),
    }
}
