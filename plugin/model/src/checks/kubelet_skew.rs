//! Whether the kubelets of the other nodes are of a version that the API servers serve.

use jiff::Timestamp;

use crate::{
    checks::{
        AskedBy, Check,
        components::WORKLOAD,
        finding::{Judgement, Unjudged, need, node},
        machine_grace::{machine_of_node, machines},
    },
    inspection::Finding,
    snapshot::{Observed, workload::Node},
};

pub const CHECKS: &[Check] = &[Check::new(
    "kubelet-skew",
    "kubelets are of versions that the API servers serve",
    AskedBy::Operation,
    kubelet_skew,
)];

/// Minor versions that a kubelet may be behind the API server (Kubernetes' version skew policy, from 1.28).
const LIMIT: u64 = 3;

/// `(1, 34)` of `v1.34.1`.
pub fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub fn kubelet_skew(observed: &Observed, _: Timestamp) -> Judgement {
    let workload = need(&observed.workload, WORKLOAD)?;
    let nodes = need(&workload.nodes, "nodes")?;
    let versions = || {
        let told = machines(observed).iter();
        told.filter_map(|of| minor(of.machine.version.as_deref()?))
    };
    let (Some(oldest), Some(newest)) = (versions().min(), versions().max()) else {
        return Err(Unjudged::unknown(
            "no Machine tells the version of its API server",
        ));
    };
    let asked = observed.management.control_plane.spec.version.as_str();
    let workers = nodes
        .iter()
        .filter(|of| machine_of_node(observed, &of.name).is_none() && !of.has_control_plane_label);
    let findings = workers.filter_map(|of| {
        let Node { kubelet_version, .. } = of;
        let kubelet = minor(kubelet_version)?;
        let behind = |newer: (u64, u64)| newer.1.saturating_sub(kubelet.1);
        let (message, hint) = if kubelet > oldest {
            (
                format!(
                    "kubelet {kubelet_version} is newer than an API server, v{}.{}",
                    oldest.0, oldest.1
                ),
                None,
            )
        } else if behind(newest) > LIMIT {
            (
                format!(
                    "kubelet {kubelet_version} is {} minor versions behind an API server, v{}.{}: {LIMIT} are allowed",
                    behind(newest),
                    newest.0,
                    newest.1
                ),
                Some("upgrade the workers"),
            )
        } else {
            let goal = minor(asked).filter(|goal| behind(*goal) > LIMIT)?;
            (
                format!(
                    "kubelet {kubelet_version} will be {} minor versions behind {asked}, which is asked for: {LIMIT} \
                     are allowed",
                    behind(goal)
                ),
                Some("upgrade the workers first"),
            )
        };
        let finding = Finding::warn(node(&of.name), message);
        Some(match hint {
            Some(hint) => finding.hint(hint),
            None => finding,
        })
    });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod cases {
    use crate::{checks::tests::Case, snapshot::Observed};

    fn worker(observed: &mut Observed, kubelet: &str) {
        observed.nodes()[3].kubelet_version = kubelet.to_owned();
    }

    pub(crate) const CASES: &[Case] = &[
        ("kubelet-skew", "newer", |o| worker(o, "v1.35.0")),
        ("kubelet-skew", "at_the_limit", |o| worker(o, "v1.31.9")),
        ("kubelet-skew", "behind", |o| worker(o, "v1.30.0")),
        ("kubelet-skew", "behind_what_is_asked_for", |o| {
            worker(o, "v1.31.9");
            o.facts().spec.version = "v1.35.0".to_owned();
        }),
    ];
}
