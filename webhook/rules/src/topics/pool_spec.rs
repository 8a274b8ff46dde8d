//! The platform and the size of a cluster pool.

use std::{collections::HashSet, time::Duration};

use kcp_api::names::annotation::CLEAN_BEFORE_REUSE;

use crate::{
    action::Action,
    api::{
        ClusterPool,
        hive::{ClusterPoolSpec, LocalReference},
    },
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, Rule, Scope},
    syntax::parse_go_duration,
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "pool-spec",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "platform-not-one",
        summary: "a pool must have exactly one platform",
        why: "Hive creates all clusters of a pool on one platform. Without a platform, or with several, Hive \
              cannot create clusters.",
        scope: Scope::Object,
        source: "Hive, ClusterPool validating webhook: exactly one platform",
        check: Check::ClusterPool(platform_not_one),
        cel: Cel::Faults(include_str!("cel/platform-not-one.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "limits-negative",
        summary: "the sizes and limits of a pool must not be negative",
        why: "These fields count clusters, so a negative number has no meaning.",
        scope: Scope::Object,
        source: "Hive's CRD: size and runningCount have a minimum; maxSize and maxConcurrent have none",
        check: Check::ClusterPool(limits_negative),
        cel: Cel::Faults(include_str!("cel/limits-negative.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "size-above-inventory",
        summary: "the size of a pool must not exceed the number of inventory entries",
        why: "Every cluster of the pool needs its own customization. If the size is greater than the number \
              of customizations, the pool never reaches its size.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "Hive design document \"ClusterPool inventory\", sections \"Size and MaxSize\" and \
                 \"Validation\": size greater than length of the inventory",
        check: Check::ClusterPool(size_above_inventory),
        cel: Cel::Faults(include_str!("cel/size-above-inventory.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "max-size-above-inventory",
        summary: "maxSize of a pool must not exceed the number of inventory entries",
        why: "Every cluster of the pool needs its own customization, so the pool can never have more clusters than \
              customizations.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "Hive design document \"ClusterPool inventory\", section \"Size and MaxSize\"",
        check: Check::ClusterPool(max_size_above_inventory),
        cel: Cel::Faults(include_str!("cel/max-size-above-inventory.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "max-size-below-size",
        summary: "maxSize of a pool must not be less than its size",
        why: "Hive never creates more clusters than maxSize, so the pool can never reach its size.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "Hive, clusterpool_controller.go: Hive adds no cluster above maxSize, and counts claimed clusters too",
        check: Check::ClusterPool(max_size_below_size),
        cel: Cel::Faults(include_str!("cel/max-size-below-size.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "running-count-not-size",
        summary: "on OpenStack and vSphere, every cluster of a pool must run",
        why: "Hive cannot hibernate clusters on these platforms, and ignores a pool whose runningCount is lower \
              than its size.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "Hive, clusterpool_controller.go: Must set runningCount==size",
        check: Check::ClusterPool(running_count_not_size),
        cel: Cel::Faults(include_str!("cel/running-count-not-size.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "clean-before-reuse-unclear",
        summary: "annotation clean-before-reuse of a pool must be true or false",
        why: "kubectl-kcp treats any other value as true, so every entry of the pool waits for a janitor \
              after its lease.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "kubectl-kcp: webhook/api/src/hive/pool.rs, asks_for_cleaning",
        check: Check::ClusterPool(clean_before_reuse_unclear),
        cel: Cel::Faults(include_str!("cel/clean-before-reuse-unclear.cel")),
        ..Rule::USUAL
    },
    // hibernateAfter does not matter: Hive applies it to claimed clusters only (pkg/controller/hibernation/
    // hibernation_controller.go), and replaces unclaimed clusters only.
    Rule {
        id: "resume-timeout-missing",
        summary: "a pool of hibernating clusters should limit how long they resume",
        why: "Without resumeTimeout, Hive waits forever for an unclaimed cluster that cannot resume, for example because its \
              certificates have expired. ClusterClaims wait, too.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "Hive, pkg/controller/clusterpool/collections.go, isBroken: without resumeTimeout, a cluster that does not resume \
                 never counts as broken",
        check: Check::ClusterPool(resume_timeout_missing),
        cel: Cel::Faults(include_str!("cel/resume-timeout-missing.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "machine-pools-unspecified",
        summary: "a pool with an install-config template should set skipMachinePools",
        why: "Unless skipMachinePools is true, Hive creates a MachinePool with 3 workers for each cluster. After the \
              installation, Hive changes the workers that the install-config template describes.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "Hive, docs/clusterpools.md, section \"Install Config Template\"; pkg/clusterresource/builder.go, \
                 generateMachinePool",
        check: Check::ClusterPool(machine_pools_unspecified),
        cel: Cel::Faults(include_str!("cel/machine-pools-unspecified.cel")),
        ..Rule::USUAL
    },
];

/// The platforms on which clusters cannot hibernate.
const WITHOUT_HIBERNATION: &[&str] = &["openstack", "vsphere"];

/// The platforms on which Hive hibernates clusters (openshift/hive, `pkg/controller/hibernation`).
const WITH_HIBERNATION: &[&str] = &["aws", "azure", "gcp", "ibmcloud"];

/// The names of the platforms that the pool sets. A null value means unset.
fn platforms(spec: &ClusterPoolSpec) -> impl Iterator<Item = &str> {
    let set = spec.platform.iter().filter(|(_, value)| !value.is_null());
    set.map(|(name, _)| name.as_str())
}

fn platform_not_one(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    const SHOWN: usize = 3;
    let names: Vec<_> = platforms(&change.new.spec).take(SHOWN).map(quote).collect();
    let (reason, value, detail, remedy) = match names.as_slice() {
        [_] => return,
        [] => (
            CauseReason::Required,
            None,
            "a pool creates clusters on exactly one platform, and none is set",
            "set one platform, such as vsphere",
        ),
        _ => (
            CauseReason::Invalid,
            Some(names.join(", ")),
            "a pool creates clusters on exactly one platform, and several are set",
            "keep one platform, and create another pool for each of the others",
        ),
    };
    faults.push(Fault {
        field: "spec.platform".into(),
        reason,
        value,
        detail: detail.into(),
        remedy: remedy.into(),
    });
}

fn limits_negative(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let spec = &change.new.spec;
    for (field, limit, remedy) in [
        ("spec.size", Some(spec.size), "set 0 or more"),
        (
            "spec.runningCount",
            spec.running_count,
            "set a number from 0 to spec.size",
        ),
        (
            "spec.maxSize",
            spec.max_size,
            "set 0 or more, or remove the field for no limit",
        ),
        (
            "spec.maxConcurrent",
            spec.max_concurrent,
            "set 0 to stop installs and removals, set a positive limit, or remove the field for no limit",
        ),
    ] {
        if let Some(limit) = limit.filter(|limit| *limit < 0) {
            faults.push(Fault {
                field: field.into(),
                reason: CauseReason::Invalid,
                value: Some(limit.to_string()),
                detail: "a number of clusters cannot be negative".into(),
                remedy: remedy.into(),
            });
        }
    }
}

/// The number of different customizations in the inventory; `None` without an inventory.
fn entry_count(spec: &ClusterPoolSpec) -> Option<usize> {
    let names: HashSet<_> = spec.inventory.as_ref()?.names().collect();
    Some(names.len())
}

fn exceeds_inventory(field: &'static str, size: i32, spec: &ClusterPoolSpec) -> Option<Fault> {
    let entries = entry_count(spec)?;
    let missing = usize::try_from(size)
        .ok()?
        .checked_sub(entries)
        .filter(|missing| *missing > 0)?;
    Some(Fault {
        field: field.into(),
        reason: CauseReason::Invalid,
        value: Some(size.to_string()),
        detail: format!("the number of inventory entries is {entries}").into(),
        remedy: format!("add entries to the inventory (at least {missing}), or set {field} to {entries}")
            .into(),
    })
}

fn size_above_inventory(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let spec = &change.new.spec;
    if let Some(fault) = exceeds_inventory("spec.size", spec.size, spec) {
        faults.push(fault);
    }
}

fn max_size_above_inventory(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let spec = &change.new.spec;
    let fault = spec
        .max_size
        .and_then(|max_size| exceeds_inventory("spec.maxSize", max_size, spec));
    if let Some(fault) = fault {
        faults.push(fault);
    }
}

fn max_size_below_size(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let ClusterPoolSpec { size, max_size, .. } = &change.new.spec;
    if let Some(max_size) = max_size.filter(|max_size| (0..*size).contains(max_size)) {
        faults.push(Fault {
            field: "spec.maxSize".into(),
            reason: CauseReason::Invalid,
            value: Some(max_size.to_string()),
            detail: format!("the pool can never reach its size of {size}").into(),
            remedy: "increase maxSize, or reduce size".into(),
        });
    }
}

fn running_count_not_size(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let spec = &change.new.spec;
    let running = spec.running_count.unwrap_or(0);
    let platform = platforms(spec).find(|name| WITHOUT_HIBERNATION.contains(name));
    if let Some(platform) = platform.filter(|_| running != spec.size && running >= 0 && spec.size >= 0) {
        faults.push(Fault {
            field: "spec.runningCount".into(),
            reason: CauseReason::Invalid,
            value: Some(running.to_string()),
            detail: format!("Hive ignores a pool on {platform} unless all its clusters run").into(),
            remedy: format!("set runningCount to {}, the size of the pool", spec.size).into(),
        });
    }
}

fn clean_before_reuse_unclear(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let value = change.new.metadata.annotation(CLEAN_BEFORE_REUSE);
    let Some(value) = value.filter(|value| !matches!(*value, "true" | "false")) else {
        return;
    };
    faults.push(Fault {
        field: format!("metadata.annotations[{CLEAN_BEFORE_REUSE}]").into(),
        reason: CauseReason::Invalid,
        value: Some(quote(value)),
        detail: "the value is neither true nor false, and counts as true, so each entry must be cleaned before it is free"
            .into(),
        remedy: "set it to true or false".into(),
    });
}

fn resume_timeout_missing(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let spec = &change.new.spec;
    let running = spec.running_count.unwrap_or(0);
    let hibernates =
        (0..spec.size).contains(&running) && platforms(spec).any(|name| WITH_HIBERNATION.contains(&name));
    let timeout = spec
        .hibernation_config
        .as_ref()
        .and_then(|config| config.resume_timeout.as_deref());
    let is_limited = timeout.is_some_and(|timeout| parse_go_duration(timeout) != Some(Duration::ZERO));
    if hibernates && !is_limited {
        faults.push(Fault {
            field: "spec.hibernationConfig.resumeTimeout".into(),
            reason: CauseReason::Required,
            value: None,
            detail: "some clusters of the pool hibernate, and without a timeout, Hive never replaces a cluster that cannot resume"
                .into(),
            remedy: "set a duration that is long enough for every cluster to resume, such as 30m".into(),
        });
    }
}

fn machine_pools_unspecified(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let spec = &change.new.spec;
    let template = spec.install_config_secret_template_ref.as_ref();
    if template.and_then(LocalReference::name).is_some() && spec.skip_machine_pools.is_none() {
        faults.push(Fault {
            field: "spec.skipMachinePools".into(),
            reason: CauseReason::Required,
            value: None,
            detail: "after the installation, Hive changes the workers of the install-config template to 3 workers of its own \
                     MachinePool"
                .into(),
            remedy: "set true to keep the workers of the template, or false if Hive should manage them".into(),
        });
    }
}
