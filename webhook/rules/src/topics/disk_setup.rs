//! Disks to partition on a Machine before kubeadm runs.

use crate::{
    api::ControlPlaneSpec,
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "disk-setup",
    rules: RULES,
};

const RULES: &[Rule] = &[Rule {
    id: "disk-layout-above-hundred",
    summary: "the partitions of a disk must not exceed 100 percent",
    why: "A disk has no space beyond 100 percent. cloud-init fails to partition the disk, so the Machine does \
          not start.",
    scope: Scope::Object,
    source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateDiskSetup",
    check: Check::ControlPlaneSpec(partitions_above_hundred),
    cel: Cel::Faults(include_str!("cel/disk-layout-above-hundred.cel")),
    ..Rule::USUAL
}];

fn partitions_above_hundred(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let disks = change
        .new
        .kubeadm_config()
        .and_then(|config| config.disk_setup.as_ref());
    let partitions = disks.and_then(|disks| disks.partitions.as_deref());
    for (index, partition) in partitions.unwrap_or_default().iter().enumerate() {
        let sizes = partition.disk_layout.iter().flatten();
        let total = sizes.fold(0_i64, |total, size| {
            total.saturating_add(size.percentage.unwrap_or(0))
        });
        if total > 100 {
            faults.push(Fault {
                field: change
                    .new
                    .kubeadm_path(format_args!("diskSetup.partitions[{index}].diskLayout")),
                reason: CauseReason::Invalid,
                value: Some(total.to_string()),
                detail: "the partitions of this disk add up to more than 100 percent".into(),
                remedy: format!("reduce the percentages by {} in total", total - 100).into(),
            });
        }
    }
}
