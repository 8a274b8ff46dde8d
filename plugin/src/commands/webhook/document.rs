//! The JSON of `webhook status`: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use kcp_control_plane::webhook::{
    Canary, Pods, Registration, Trust,
    order::{OtherWebhook, Turn},
};
use kcp_rules::registration::{CONFIGURATION, Switch};
use serde::Serialize;

use super::WebhookReport;
use crate::document::Document;

/// The registration of kcp-webhook with the API server.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct WebhookStatusDocument<'r> {
    metadata: Metadata,
    /// Why the webhook does not review all writes, or why writes are refused; empty if it works.
    problems: Vec<String>,
    configurations: Vec<Configuration<'r>>,
    pods: PodsDocument<'r>,
    /// The last write with which `kcp-webhook manage` tested whether the API server reaches the webhook; absent without the manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    canary: Option<CanaryDocument<'r>>,
    /// The webhooks of other programs that review the same objects. The API server calls mutating webhooks in this order, and all
    /// validating webhooks at the same time.
    other_webhooks: Vec<Other<'r>>,
}

impl Document for WebhookStatusDocument<'_> {
    const KIND: &'static str = "WebhookStatus";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Metadata {
    /// The name of both configurations.
    name: &'static str,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Configuration<'r> {
    /// One of: mutating, validating.
    webhook: &'static str,
    /// One of: enabled, disabled, disabled-in-part, empty, absent.
    state: &'static str,
    /// When and why the configuration was disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled: Option<&'r str>,
    /// When `kcp-webhook manage` enables the configuration again.
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled_until: Option<Timestamp>,
    entries: usize,
    /// The number of entries whose writes the API server refuses while the webhook does not respond.
    fail_closed_entries: usize,
    /// One of: valid, expired, none, unreadable, differs; absent if the configuration is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_bundle: Option<&'static str>,
    /// When the last CA certificate of the caBundle expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_expires: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct PodsDocument<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
    /// Why the Pods could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct CanaryDocument<'r> {
    /// When the webhook last answered such a test write.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<Timestamp>,
    /// Why the Lease could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Other<'r> {
    /// One of: mutating, validating.
    webhook: &'static str,
    configuration: &'r str,
    name: &'r str,
    resources: &'r [String],
    /// One of: before, after, same-time.
    turn: &'static str,
    /// Whether the API server refuses the write if this webhook does not respond.
    fails_closed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<i32>,
    /// Whether a selector or a match condition exempts some of these objects.
    is_selective: bool,
}

impl<'r> WebhookStatusDocument<'r> {
    pub(super) fn new(report: &'r WebhookReport) -> Self {
        let state = &report.state;
        let (ready, total, reason) = match &state.pods {
            Pods::Read { ready, total } => (Some(*ready), Some(*total), None),
            Pods::Unread(why) => (None, None, Some(why.as_str())),
            Pods::Unknown => (
                None,
                None,
                Some("no configuration names the Service of the webhook"),
            ),
        };
        Self {
            metadata: Metadata { name: CONFIGURATION },
            problems: state.problems(report.now),
            configurations: state
                .registrations
                .iter()
                .map(|registration| Configuration::new(registration, report.now))
                .collect(),
            pods: PodsDocument {
                namespace: state.namespace.as_deref(),
                ready,
                total,
                reason,
            },
            canary: canary_document(&state.canary),
            other_webhooks: state.others.iter().map(Other::new).collect(),
        }
    }
}

fn canary_document(canary: &Canary) -> Option<CanaryDocument<'_>> {
    let (answered, reason) = match canary {
        Canary::Absent => return None,
        Canary::Read { answered, .. } => (*answered, None),
        Canary::Unread(why) => (None, Some(why.as_str())),
    };
    Some(CanaryDocument { answered, reason })
}

/// The state of a configuration as one word.
pub(super) fn state_word(registration: &Registration) -> &'static str {
    match registration
        .registered
        .as_ref()
        .map(|registered| registered.switch)
    {
        None => "absent",
        Some(Switch::On) => "enabled",
        Some(Switch::Off) => "disabled",
        Some(Switch::Partial) => "disabled-in-part",
        Some(Switch::Empty) => "empty",
    }
}

pub(super) const fn turn_word(turn: Turn) -> &'static str {
    match turn {
        Turn::Before => "before",
        Turn::After => "after",
        Turn::SameTime => "same-time",
    }
}

impl<'r> Configuration<'r> {
    fn new(registration: &'r Registration, now: Timestamp) -> Self {
        let registered = registration.registered.as_ref();
        let (ca_bundle, ca_expires) = match registered.map(|registered| &registered.trust) {
            None => (None, None),
            Some(Trust::Until { expires, .. }) if *expires <= now => (Some("expired"), Some(*expires)),
            Some(Trust::Until { expires, .. }) => (Some("valid"), Some(*expires)),
            Some(Trust::NoBundle) => (Some("none"), None),
            Some(Trust::Unreadable) => (Some("unreadable"), None),
            Some(Trust::Differs) => (Some("differs"), None),
        };
        Self {
            webhook: registration.kind.title(),
            state: state_word(registration),
            disabled: registered.and_then(|registered| registered.disabled_note.as_deref()),
            disabled_until: registered.and_then(|registered| registered.disabled_until),
            entries: registered.map_or(0, |registered| registered.entries),
            fail_closed_entries: registered.map_or(0, |registered| registered.fail_closed),
            ca_bundle,
            ca_expires,
        }
    }
}

impl<'r> Other<'r> {
    fn new(other: &'r OtherWebhook) -> Self {
        Self {
            webhook: other.kind.title(),
            configuration: &other.configuration,
            name: &other.name,
            resources: &other.resources,
            turn: turn_word(other.turn),
            fails_closed: other.fails_closed,
            timeout_seconds: other.timeout_seconds,
            is_selective: other.is_selective,
        }
    }
}
