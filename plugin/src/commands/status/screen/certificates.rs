//! When certificates expire: the first of each kind, or all of them where there is room.

use jiff::Timestamp;
use owo_colors::Style;

use crate::commands::status::screen::Layout;
use crate::terminal::{
    style::BAD,
    table::{Cell, Column, Table},
};
use kcp_control_plane::{duration::format_duration, snapshot::Observed};

const COLUMNS: &[Column] = &[
    Column::new("CERTIFICATES"),
    Column::new("EXPIRE ON"),
    Column::new("IN"),
    Column::new("OF"),
];

/// A certificate, and when it expires; none where that is not known.
struct Certificate<'o> {
    of: &'o str,
    expires: Option<Timestamp>,
}

pub(super) fn certificates(observed: &Observed, now: Timestamp, layout: Layout) -> String {
    let kinds = [
        ("kubeadm", machines(observed)),
        ("API server", endpoint(observed)),
        ("etcd", members(observed)),
    ];
    let mut table = Table::of(COLUMNS.iter().copied());
    for (kind, mut certificates) in kinds {
        certificates.sort_by_key(|certificate| (certificate.expires.is_none(), certificate.expires));
        let Some(first) = certificates.first() else {
            continue;
        };
        if layout.is_wide {
            let rows = certificates.iter();
            for certificate in rows {
                table.row(row(kind, certificate.expires, certificate.of.to_owned(), now));
            }
        } else {
            table.row(row(kind, first.expires, whose(&certificates), now));
        }
    }
    table.render_within(layout.limit(), layout.is_wide)
}

fn row(kind: &str, expires: Option<Timestamp>, of: String, now: Timestamp) -> Vec<Cell> {
    let (on, time_left, style) = match expires {
        None => ("not known".to_owned(), "-".to_owned(), Style::new()),
        Some(expires) => {
            let time_left = expires.duration_since(now).try_into().map(format_duration);
            let style = if time_left.is_err() { BAD } else { Style::new() };
            let on = expires.strftime("%Y-%m-%d").to_string();
            (on, time_left.unwrap_or_else(|_| "expired".to_owned()), style)
        }
    };
    vec![
        Cell::from(kind),
        Cell::styled(on, style),
        Cell::styled(time_left, style),
        Cell::from(of).rest(),
    ]
}

/// The first to expire comes first, and those not known last.
fn whose(certificates: &[Certificate<'_>]) -> String {
    let known = certificates
        .iter()
        .filter(|certificate| certificate.expires.is_some());
    let known: Vec<&Certificate<'_>> = known.collect();
    let (count, unknown) = (certificates.len(), certificates.len() - known.len());
    let text = match (certificates, known.as_slice()) {
        ([only], _) => return only.of.to_owned(),
        (_, []) => return format!("all {count}"),
        (_, [first, .., last]) if first.expires != last.expires => {
            format!("{}, the first of {count}", first.of)
        }
        _ if unknown == 0 => format!("all {count}"),
        _ => format!("{} of {count}", known.len()),
    };
    if unknown == 0 {
        text
    } else {
        format!("{text}, {unknown} not known")
    }
}

/// As kubeadm made them, by the Machines' own word.
fn machines(observed: &Observed) -> Vec<Certificate<'_>> {
    let machines = observed.management.control_plane.machines.iter();
    let joined = machines.filter(|machine| machine.has_node());
    joined
        .map(|machine| Certificate {
            of: &machine.machine.name,
            expires: machine.certificates_expire,
        })
        .collect()
}

fn endpoint(observed: &Observed) -> Vec<Certificate<'_>> {
    let certificate = observed.endpoint_certificate.read();
    let known = certificate.map(|certificate| Certificate {
        of: &certificate.server,
        expires: Some(certificate.expires),
    });
    let unknown = observed.workload.read().map(|workload| Certificate {
        of: &workload.server,
        expires: None,
    });
    known.or(unknown).into_iter().collect()
}

fn members(observed: &Observed) -> Vec<Certificate<'_>> {
    let survey = observed.etcd.read().into_iter();
    let asked = survey.flat_map(|survey| &survey.asked);
    asked
        .map(|asked| Certificate {
            of: &asked.name,
            expires: asked
                .answer
                .as_ref()
                .ok()
                .and_then(|answer| answer.certificate_expires),
        })
        .collect()
}
