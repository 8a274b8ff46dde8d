//! What kubeadm has set up: the configuration for Machines that join, and the labels and taints of nodes.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    checks::{
        Check,
        components::{WORKLOAD, by_conditions, of_node},
        finding::{Finding, Judgement, Unjudged, need, or_else},
        machine_grace::{is_turning, machine_of_node},
        rollout::has_pending_change,
    },
    snapshot::Snapshot,
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "node-labels-and-taints",
        "every control plane node has its label and its taint",
        labels_and_taints,
    ),
    Check::new(
        "kubeadm-config-version",
        "kubeadm-config names the desired version",
        version,
    ),
];

/// `v1.34.1` of `v1.34.1+vendor.1`.
fn release(version: &str) -> &str {
    version.split_once('+').map_or(version, |(release, _)| release)
}

/// Whether a Machine that joins gets static pods of the desired version. `kubeadm join` takes the version from the `ConfigMap`
/// `kubeadm-config`, which the controller updates only when a rollout begins (Cluster API v1.14,
/// `UpdateClusterConfiguration`).
pub fn version(observed: &Snapshot, now: Timestamp) -> Judgement {
    let workload = need(&observed.workload, WORKLOAD)?;
    let Some(kept) = need(&workload.kubeadm_version, "kubeadm-config")? else {
        return Err(Unjudged::skipped(
            "the workload cluster's kubeadm-config names no version",
        ));
    };
    let asked = observed.control_plane.spec.version();
    if release(kept) == release(asked) {
        return Ok(Vec::new());
    }
    let object = "ConfigMap/kubeadm-config";
    let message = format!("names {kept}, the desired version is {asked}");
    if has_pending_change(observed, now) || is_turning(observed, now) {
        return Ok(vec![Finding::info(object, message)]);
    }
    let message = format!("{message}: a Machine that joins gets static pods of {kept}");
    let control_plane = &observed.control_plane;
    Ok(vec![Finding::warn(object, message).hint(format!(
        "the controller updates it when a rollout begins: kubectl kcp rollout start {} -n {}",
        control_plane.name(),
        control_plane.namespace()
    ))])
}

pub fn labels_and_taints(observed: &Snapshot, now: Timestamp) -> Judgement {
    let nodes = need(&observed.workload, WORKLOAD).and_then(|workload| need(&workload.nodes, "nodes"));
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(unjudged) => {
            let kind = "NodeKubeadmLabelsAndTaintsSet";
            return or_else(
                unjudged,
                by_conditions(observed, kind, "node labels and taints", now),
            );
        }
    };
    let taint_is_wanted = wants_taint(observed);
    let findings = nodes.iter().filter_map(|of| {
        machine_of_node(observed, &of.name)?;
        let label = "label node-role.kubernetes.io/control-plane";
        let taint = "taint node-role.kubernetes.io/control-plane:NoSchedule";
        let missing = match (
            of.has_control_plane_label,
            of.has_control_plane_taint || !taint_is_wanted,
        ) {
            (true, true) => return None,
            (false, true) => label.to_owned(),
            (true, false) => taint.to_owned(),
            (false, false) => format!("{label} and {taint}"),
        };
        of_node(observed, &of.name, &format!("the node lacks {missing}"), now)
    });
    Ok(findings.collect())
}

/// kubeadm taints the nodes unless `nodeRegistration.taints` says otherwise.
fn wants_taint(observed: &Snapshot) -> bool {
    let fields = &observed.control_plane.spec.kubeadm_config_spec.fields;
    ["initConfiguration", "joinConfiguration"]
        .iter()
        .filter_map(|section| fields.pointer(&format!("/{section}/nodeRegistration/taints")))
        .all(serde_json::Value::is_null)
}

#[cfg(test)]
pub(super) mod cases {
    use kcp_api::{ConditionStatus::False, machine::Bootstrap};

    use crate::{
        checks::tests::{Case, leave_out},
        snapshot::{Reading, workload::Node},
        testing::objects::{condition, set},
    };

    pub(crate) const CASES: &[Case] = &[
        ("node-labels-and-taints", "neither", |o| {
            o.nodes()[1] = Node {
                has_control_plane_label: false,
                has_control_plane_taint: false,
                ..o.nodes()[1].clone()
            };
        }),
        ("node-labels-and-taints", "no_label", |o| {
            o.nodes()[1].has_control_plane_label = false;
        }),
        ("node-labels-and-taints", "no_taint", |o| {
            o.nodes()[1].has_control_plane_taint = false;
        }),
        ("node-labels-and-taints", "no_taint_is_asked_for", |o| {
            o.nodes()[1].has_control_plane_taint = false;
            o.control_plane.spec.kubeadm_config_spec.fields["joinConfiguration"]["nodeRegistration"]["taints"] =
                serde_json::json!([]);
            for number in 1..=3 {
                o.machine(number).bootstrap = Bootstrap::Missing;
            }
        }),
        ("node-labels-and-taints", "by_the_condition", |o| {
            leave_out(o);
            let failed = condition("NodeKubeadmLabelsAndTaintsSet", False, "the taint is missing");
            set(&mut o.machine(2).status.conditions, failed);
        }),
        ("kubeadm-config-version", "another", |o| {
            o.workload().kubeadm_version = Reading::Read(Some("v1.33.6".to_owned()));
        }),
        (
            "kubeadm-config-version",
            "before_the_first_machine_of_a_rollout",
            |o| {
                o.workload().kubeadm_version = Reading::Read(Some("v1.33.6".to_owned()));
                o.machine(1).spec.version = Some("v1.33.6".to_owned());
            },
        ),
        ("kubeadm-config-version", "a_vendor_s_build", |o| {
            o.workload().kubeadm_version = Reading::Read(Some("v1.34.1+vendor.1".to_owned()));
        }),
        ("kubeadm-config-version", "not_named", |o| {
            o.workload().kubeadm_version = Reading::Read(None);
        }),
    ];
}
