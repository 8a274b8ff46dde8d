//! Prints when certificates expire: one line, and a table if a certificate expires soon.

use jiff::{SignedDuration, Timestamp};
use kcp_api::Object as _;
use owo_colors::Style;

use crate::commands::status::screen::Layout;
use crate::terminal::{
    escape,
    style::BAD,
    table::{Cell, Column, Table},
};
use kcp_control_plane::{duration::format_duration, snapshot::Snapshot};

const COLUMNS: &[Column] = &[
    Column::new("CERTIFICATES"),
    Column::new("EXPIRE ON"),
    Column::new("IN"),
    Column::new("OF"),
];

/// A certificate of a control plane, and when it expires, if that is known.
struct Certificate<'o> {
    of: &'o str,
    expires: Option<Timestamp>,
}

/// Certificates that expire within this number of days are shown in a table.
const SOON_DAYS: i64 = 60;

pub(super) fn certificates(observed: &Snapshot, now: Timestamp, layout: Layout) -> String {
    let kinds = [
        ("kubeadm", machines(observed)),
        ("API server", endpoint(observed)),
        ("etcd", members(observed)),
    ];
    let all = || kinds.iter().flat_map(|(_, certificates)| certificates);
    let first = all().filter_map(|certificate| certificate.expires).min();
    let soon = now + SignedDuration::from_hours(24 * SOON_DAYS);
    if !layout.is_wide && first.is_none_or(|first| first > soon) {
        let line = line(
            first,
            all().count(),
            all().filter(|certificate| certificate.expires.is_none()).count(),
            now,
        );
        return line;
    }
    let mut table = Table::with_columns(COLUMNS.iter().copied());
    for (kind, mut certificates) in kinds {
        certificates.sort_by_key(|certificate| (certificate.expires.is_none(), certificate.expires));
        let Some(first) = certificates.first() else {
            continue;
        };
        if layout.is_wide {
            let rows = certificates.iter();
            for certificate in rows {
                table.add_row(row(kind, certificate.expires, certificate.of.to_owned(), now));
            }
        } else {
            table.add_row(row(kind, first.expires, owners(&certificates), now));
        }
    }
    table.render(layout) + &excluded(observed)
}

/// The line about the certificates that `status` does not read.
fn excluded(observed: &Snapshot) -> String {
    let control_plane = &observed.control_plane;
    let (namespace, name) = (escape(control_plane.namespace()), escape(control_plane.name()));
    format!(
        "CAs and kubeconfigs are shown only as findings; list all certificates with:\n  kubectl kcp certificates {name} -n \
         {namespace}\n"
    )
}

/// The line about the expiry of all certificates, such as `Certificates:  earliest expiry 2027-11-20 (in 363d)`.
fn line(first: Option<Timestamp>, count: usize, unknown: usize, now: Timestamp) -> String {
    let value = match first {
        None if count == 0 => return String::new(),
        None => "expiry unknown".to_owned(),
        Some(first) => {
            let left = first.duration_since(now).try_into().map(format_duration);
            let unknown = if unknown > 0 {
                format!(", {unknown} unknown")
            } else {
                String::new()
            };
            format!(
                "earliest expiry {} (in {}){unknown}",
                first.strftime("%Y-%m-%d"),
                left.unwrap_or_default()
            )
        }
    };
    format!("{:<15}{value}\n", "Certificates:")
}

fn row(kind: &str, expires: Option<Timestamp>, of: String, now: Timestamp) -> Vec<Cell> {
    let (date, time_left, style) = match expires {
        None => ("unknown".to_owned(), "-".to_owned(), Style::new()),
        Some(expires) => {
            let time_left = expires.duration_since(now).try_into().map(format_duration);
            let style = if time_left.is_err() { BAD } else { Style::new() };
            let date = expires.strftime("%Y-%m-%d").to_string();
            (date, time_left.unwrap_or_else(|_| "expired".to_owned()), style)
        }
    };
    vec![
        Cell::from(kind),
        Cell::styled(date, style),
        Cell::styled(time_left, style),
        Cell::from(of).extend_to_line_end(),
    ]
}

/// The objects that have these certificates, as text. `certificates` must be sorted by expiry, with unknown expiries last.
fn owners(certificates: &[Certificate<'_>]) -> String {
    let known = certificates
        .iter()
        .filter(|certificate| certificate.expires.is_some());
    let known: Vec<&Certificate<'_>> = known.collect();
    let (count, unknown) = (certificates.len(), certificates.len() - known.len());
    let text = match (certificates, known.as_slice()) {
        ([only], _) => return only.of.to_owned(),
        (_, []) => return format!("all {count}"),
        (_, [first, .., last]) if first.expires != last.expires => {
            format!("{}, the earliest of {count}", first.of)
        }
        _ if unknown == 0 => format!("all {count}"),
        _ => format!("{} of {count}", known.len()),
    };
    if unknown == 0 {
        text
    } else {
        format!("{text}, {unknown} unknown")
    }
}

/// The certificates of kubeadm whose expiry the Machines report.
fn machines(observed: &Snapshot) -> Vec<Certificate<'_>> {
    let machines = observed.machines.iter();
    let joined = machines.filter(|machine| machine.has_node());
    joined
        .map(|machine| Certificate {
            of: machine.name(),
            expires: machine.status.certificates_expiry_date,
        })
        .collect()
}

fn endpoint(observed: &Snapshot) -> Vec<Certificate<'_>> {
    let certificate = observed.endpoint_certificate.value();
    let known = certificate.map(|certificate| Certificate {
        of: &certificate.server,
        expires: Some(certificate.expires_at),
    });
    let unknown = observed.workload.value().map(|workload| Certificate {
        of: &workload.server,
        expires: None,
    });
    known.or(unknown).into_iter().collect()
}

fn members(observed: &Snapshot) -> Vec<Certificate<'_>> {
    let survey = observed.etcd.value().into_iter();
    let asked = survey.flat_map(|survey| &survey.queried);
    asked
        .map(|asked| Certificate {
            of: &asked.name,
            expires: asked.certificate_expires_at(),
        })
        .collect()
}
