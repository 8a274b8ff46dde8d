//! From what was observed to a verdict.

use jiff::Timestamp;

use crate::{
    checks::{all, etcd_quorum::votes, find, rollout::up_to_date, sources::are_complete},
    inspection::{Basis, Checked, Inspection, Outcome, health::Health, preflight::preflight},
    snapshot::Observed,
};

/// Judges a control plane as it is at a time.
pub fn inspect(observed: &Observed, now: Timestamp) -> Inspection {
    let checks: Vec<Checked> = all().map(|check| check.run(observed, now)).collect();
    Inspection {
        health: health(&checks),
        basis: if are_complete(observed) {
            Basis::AllSources
        } else {
            Basis::Conditions
        },
        votes: votes(observed, now),
        up_to_date: up_to_date(observed, now),
        preflight: preflight(observed, &checks, now),
        checks,
    }
}

/// What is wrong decides, then what could not be read although it was asked for. A check that cannot say anything is no
/// finding: that a source failed is the finding of another.
fn health(checks: &[Checked]) -> Health {
    let found = |outcome| {
        checks
            .iter()
            .filter(move |checked| checked.findings.iter().any(|finding| finding.outcome == outcome))
    };
    let is_blocked =
        found(Outcome::Fail).any(|checked| find(checked.id).is_some_and(|check| check.is_blocking));
    if is_blocked {
        Health::Blocked
    } else if found(Outcome::Fail).next().is_some() {
        Health::Degraded
    } else if found(Outcome::Unknown).next().is_some() {
        Health::Unknown
    } else {
        Health::Healthy
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
