//! Checks of kubeadm's configuration for joining Machines, and of the labels and taints of control plane nodes.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        components::{condition_findings, node_finding},
        finding::{CheckOutcome, CheckResult, Finding, NoResult, WORKLOAD, fall_back_to, require},
        machine_grace::{are_machines_changing, machine_of_node},
        rollout::has_pending_change,
    },
    plan::blockers::unusable_kubeadm_config,
    snapshot::{Snapshot, workload::KubeadmConfigMap},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "node-labels-or-taints-missing",
        "A control plane node lacks the label or the taint that kubeadm sets.",
        check_node_labels_or_taints_missing,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "kubeadm-config-outdated",
        "ConfigMap `kubeadm-config` contains a different Kubernetes version from the spec of the control \
         plane.",
        check_kubeadm_config_outdated,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "kubeadm-config-unusable",
        "ConfigMap `kubeadm-config` does not exist or cannot be decoded, so no Machine can join.",
        check_kubeadm_config_unusable,
        Responsible::Fault(Actor::Person),
    ),
];

/// Returns the version without build metadata, such as `v1.34.1` for `v1.34.1+vendor.1`.
fn release(version: &str) -> &str {
    version.split_once('+').map_or(version, |(release, _)| release)
}

/// Checks whether a joining Machine gets static pods of the desired version. `kubeadm join` reads the version from the
/// `ConfigMap` `kubeadm-config`, which the controller updates only before each step of a rollout (Cluster API
/// v1.14, `UpdateClusterConfiguration`).
pub fn check_kubeadm_config_outdated(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let workload = require(&observed.workload, WORKLOAD)?;
    let config = require(&workload.kubeadm_config, "kubeadm-config")?;
    let KubeadmConfigMap::Usable {
        version: Some(configured),
    } = config
    else {
        return Err(NoResult::skipped(
            "the workload cluster's kubeadm-config does not contain a version",
        ));
    };
    let desired = observed.control_plane.spec.version();
    if release(configured) == release(desired) {
        return Ok(Vec::new());
    }
    let object = "ConfigMap/kubeadm-config";
    let message = format!("contains version {configured}, but the desired version is {desired}");
    if has_pending_change(observed, now) || are_machines_changing(observed, now) {
        return Ok(vec![Finding::info(object, message)]);
    }
    let message = format!("{message}: joining Machines get static pods of {configured}");
    let control_plane = &observed.control_plane;
    Ok(vec![Finding::warn(object, message).with_hint(format!(
        "start a rollout, which updates kubeadm-config: kubectl kcp rollout start {} -n {}",
        control_plane.name(),
        control_plane.namespace()
    ))])
}

pub fn check_kubeadm_config_unusable(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    let workload = require(&observed.workload, WORKLOAD)?;
    require(&workload.kubeadm_config, "kubeadm-config")?;
    if !control_plane.status.initialized {
        return Err(NoResult::skipped("the control plane is not initialized yet"));
    }
    let finding = unusable_kubeadm_config(observed)
        .map(|problem| Finding::about(&problem, CheckOutcome::Fail, control_plane));
    Ok(finding.into_iter().collect())
}

pub fn check_node_labels_or_taints_missing(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let nodes = require(&observed.workload, WORKLOAD).and_then(|workload| require(&workload.nodes, "nodes"));
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(no_result) => {
            let kind = "NodeKubeadmLabelsAndTaintsSet";
            return fall_back_to(
                no_result,
                condition_findings(observed, kind, "node labels and taints", now),
            );
        }
    };
    let is_taint_required = requires_taint(observed);
    let findings = nodes.iter().filter_map(|node| {
        machine_of_node(observed, &node.name)?;
        let label = "label node-role.kubernetes.io/control-plane";
        let taint = "taint node-role.kubernetes.io/control-plane:NoSchedule";
        let missing = match (
            node.has_control_plane_label,
            node.has_control_plane_taint || !is_taint_required,
        ) {
            (true, true) => return None,
            (false, true) => label.to_owned(),
            (true, false) => taint.to_owned(),
            (false, false) => format!("{label} and {taint}"),
        };
        node_finding(observed, &node.name, &format!("the node lacks {missing}"), now)
    });
    Ok(findings.collect())
}

/// Whether kubeadm taints control plane nodes. It does, unless `nodeRegistration.taints` is set.
fn requires_taint(observed: &Snapshot) -> bool {
    let fields = &observed.control_plane.spec.kubeadm_config_spec.fields;
    ["initConfiguration", "joinConfiguration"]
        .iter()
        .filter_map(|section| fields.pointer(&format!("/{section}/nodeRegistration/taints")))
        .all(serde_json::Value::is_null)
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{ConditionStatus::False, machine::Bootstrap};

    use crate::{
        checks::tests::{Case, leave_out},
        snapshot::{
            Reading,
            workload::{KubeadmConfigMap, Node},
        },
        testing::objects::{condition, set},
    };

    fn of(version: &str) -> Reading<KubeadmConfigMap> {
        Reading::Read(KubeadmConfigMap::Usable {
            version: Some(version.to_owned()),
        })
    }

    pub(crate) const CASES: &[Case] = &[
        ("node-labels-or-taints-missing", "neither", |o| {
            o.nodes()[1] = Node {
                has_control_plane_label: false,
                has_control_plane_taint: false,
                ..o.nodes()[1].clone()
            };
        }),
        ("node-labels-or-taints-missing", "no_label", |o| {
            o.nodes()[1].has_control_plane_label = false;
        }),
        ("node-labels-or-taints-missing", "no_taint", |o| {
            o.nodes()[1].has_control_plane_taint = false;
        }),
        ("node-labels-or-taints-missing", "no_taint_is_asked_for", |o| {
            o.nodes()[1].has_control_plane_taint = false;
            o.control_plane.spec.kubeadm_config_spec.fields["joinConfiguration"]["nodeRegistration"]["taints"] =
                serde_json::json!([]);
            for number in 1..=3 {
                o.machine(number).bootstrap = Bootstrap::Missing;
            }
        }),
        ("node-labels-or-taints-missing", "by_the_condition", |o| {
            leave_out(o);
            let failed = condition("NodeKubeadmLabelsAndTaintsSet", False, "the taint is missing");
            set(&mut o.machine(2).status.conditions, failed);
        }),
        ("kubeadm-config-outdated", "another", |o| {
            o.workload().kubeadm_config = of("v1.33.6");
        }),
        (
            "kubeadm-config-outdated",
            "before_the_first_machine_of_a_rollout",
            |o| {
                o.workload().kubeadm_config = of("v1.33.6");
                o.machine(1).spec.version = Some("v1.33.6".to_owned());
            },
        ),
        ("kubeadm-config-outdated", "a_vendor_s_build", |o| {
            o.workload().kubeadm_config = of("v1.34.1+vendor.1");
        }),
        ("kubeadm-config-outdated", "not_named", |o| {
            o.workload().kubeadm_config = Reading::Read(KubeadmConfigMap::Usable { version: None });
        }),
        ("kubeadm-config-unusable", "absent", |o| {
            o.workload().kubeadm_config = Reading::Read(KubeadmConfigMap::Absent);
        }),
        ("kubeadm-config-unusable", "no_key", |o| {
            o.workload().kubeadm_config = Reading::Read(KubeadmConfigMap::WithoutKey);
        }),
        ("kubeadm-config-unusable", "not_yaml", |o| {
            o.workload().kubeadm_config = Reading::Read(KubeadmConfigMap::Undecodable);
        }),
    ];
}
