//! The JSON of `rollout history`: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use serde::Serialize;

use crate::commands::rollout::history::{
    History,
    generation::{Generation, Member},
};
use crate::{
    commands::plan::document::Described,
    document::{Document, ObjectName},
};
use kcp_control_plane::{
    plan::rollout_reason::{Gap, Reason},
    rollout_events::{DeletedMachine, RolloutEvent},
};

/// Existing Machines, grouped by version, template and state.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RolloutHistory<'h> {
    metadata: ObjectName,
    /// When someone last requested a rollout of every Machine, or when a planned rollout begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_after: Option<Timestamp>,
    /// The generations of existing Machines, oldest first.
    generations: Vec<GenerationDocument<'h>>,
    /// The Machines that no longer exist, according to Events. Absent if the Events could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_machines: Option<&'h [DeletedMachine]>,
    /// The Events about the control plane and its Machines, oldest first. Absent if they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<&'h [RolloutEvent]>,
}

impl Document for RolloutHistory<'_> {
    const KIND: &'static str = "RolloutHistory";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct GenerationDocument<'h> {
    current: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'h str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<TemplateName<'h>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_to: Option<Timestamp>,
    machines: Vec<MachineDocument<'h>>,
    reasons: Vec<Described<Reason>>,
    gaps: Vec<Described<Gap>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct TemplateName<'h> {
    /// The kind and the API group of the template, as `Kind.group`.
    group_kind: String,
    name: &'h str,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MachineDocument<'h> {
    name: &'h str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleting_since: Option<Timestamp>,
}

impl<'h> RolloutHistory<'h> {
    /// Creates the JSON document of a history.
    pub fn new(history: &'h History) -> Self {
        let events = history.events.as_ref();
        Self {
            deleted_machines: events.map(|events| &events.deleted_machines[..]),
            events: events.map(|events| &events.events[..]),
            metadata: ObjectName {
                name: history.name.clone(),
                namespace: history.namespace.clone(),
            },
            rollout_after: history.rollout_after,
            generations: history.generations.iter().map(GenerationDocument::new).collect(),
        }
    }
}

impl<'h> GenerationDocument<'h> {
    fn new(generation: &'h Generation) -> Self {
        let (from, to) = generation.creation_times().unzip();
        let reasons = generation.reasons.iter();
        let gaps = generation.gaps.iter();
        Self {
            current: generation.is_current(),
            version: generation.version.as_deref(),
            template: generation.template.as_ref().map(|template| TemplateName {
                group_kind: template.group_kind(),
                name: &template.name,
            }),
            created_from: from,
            created_to: to,
            machines: generation.members.iter().map(MachineDocument::new).collect(),
            reasons: reasons
                .map(|reason| Described::new(reason.clone(), reason.message(), None))
                .collect(),
            gaps: gaps
                .map(|gap| Described::new(gap.clone(), gap.message().to_owned(), None))
                .collect(),
        }
    }
}

impl<'h> MachineDocument<'h> {
    fn new(member: &'h Member) -> Self {
        Self {
            name: &member.name,
            created: member.created,
            deleting_since: member.deleting_since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RolloutHistory;
    use crate::{
        commands::rollout::history::{
            generation::tests::{events_during_rollout, snapshot_during_rollout},
            history,
        },
        document::Versioned,
        printer::json,
        testing::{assert_every_format, schema},
    };
    use kcp_control_plane::testing::objects::now;

    #[test]
    fn the_schema_is_checked_in() {
        schema::checked_in::<RolloutHistory<'_>>("rollouthistory.json");
    }

    #[test]
    fn a_rollout_in_the_middle() {
        let history = history(&snapshot_during_rollout(), Some(events_during_rollout()), now());
        schema::conforms(&RolloutHistory::new(&history));
        assert_every_format(&history);
        insta::assert_snapshot!(json(&Versioned(RolloutHistory::new(&history))).expect("serializes"));
    }
}
