//! Upgrades that leave a controller without a controller manager, or with two of them (KEP-2436). No message
//! shows text of a flag or a file, because it may be secret.

use std::borrow::Cow;

use crate::{
    action::Action,
    api::{ControlPlaneSpec, KubeadmControlPlane},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    leader_migration::{
        Component, ControllerManagerChange, ControllerManagers, Phase, Row, UpgradeEffect, pair::Runner,
    },
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::{
        Topic,
        controller_managers::{cloud_controller_manager, kube_controller_manager},
        extra_args::controller_manager,
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "leader-migration-upgrade",
    rules: RULES,
};

const RULES: &[Rule] = &[Rule {
    id: "leader-migration-handover-unsafe",
    summary: "each controller must run in one controller manager during and after an upgrade",
    why: "During an upgrade, old and new controller managers run at the same time. Without a common lock, both \
          can run the same controller. A controller that no controller manager enables does not run at all.",
    operations: ON_UPDATE,
    scope: Scope::Transition,
    overridable: true,
    topology: InTopology::Strands,
    source: "KEP-2436, Rollout, Upgrade and Rollback Planning: controllers run in no component, or in several",
    check: Check::ControlPlane(handover_unsafe),
    cel: Cel::None(NoCel::Grammar),
    ..Rule::USUAL
}];

/// What `files` say about the cloud-controller-manager, before and after the update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cloud {
    /// No static Pod is a cloud-controller-manager. A `DaemonSet` may run one.
    Absent,
    /// A static Pod that may be a cloud-controller-manager cannot be read.
    Unknown,
    /// A static Pod is a cloud-controller-manager before or after the update, and its manifest can be read.
    Known,
}

fn handover_unsafe(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let (old, new) = (old.common_spec(), change.new.common_spec());
    if (old.minor(), old.kubeadm_config()) == (new.minor(), new.kubeadm_config()) {
        return;
    }
    // kubeadm sets --allocate-node-cidrs if there is a Pod subnet. Almost every Cluster sets one, so the rule assumes one.
    let (Ok(now), Ok(then)) = (
        kube_controller_manager(&old, true),
        kube_controller_manager(&new, true),
    ) else {
        return;
    };
    let (known, clouds, file) = match (cloud_controller_manager(&old), cloud_controller_manager(&new)) {
        (Ok(None), Ok(None)) => (Cloud::Absent, [None, None], None),
        (Ok(old), Ok(new)) => {
            let file = new.as_ref().map(|new| new.index);
            (Cloud::Known, [old, new].map(|file| Some(file?.manager)), file)
        }
        _ => (Cloud::Unknown, [None, None], None),
    };
    let [cloud_now, cloud_then] = clouds;
    let now = ControllerManagers {
        kube: now,
        cloud: cloud_now,
    };
    let then = ControllerManagers {
        kube: then,
        cloud: cloud_then,
    };
    if now == then {
        return;
    }
    let pair = ControllerManagerChange {
        before: now,
        after: then,
    };
    let field = field(&new, &pair, file);
    for rows in alike(pair.rows()) {
        let Some((detail, action)) = harm(&rows, &pair, known) else {
            continue;
        };
        let fault = Fault {
            field: field.clone(),
            reason: CauseReason::Forbidden,
            value: None,
            detail: detail.into(),
            remedy: "to list every controller with its problem and the fix, save the new manifest as FILE and run: \
                     kubectl kcp leader-migration check NAME -f FILE"
                .into(),
        };
        faults.push_at_most(action, fault);
    }
}

/// Groups the rows that have the same owners and the same verdict.
fn alike(rows: Vec<Row>) -> Vec<Vec<Row>> {
    let mut groups: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        let is_alike = |other: &Row| {
            (other.verdict, &other.runners_before, &other.runners_after)
                == (row.verdict, &row.runners_before, &row.runners_after)
        };
        match groups
            .iter_mut()
            .find(|group| group.first().is_some_and(is_alike))
        {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// What the update changes: the static Pod of the cloud-controller-manager, the flags of kube-controller-manager, or only the
/// version.
fn field(
    new: &ControlPlaneSpec<'_>,
    pair: &ControllerManagerChange,
    file: Option<usize>,
) -> Cow<'static, str> {
    let [now, then] = [&pair.before, &pair.after];
    match file {
        _ if now.kube.flags != then.kube.flags || now.kube.configuration != then.kube.configuration => {
            new.kubeadm_path(controller_manager(new).path)
        }
        Some(index) if now.cloud != then.cloud => new.kubeadm_path(format_args!("files[{index}].content")),
        None if now.cloud.is_some() => new.kubeadm_path("files"),
        _ => new.path("version"),
    }
}

/// The harm that an update does to controllers with the same owners and verdict, and the severest action on
/// this harm. `None` for problems that exist before the update, and for a kube-controller-manager that exits
/// at startup, which other rules report.
fn harm(rows: &[Row], pair: &ControllerManagerChange, known: Cloud) -> Option<(String, Action)> {
    let row = rows.first()?;
    let names: Vec<&str> = rows.iter().map(|row| row.controller.canonical).collect();
    let names = names.join(", ");
    // Without leader election, no lock keeps a controller from running twice. The user has chosen this, so the rule only warns.
    let certain = if pair.elects_leaders() {
        Action::Deny
    } else {
        Action::Warn
    };
    let cloud_then = pair.after.cloud.as_ref();
    match row.verdict {
        UpgradeEffect::RunsTwice(phase) if phase != Phase::Before => Some((twice(&names, row), certain)),
        UpgradeEffect::Orphaned(phase) if phase != Phase::Before => match cloud_then {
            Some(_) => Some((stopped(&names, row, phase), certain)),
            None => Some((not_in_files(&names, known), Action::Warn)),
        },
        UpgradeEffect::CannotStart(Component::Cloud, phase) if phase != Phase::Before => {
            let error = cloud_then?.startup_errors.first()?;
            let detail = format!(
                "after the rollout, no controller manager would run {names}, because cloud-controller-manager exits \
                 at startup: {error}"
            );
            Some((detail, certain))
        }
        UpgradeEffect::Unknown if pair.is_handover() => Some((
            format!(
                "{names} could run twice or not at all, because the flags and the cloud provider of \
                 cloud-controller-manager do not show whether it runs {names}"
            ),
            Action::Warn,
        )),
        _ => None,
    }
}

fn twice(names: &str, row: &Row) -> String {
    match (row.runners_before.as_slice(), row.runners_after.as_slice()) {
        ([_, ..], [then]) => format!(
            "{names} would run twice during the rollout: on old Machines {}, and on new Machines {}; both instances would change \
             the same objects",
            places(&row.runners_before),
            place(then, row.runners_before.first())
        ),
        _ => format!(
            "{names} would run twice, {}; both instances would change the same objects",
            places(&row.runners_after)
        ),
    }
}

fn stopped(names: &str, row: &Row, phase: Phase) -> String {
    let when = if phase == Phase::Rollout {
        "during"
    } else {
        "after"
    };
    if row.runners_after.is_empty() {
        let now = match (row.runners_before.is_empty(), names.contains(", ")) {
            (true, _) => "none does now".to_owned(),
            (false, true) => format!("now they run {}", places(&row.runners_before)),
            (false, false) => format!("now it runs {}", places(&row.runners_before)),
        };
        format!("{when} the rollout, no controller manager would run {names}; {now}")
    } else {
        format!(
            "{names} would run {}, but {when} the rollout, {names} would stop whenever the holder of the migration lock does not \
             run {names}",
            places(&row.runners_after)
        )
    }
}

fn not_in_files(names: &str, known: Cloud) -> String {
    let why = match known {
        Cloud::Unknown => {
            "and kcp-webhook cannot read a static Pod in spec.kubeadmConfigSpec.files that may run a \
             cloud-controller-manager"
        }
        Cloud::Absent | Cloud::Known => {
            "and spec.kubeadmConfigSpec.files contains no cloud-controller-manager that \
            does"
        }
    };
    format!("after this update, kube-controller-manager does not run {names}, {why}")
}

/// The controller managers that run a controller, with their locks. Does not contain the names of Leases,
/// because users choose them and they may be secret.
fn places(owners: &[Runner]) -> String {
    let places: Vec<String> = owners
        .iter()
        .enumerate()
        .map(|(index, owner)| place(owner, owners.get(..index).and_then(<[_]>::first)))
        .collect();
    places.join(" and ")
}

fn place(owner: &Runner, other: Option<&Runner>) -> String {
    let is_another = other.is_some_and(|other| {
        other.is_migration_lock == owner.is_migration_lock
            && other.lock != owner.lock
            && (owner.is_migration_lock || other.component == owner.component)
    });
    let lock = match (owner.is_migration_lock, is_another) {
        (true, false) => "the migration lock",
        (true, true) => "another migration lock",
        (false, false) => "its main lock",
        (false, true) => "another main lock",
    };
    format!("in {} under {lock}", owner.component)
}
