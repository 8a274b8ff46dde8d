//! The JSON of `audit`: `kubectl-kcp.dev/v1alpha1`.

use kcp_control_plane::audit::{Audited, Outcome};
use serde::Serialize;

use crate::{
    commands::audit::AuditReport,
    document::{API_VERSION, ObjectName},
};

/// The result of an audit.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = "ResiliencyAudit"))]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditDocument<'r> {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "ResiliencyAudit")))]
    kind: &'static str,
    /// The control plane. Absent for the cluster of the current context.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<ObjectName>,
    /// The URL of the API server. Empty if the cluster could not be read.
    server: &'r str,
    /// FAIL if a check fails, otherwise UNKNOWN if one is unknown.
    outcome: Outcome,
    /// How long the machines stay off, in seconds.
    power_off_seconds: u64,
    checks: &'r [Audited],
}

impl<'r> AuditDocument<'r> {
    pub(super) fn new(report: &'r AuditReport) -> Self {
        let metadata = report.control_plane.as_ref().map(|(namespace, name)| ObjectName {
            name: name.clone(),
            namespace: namespace.clone(),
        });
        Self {
            api_version: API_VERSION,
            kind: "ResiliencyAudit",
            metadata,
            server: &report.server,
            outcome: report.outcome(),
            power_off_seconds: report.power_off.as_secs(),
            checks: &report.checks,
        }
    }
}
