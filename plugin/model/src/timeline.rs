//! What happened to a control plane, as one list in the order of time.
//!
//! Three sources record it: the objects that exist, the last change of each of their conditions, and Events until they expire. None
//! of them is complete, so a [`Timeline`] says what it cannot know.

use jiff::Timestamp;
use kcp_api::{
    Condition, KubeadmControlPlane, Machine, Object as _, Remediation,
    kind::{KUBEADM_CONTROL_PLANE, MACHINE},
    names::annotation,
    snapshot_record::SnapshotRecord,
};
use kcp_rules::overrides::OverrideError;
use serde::Serialize;

use crate::{
    checks::finding::{machine_object, one_line},
    join_times::joined_at,
    ownership::FieldWriter,
    rollout_events::{JOINED, RolloutEvent, RolloutEvents},
    snapshot::{Reading, Snapshot},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// When it happened, or when an Event was reported first.
    pub at: Timestamp,
    /// When the Event was reported last. Absent if it was reported once, and for the other sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The object, as `Kind/name`.
    pub object: String,
    /// What happened, on one line.
    pub what: String,
    /// The field manager that wrote the object, or the controller that reported the Event. Absent if nothing records it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    pub source: EntrySource,
    pub warning: bool,
}

/// What records an entry. Entries with the same time are in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum EntrySource {
    /// A field or an annotation of an object that exists.
    Object,
    /// The last change of a condition.
    Condition,
    Event,
}

/// How far the Events of a namespace reach back. A timeline shows those about its control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EventReach {
    /// The number of Events in the namespace.
    pub count: usize,
    /// Whether the namespace has more Events than were counted.
    pub has_more: bool,
    /// The oldest of the times at which the counted Events were last reported. Absent if there is none. An API server deletes each
    /// Event when the same time has passed since its last report, so it still has all Events that were reported later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Oldest first.
    pub entries: Vec<TimelineEntry>,
    /// What the timeline cannot show: one sentence each, without a period.
    pub unknown: Vec<String>,
}

/// What a timeline is made of.
pub struct Records<'r> {
    pub observed: &'r Snapshot,
    /// The field managers of the control plane.
    pub writers: &'r [FieldWriter],
    /// The field managers of the Cluster. Not read if it has no topology.
    pub cluster_writers: &'r Reading<Vec<FieldWriter>>,
    /// The Events about the control plane and its Machines.
    pub events: &'r Reading<RolloutEvents>,
    /// The Events of the namespace.
    pub reach: &'r Reading<EventReach>,
}

/// Lists what happened to a control plane and its Machines since a time, or ever.
pub fn timeline(records: &Records<'_>, since: Option<Timestamp>, now: Timestamp) -> Timeline {
    let observed = records.observed;
    let reported = records.events.value();
    let reported: &[RolloutEvent] = reported.map_or(&[], |events| &events.events);
    let mut entries = of_control_plane(&observed.control_plane, now);
    for (object, writers) in all_writers(records) {
        entries.extend(writers.iter().filter_map(|writer| of_writer(writer, &object)));
    }
    for machine in &observed.machines {
        entries.extend(of_machine(machine, reported));
    }
    let remediations = remediations(observed);
    entries.extend(
        remediations
            .iter()
            .filter_map(|remediation| of_remediation(remediation, observed)),
    );
    entries.extend(reported.iter().map(TimelineEntry::of_event));
    entries.retain(|entry| since.is_none_or(|since| entry.until.unwrap_or(entry.at) >= since));
    sort(&mut entries);
    Timeline {
        entries,
        unknown: unknown(records, now),
    }
}

/// Sorts entries by time, then by source.
pub fn sort(entries: &mut [TimelineEntry]) {
    entries.sort_by(|one, other| {
        (one.at, one.source, &one.object, &one.what).cmp(&(
            other.at,
            other.source,
            &other.object,
            &other.what,
        ))
    });
}

fn of_object(time: Timestamp, object: &str, what: impl Into<String>) -> TimelineEntry {
    TimelineEntry {
        at: time,
        until: None,
        object: object.to_owned(),
        what: what.into(),
        who: None,
        source: EntrySource::Object,
        warning: false,
    }
}

/// The field managers of the control plane, and those of the Cluster if it has a topology.
fn all_writers<'r>(records: &Records<'r>) -> Vec<(String, &'r [FieldWriter])> {
    let control_plane = &records.observed.control_plane;
    let of_cluster = control_plane.cluster().zip(records.cluster_writers.value());
    let of_cluster = of_cluster.map(|(name, writers)| (format!("Cluster/{name}"), writers.as_slice()));
    let own = (object_of(control_plane), records.writers);
    [own].into_iter().chain(of_cluster).collect()
}

/// `None` if no time is recorded.
fn of_writer(writer: &FieldWriter, object: &str) -> Option<TimelineEntry> {
    let what = format!("last write of a manager that owns {}", writer.fields.join(", "));
    Some(TimelineEntry {
        who: Some(writer.manager.clone()),
        ..of_object(writer.last_write?, object, what)
    })
}

fn object_of(control_plane: &KubeadmControlPlane) -> String {
    format!("{}/{}", KUBEADM_CONTROL_PLANE.kind, control_plane.name())
}

fn of_control_plane(control_plane: &KubeadmControlPlane, now: Timestamp) -> Vec<TimelineEntry> {
    let object = &object_of(control_plane);
    let mut entries = of_life(control_plane, object);
    let requested = control_plane.spec.rollout_after.filter(|after| *after <= now);
    entries.extend(requested.map(|time| {
        of_object(
            time,
            object,
            "rollout of all Machines, as requested (rollout.after)",
        )
    }));
    let snapshot = SnapshotRecord::from_control_plane(control_plane, now);
    entries.extend(snapshot.map(|record| {
        let place = record
            .place
            .map_or_else(String::new, |place| format!(", in {place}"));
        let what = format!(
            "snapshot of etcd complete: from member {}, {} bytes{place}",
            record.member, record.bytes
        );
        of_object(record.completed, object, what)
    }));
    entries.extend(of_conditions(&control_plane.status.conditions, object));
    entries
}

fn of_machine(machine: &Machine, reported: &[RolloutEvent]) -> Vec<TimelineEntry> {
    let object = &machine_object(machine.name());
    let mut entries = of_life(machine, object);
    // The Event says the same, and names the node.
    let is_reported = reported
        .iter()
        .any(|event| event.kind == MACHINE.kind && event.name == machine.name() && event.reason == JOINED);
    let joined = joined_at(machine).filter(|_| !is_reported);
    entries.extend(joined.map(|time| {
        let node = machine.node().map_or_else(String::new, |node| format!(" {node}"));
        of_object(time, object, format!("node{node} joined"))
    }));
    entries.extend(of_conditions(&machine.status.conditions, object));
    entries
}

/// The creation of an object, and the request for its deletion.
fn of_life(metadata: &impl kcp_api::Object, object: &str) -> Vec<TimelineEntry> {
    let created = metadata.creation_timestamp();
    let deletion = metadata.deletion_timestamp();
    let created = created.map(|time| of_object(time, object, "created"));
    let deletion = deletion.map(|time| of_object(time, object, "deletion requested"));
    created.into_iter().chain(deletion).collect()
}

/// What is recorded about a remediation, and the Machine that replaces the deleted one, if it exists.
type RecordedRemediation<'o> = (Remediation, Option<&'o str>);

fn remediations(observed: &Snapshot) -> Vec<RecordedRemediation<'_>> {
    let current = observed.remediation_in_progress().map(|record| (record, None));
    let replaced = observed
        .machines
        .iter()
        .filter_map(|machine| Some((machine.remediation_for()?, Some(machine.name()))));
    current.into_iter().chain(replaced).collect()
}

/// The deletion of a Machine by a remediation. `None` if no time is recorded.
fn of_remediation(
    (record, replacement): &RecordedRemediation<'_>,
    observed: &Snapshot,
) -> Option<TimelineEntry> {
    let retry = match record.retry_count {
        0 => String::new(),
        number => format!(" (retry {number})"),
    };
    let replaced = replacement.map_or_else(
        || "not replaced yet".to_owned(),
        |name| format!("replaced by {name}"),
    );
    let mut machines = observed.machines.iter();
    let exists = machines.any(|machine| machine.name() == record.machine);
    let deleted = if exists { "" } else { " (deleted)" };
    let object = format!("{}{deleted}", machine_object(&record.machine));
    let what = format!("deletion by a remediation{retry}, {replaced}");
    Some(TimelineEntry {
        warning: true,
        ..of_object(record.timestamp?, &object, what)
    })
}

/// The last change of each condition. Conditions that changed to the same status at the same time are one entry, unless they have
/// messages.
fn of_conditions(conditions: &[Condition], object: &str) -> Vec<TimelineEntry> {
    let mut groups: Vec<(&Condition, Vec<&str>)> = Vec::new();
    for condition in conditions {
        let same = groups.iter_mut().find(|(first, _)| {
            first.message.is_empty()
                && condition.message.is_empty()
                && first.status == condition.status
                && first.last_transition_time == condition.last_transition_time
        });
        match same {
            Some((_, types)) => types.push(&condition.type_),
            None => groups.push((condition, vec![&condition.type_])),
        }
    }
    let entry = |(first, types): (&Condition, Vec<&str>)| {
        let changed = format!("{}: {}", types.join(", "), first.status.as_str());
        let what = match one_line(&first.message) {
            message if message.is_empty() => changed,
            message => format!("{changed}: {message}"),
        };
        Some(TimelineEntry {
            source: EntrySource::Condition,
            ..of_object(first.last_transition_time?, object, what)
        })
    };
    groups.into_iter().filter_map(entry).collect()
}

impl TimelineEntry {
    pub fn of_event(event: &RolloutEvent) -> Self {
        let deleted = if event.deleted { " (deleted)" } else { "" };
        let object = format!("{}/{}{deleted}", event.kind, event.name);
        Self {
            until: (event.last > event.first).then_some(event.last),
            who: event.reporter.clone(),
            source: EntrySource::Event,
            warning: event.warning,
            ..of_object(event.first, &object, format!("{}: {}", event.reason, event.note))
        }
    }
}

fn unknown(records: &Records<'_>, now: Timestamp) -> Vec<String> {
    let control_plane = &records.observed.control_plane;
    let mut unknown = Vec::new();
    if let Some(failure) = records.events.failure() {
        unknown.push(format!(
            "the Events about the control plane and its Machines could not be read: {}; so denials, drains, deleted Machines and \
             changes by this plugin are missing",
            failure.message
        ));
    } else {
        unknown.push(event_gap(records.reach, control_plane.namespace()));
    }
    unknown.push(
        "a condition shows only its last change, and a field manager only its last write; a manager is not listed if others have \
         since written all its fields; no object records what a write changed"
            .to_owned(),
    );
    let scaled = records.writers.iter().filter(|writer| writer.is_scale);
    unknown.extend(scaled.map(|writer| {
        format!(
            "{} has scaled the control plane; the API server records no time for it",
            writer.manager
        )
    }));
    let cluster = records.observed.cluster.failure();
    let cluster = cluster.or(records.cluster_writers.failure());
    unknown.extend(cluster.map(|failure| {
        format!(
            "the Cluster could not be read: {}; if it has a topology, changes of the Cluster are missing",
            failure.message
        )
    }));
    let mut remediations = remediations(records.observed).into_iter();
    if remediations.any(|(record, _)| record.timestamp.is_none()) {
        unknown.push("a remediation is missing, because its record has no time".to_owned());
    }
    unknown
        .push("kcp-webhook reports denials as Events only if its configuration sets denialEvents".to_owned());
    let overrides = control_plane
        .annotation(annotation::OVERRIDE_RULES)
        .unwrap_or_default();
    let overrides: Vec<String> = kcp_rules::overrides::parse(overrides, now)
        .filter_map(|entry| match entry {
            Ok(valid) => Some((valid.rule.id, valid.until)),
            Err(OverrideError::Expired { rule, until }) => Some((rule, until)),
            Err(_) => None,
        })
        .map(|(rule, until)| format!("{rule} until {until}"))
        .collect();
    if !overrides.is_empty() {
        unknown.push(format!(
            "an annotation overrides {}; the log of kcp-webhook says who has used it",
            overrides.join(", ")
        ));
    }
    unknown
}

/// Which Events may be missing, because the API server has deleted them.
fn event_gap(reach: &Reading<EventReach>, namespace: &str) -> String {
    let known = match reach.value() {
        Some(EventReach { oldest: None, .. }) => format!("namespace {namespace} has no Events"),
        Some(EventReach {
            count,
            has_more: false,
            oldest: Some(oldest),
        }) => format!("the {count} Events of namespace {namespace} reach back to {oldest}"),
        Some(EventReach { count, .. }) => format!(
            "namespace {namespace} has more than {count} Events, so it is unknown how far they reach back"
        ),
        None => {
            let reason = reach
                .failure()
                .map_or("no reason is known", |failure| failure.message.as_str());
            format!("it is unknown how far the Events of namespace {namespace} reach back: {reason}")
        }
    };
    format!(
        "{known}; an API server deletes them after an hour by default, so earlier denials, drains, deleted Machines and changes by \
         this plugin may be missing"
    )
}

#[cfg(test)]
mod tests;
