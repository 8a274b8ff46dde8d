//! The JSON of `certificates`: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use kcp_control_plane::certificates::{Certificate, Purpose, Renewer, Urgency, Validity};
use serde::Serialize;

use crate::{
    commands::certificates::CertificatesReport,
    document::{Document, ObjectName},
};

/// The certificates of control planes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificatesDocument<'r> {
    items: Vec<ControlPlaneCertificates<'r>>,
}

impl Document for CertificatesDocument<'_> {
    const KIND: &'static str = "ControlPlaneCertificatesList";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ControlPlaneCertificates<'r> {
    metadata: ObjectName,
    /// The most urgent state of all certificates of the control plane.
    state: Urgency,
    certificates: Vec<CertificateDocument<'r>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct CertificateDocument<'r> {
    purpose: Purpose,
    /// The object with the certificate, such as `Secret/edge-ca` or `Machine/edge-x7k2p`.
    object: &'r str,
    state: Urgency,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// Why the certificate is missing, or why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
    renewed_by: Renewer,
    /// Who or what renews the certificate, and how; if it should have been renewed, also why it was not.
    renewal: String,
    /// When Cluster API's controller should have renewed the certificate. Absent if it has not missed a renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    overdue_since: Option<Timestamp>,
    /// Whether the Secret lacks the ownerReference to the control plane that Cluster API sets.
    lacks_owner: bool,
}

impl<'r> CertificatesDocument<'r> {
    pub(super) fn new(report: &'r CertificatesReport) -> Self {
        let items = report
            .control_planes
            .iter()
            .map(|entry| ControlPlaneCertificates {
                metadata: ObjectName {
                    name: entry.name.clone(),
                    namespace: entry.namespace.clone(),
                },
                state: entry.urgency(report.now),
                certificates: entry
                    .certificates
                    .iter()
                    .map(|certificate| CertificateDocument::new(certificate, &entry.obstacle, report.now))
                    .collect(),
            });
        Self {
            items: items.collect(),
        }
    }
}

impl<'r> CertificateDocument<'r> {
    fn new(certificate: &'r Certificate, obstacle: &str, now: Timestamp) -> Self {
        let (issued, expires, reason) = match &certificate.validity {
            Validity::Certificate { issued, expires } => (*issued, Some(*expires), None),
            Validity::NoExpiry => (None, None, None),
            Validity::NoCertificate { why } | Validity::Missing { why } | Validity::Unread { why } => {
                (None, None, Some(why.as_str()))
            }
        };
        Self {
            purpose: certificate.purpose,
            object: &certificate.object,
            state: certificate.urgency(now),
            issued,
            expires,
            reason,
            renewed_by: certificate.renewer,
            renewal: certificate.renewal_text(obstacle, now),
            overdue_since: certificate.overdue_since(now),
            lacks_owner: certificate.lacks_owner,
        }
    }
}
