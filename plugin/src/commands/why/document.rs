//! The JSON of an explanation: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use kcp_control_plane::{
    checks::{actor::Actor, finding::CheckOutcome},
    inspection::Basis,
    why::{Cause, WhyState},
};
use serde::Serialize;

use super::{WhyReport, screen};
use crate::document::{Document, ObjectName};

/// Why nothing happens on a control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExplanationDocument<'w> {
    metadata: ObjectName,
    state: WhyState,
    basis: Basis,
    /// Who acts next. Absent if no action is needed, or if the state is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<Actor>,
    /// The answer in one sentence.
    text: String,
    /// The problem or the change that makes the actor act. Absent if no check found one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<CauseDocument<'w>>,
    /// What the actor does next. Absent if the cause says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'w str>,
    /// The effects of the cause, and other problems and changes.
    also: Vec<CauseDocument<'w>>,
    /// The time of a rollout that is planned for later.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_to_come: Option<Timestamp>,
    /// Says that kcp-webhook is disabled, and since when; no rule then checks changes. Absent if kcp-webhook is enabled, or if the
    /// user has no permission to read the webhook configurations.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_off: Option<&'w str>,
    /// Which release of Cluster API the answer follows, if the controller may be of another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    version_note: Option<String>,
}

impl Document for ExplanationDocument<'_> {
    const KIND: &'static str = "ControlPlaneExplanation";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Cause"))]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct CauseDocument<'w> {
    /// The id of the check that found the cause.
    check: &'static str,
    severity: CheckOutcome,
    /// The objects that the cause is about, as `Kind/name`.
    objects: &'w [String],
    message: &'w str,
    /// When the problem or the change began. Absent if no object records it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// The maximum time that the actor usually takes, in seconds. Absent if there is no usual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    usual_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'w str>,
}

impl<'w> ExplanationDocument<'w> {
    pub fn new(report: &WhyReport<'w>) -> Self {
        let explanation = report.explanation;
        Self {
            metadata: ObjectName::from(&report.observed.control_plane),
            state: explanation.state,
            basis: report.basis,
            actor: explanation.actor,
            text: screen::sentence(report),
            cause: explanation.cause.as_ref().map(CauseDocument::new),
            next: explanation.next_action.as_deref(),
            also: explanation.other_causes.iter().map(CauseDocument::new).collect(),
            rollout_to_come: explanation.planned_rollout_time,
            webhook_off: report.webhook_off,
            version_note: report.observed.version_note(),
        }
    }
}

impl<'w> CauseDocument<'w> {
    pub(in crate::commands) fn new(cause: &'w Cause) -> Self {
        Self {
            check: cause.check,
            severity: cause.outcome,
            objects: &cause.objects,
            message: &cause.message,
            since: cause.since,
            usual_seconds: cause.usual_time.map(|usual| usual.as_secs()),
            hint: cause.hint.as_deref(),
        }
    }
}
