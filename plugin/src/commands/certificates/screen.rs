//! Prints the certificates of control planes as a table, one line each.

use jiff::Timestamp;
use kcp_control_plane::{
    certificates::{Certificate, Certificates, Urgency, Validity},
    duration::format_duration,
    staleness::{age, format_age},
};
use owo_colors::Style;

use crate::{
    commands::certificates::CertificatesReport,
    terminal::{
        style::{BAD, WARN},
        table::{Cell, Column, Layout, Table},
    },
};

pub(super) fn render(report: &CertificatesReport, layout: Layout) -> String {
    if report.control_planes.is_empty() {
        return "no control planes found\n".to_owned();
    }
    // Leave out the names of a single control plane and namespace, because the user has given them.
    let mut table = Table::with_columns([
        Column::new("NAMESPACE"),
        Column::new("CONTROL PLANE"),
        Column::new("CERTIFICATE"),
        Column::new("OBJECT"),
        Column::new("EXPIRES"),
        Column::new("IN"),
        Column::new("AGE").expendable(1),
        Column::new("RENEWED BY"),
    ]);
    for control_plane in &report.control_planes {
        for certificate in &control_plane.certificates {
            table.add_row(row(report, control_plane, certificate));
        }
    }
    table.render(layout)
}

fn row(report: &CertificatesReport, of: &Certificates, certificate: &Certificate) -> Vec<Cell> {
    let namespace = if report.all_namespaces {
        of.namespace.as_str()
    } else {
        ""
    };
    let name = if report.is_list { of.name.as_str() } else { "" };
    let urgency = certificate.urgency(report.now);
    let style = match urgency {
        Urgency::Expired | Urgency::Missing => BAD,
        Urgency::ExpiresSoon | Urgency::NotRenewed | Urgency::Unread => WARN,
        Urgency::Valid | Urgency::NoExpiry | Urgency::NoCertificate => Style::new(),
    };
    let (expires, left, age) = columns(&certificate.validity, urgency, report.now);
    let reason = match &certificate.validity {
        Validity::NoCertificate { why } | Validity::Missing { why } | Validity::Unread { why } => Some(why),
        Validity::Certificate { .. } | Validity::NoExpiry => None,
    };
    let mut last = certificate.renewal_text(&of.obstacle, report.now);
    if let Some(why) = reason {
        last = format!("{last}; {why}");
    }
    if certificate.lacks_owner {
        last.push_str(
            "; the Secret has no ownerReference to the control plane, so deleting the Cluster does not delete the \
             Secret",
        );
    }
    vec![
        Cell::from(namespace),
        Cell::from(name),
        Cell::from(certificate.purpose.title()),
        Cell::from(&certificate.object),
        Cell::styled(expires, style),
        Cell::styled(left, style),
        Cell::from(age),
        Cell::from(last).extend_to_line_end(),
    ]
}

/// The date of the expiry, the time until then, and the age of the certificate, as columns.
fn columns(validity: &Validity, urgency: Urgency, now: Timestamp) -> (String, String, String) {
    let none = || "-".to_owned();
    let Validity::Certificate { issued, expires } = validity else {
        let state = match urgency {
            Urgency::NoExpiry => "never",
            Urgency::NoCertificate => "none",
            Urgency::Missing => "missing",
            _ => "unread",
        };
        return (state.to_owned(), none(), none());
    };
    let left = match urgency {
        Urgency::Expired => format!("expired {} ago", format_age(*expires, now)),
        Urgency::ExpiresSoon => format!("{} (soon)", format_duration(age(now, *expires))),
        Urgency::NotRenewed => format!("{} (not renewed)", format_duration(age(now, *expires))),
        _ => format_duration(age(now, *expires)),
    };
    (
        expires.strftime("%Y-%m-%d").to_string(),
        left,
        issued.map_or_else(none, |issued| format_age(issued, now)),
    )
}
