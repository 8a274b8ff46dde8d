//! Whether the kubelets of the other nodes are of a version that the API servers serve.

use crate::{
    checks::{
        Check,
        components::WORKLOAD,
        finding::{Finding, Judgement, Unjudged, need, node},
        machine_grace::{machine_of_node, machines},
    },
    kubelet_skew::{Skew, skew},
    snapshot::Snapshot,
};
use jiff::Timestamp;

pub const CHECKS: &[Check] = &[Check::new(
    "kubelet-skew",
    "the API servers support the versions of all kubelets",
    kubelet_skew,
)];

/// `(1, 34)` of `v1.34.1`.
pub fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub fn kubelet_skew(observed: &Snapshot, _: Timestamp) -> Judgement {
    let workload = need(&observed.workload, WORKLOAD)?;
    let nodes = need(&workload.nodes, "nodes")?;
    let mut servers: Vec<&str> = machines(observed)
        .iter()
        .filter_map(|of| of.spec.version.as_deref())
        .filter(|version| minor(version).is_some())
        .collect();
    servers.sort_by_key(|version| minor(version));
    let (Some(oldest), Some(newest)) = (servers.first(), servers.last()) else {
        return Err(Unjudged::unknown("no Machine reports its Kubernetes version"));
    };
    let desired = observed.control_plane.spec.version();
    let workers = nodes
        .iter()
        .filter(|of| machine_of_node(observed, &of.name).is_none() && !of.has_control_plane_label);
    let findings = workers.filter_map(|of| {
        let kubelet = of.kubelet_version.as_str();
        let is_old = |server: &str| match skew(kubelet, server) {
            Some(Skew::TooOld { lag, allowed }) => Some((lag, allowed)),
            Some(Skew::TooNew) | None => None,
        };
        let finding = |message: String| Finding::warn(node(&of.name), message);
        if skew(kubelet, oldest) == Some(Skew::TooNew) {
            return Some(finding(format!("kubelet {kubelet} is newer than an API server, {oldest}")));
        }
        if let Some((lag, allowed)) = is_old(newest) {
            let message = format!(
                "kubelet {kubelet} is {lag} minor versions behind an API server, {newest}; {allowed} are allowed"
            );
            return Some(finding(message).hint("upgrade the workers"));
        }
        let (lag, allowed) = is_old(desired)?;
        let message = format!(
            "kubelet {kubelet} would be {lag} minor versions behind the desired version {desired}; {allowed} are allowed"
        );
        Some(finding(message).hint("upgrade the workers first"))
    });
    Ok(findings.collect())
}

#[cfg(test)]
pub(super) mod cases {
    use crate::{checks::tests::Case, snapshot::Snapshot};

    fn worker(observed: &mut Snapshot, kubelet: &str) {
        observed.nodes()[3].kubelet_version = kubelet.to_owned();
    }

    pub(crate) const CASES: &[Case] = &[
        ("kubelet-skew", "newer", |o| worker(o, "v1.35.0")),
        ("kubelet-skew", "at_the_limit", |o| worker(o, "v1.31.9")),
        ("kubelet-skew", "behind", |o| worker(o, "v1.30.0")),
        ("kubelet-skew", "behind_and_below_1_25", |o| {
            for number in 1..=3 {
                o.machine(number).spec.version = Some("v1.27.0".to_owned());
            }
            o.control_plane.spec.version = Some("v1.27.0".to_owned());
            worker(o, "v1.24.17");
        }),
        ("kubelet-skew", "behind_what_is_asked_for", |o| {
            worker(o, "v1.31.9");
            o.control_plane.spec.version = Some("v1.35.0".to_owned());
        }),
    ];
}
