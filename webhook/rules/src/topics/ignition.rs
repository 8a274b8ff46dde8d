//! Machines that use Ignition instead of cloud-init.

use crate::{
    api::{
        ControlPlaneSpec,
        machine_setup::{DiskSetup, Ignition},
    },
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN, quote},
    rule::{Check, Rule, Scope},
    topics::{Topic, files::files, users},
};

pub(super) const TOPIC: Topic = Topic {
    name: "ignition",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "ignition-gate-off",
        summary: "Ignition requires Cluster API's feature gate KubeadmBootstrapFormatIgnition",
        why: "If the feature gate is off, Cluster API rejects Ignition settings when it creates bootstrap \
              data, and the next Machine never starts.",
        scope: Scope::Object,
        overridable: true,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateIgnition",
        check: Check::ControlPlaneSpec(gate_off),
        cel: Cel::Faults(include_str!("cel/ignition-gate-off.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "ignition-without-format",
        summary: "Ignition settings require format: ignition",
        why: "If the format is cloud-config, Cluster API ignores the Ignition settings, so Machines start \
              without these settings.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateIgnition",
        check: Check::ControlPlaneSpec(without_format),
        cel: Cel::Faults(include_str!("cel/ignition-without-format.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "ignition-unsupported",
        summary: "with format: ignition, only settings that Ignition supports may be used",
        why: "Ignition has no equivalent for some settings of cloud-config. Machines would start without these \
              settings.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateIgnition",
        check: Check::ControlPlaneSpec(settings_unsupported),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
];

const FORMAT: &str = "ignition";

fn has_format(spec: &ControlPlaneSpec<'_>) -> bool {
    spec.kubeadm_config()
        .is_some_and(|config| config.format.as_deref() == Some(FORMAT))
}

fn has_configuration(spec: &ControlPlaneSpec<'_>) -> bool {
    let config = spec.kubeadm_config().and_then(|config| config.ignition.as_ref());
    config.is_some_and(Ignition::is_defined)
}

fn gate_off(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    if change.context.feature_gates.ignition {
        return;
    }
    let spec = change.new;
    let found = [
        ("format", has_format(spec), Some(FORMAT)),
        ("ignition", has_configuration(spec), None),
    ];
    for (field, _, value) in found.into_iter().filter(|(_, is_set, _)| *is_set) {
        faults.push_gate_off(
            "KubeadmBootstrapFormatIgnition",
            &change.context,
            (spec.kubeadm_path(field), value.map(quote)),
            "remove the field, or enable the gate in Cluster API and set featureGates.ignition in kcp-webhook's \
             AdmissionConfiguration",
        );
    }
}

fn without_format(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(config) = spec.kubeadm_config() else {
        return;
    };
    if change.context.may_have_ignition() && has_configuration(spec) && !has_format(spec) {
        faults.push_redacted(
            &config.format,
            Fault {
                field: spec.kubeadm_path("format"),
                reason: CauseReason::Invalid,
                value: config
                    .format
                    .as_deref()
                    .map(|format| shown_or_hidden(format, &["cloud-config"])),
                detail: "the ignition section is set, but Cluster API uses it only with format: ignition"
                    .into(),
                remedy: "set format to \"ignition\", or remove the section".into(),
            },
        );
    }
}

fn settings_unsupported(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let spec = change.new;
    let Some(config) = spec.kubeadm_config() else {
        return;
    };
    if !change.context.may_have_ignition() || !has_format(spec) {
        return;
    }
    let mut push = |field: String, found: UnsupportedValue<'_>, detail: String, remedy: &'static str| {
        faults.push_redacted(
            found.redacted,
            Fault {
                field: spec.kubeadm_path(field),
                reason: CauseReason::Forbidden,
                value: found.value,
                detail: detail.into(),
                remedy: remedy.into(),
            },
        );
    };
    for (index, user) in users::users(spec).filter(|(_, user)| user.inactive == Some(true)) {
        push(
            format!("users[{index}].inactive"),
            UnsupportedValue {
                value: Some("true".to_owned()),
                redacted: user.name.as_deref(),
            },
            "Cluster API does not support inactive users with Ignition".to_owned(),
            "omit the user, or set neither a password nor an SSH key",
        );
    }
    for (index, file) in files(spec) {
        if let Some(encoding @ ("gzip" | "gzip+base64")) = file.encoding.as_deref() {
            push(
                format!("files[{index}].encoding"),
                UnsupportedValue::shown(encoding),
                "Cluster API does not support compressed files with Ignition".to_owned(),
                "write the content as plain text or base64",
            );
        }
    }
    if config
        .boot_commands
        .as_ref()
        .is_some_and(|commands| !commands.is_empty())
    {
        push(
            "bootCommands".to_owned(),
            UnsupportedValue::default(),
            "Ignition does not run boot commands".to_owned(),
            "use preKubeadmCommands, or a systemd unit in ignition.containerLinuxConfig",
        );
    }
    if let Some(disks) = &config.disk_setup {
        unsupported_disks(disks, push);
    }
}

/// A value that Ignition does not support.
#[derive(Default)]
struct UnsupportedValue<'c> {
    /// The value as the message shows it.
    value: Option<String>,
    /// Text that the message does not show, because it may be secret, but that distinguishes this problem from others.
    redacted: Option<&'c str>,
}

impl<'c> UnsupportedValue<'c> {
    /// A value that the message shows, because it is from an enumeration.
    fn shown(value: &str) -> Self {
        Self {
            value: Some(quote(value)),
            redacted: None,
        }
    }

    /// A value that the message shows only if it is one of `values`.
    fn one_of(values: &[&str], value: &'c str) -> Self {
        Self {
            value: Some(shown_or_hidden(value, values)),
            redacted: Some(value),
        }
    }
}

/// Quotes the text if it is one of `values`. For other text, which may be secret, returns [`HIDDEN`].
fn shown_or_hidden(text: &str, values: &[&str]) -> String {
    if values.contains(&text) {
        quote(text)
    } else {
        HIDDEN.to_owned()
    }
}

fn unsupported_disks(
    disks: &DiskSetup<'_>,
    mut push: impl FnMut(String, UnsupportedValue<'_>, String, &'static str),
) {
    for (index, partition) in disks.partitions.iter().flatten().enumerate() {
        let table = partition.table_type.as_deref();
        if let Some(table) = table.filter(|table| !table.is_empty() && *table != "gpt") {
            push(
                format!("diskSetup.partitions[{index}].tableType"),
                UnsupportedValue::one_of(&["mbr"], table),
                "Ignition supports only GPT partition tables".to_owned(),
                "set \"gpt\", or omit tableType",
            );
        }
    }
    for (index, filesystem) in disks.filesystems.iter().flatten().enumerate() {
        let fields = [
            (
                "replaceFS",
                &filesystem.replace_fs,
                "to replace an existing filesystem, set overwrite: true instead",
            ),
            (
                "partition",
                &filesystem.partition,
                "in device, specify the partition instead of the disk",
            ),
        ];
        for (field, value, remedy) in fields {
            if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
                push(
                    format!("diskSetup.filesystems[{index}].{field}"),
                    UnsupportedValue::one_of(&["auto", "any", "none"], value),
                    format!("Cluster API does not support {field} with Ignition"),
                    remedy,
                );
            }
        }
    }
}
