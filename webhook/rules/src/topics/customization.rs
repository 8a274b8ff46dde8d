//! The patches of a customization: RFC 6902 with RFC 6901 pointers.

use serde::de::IgnoredAny;

use crate::{
    action::Action,
    api::{ClusterDeploymentCustomization, hive::PatchEntity},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN, quote},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "customization",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "patch-op-unknown",
        summary: "a patch must use one of the six operations of RFC 6902",
        why: "Hive applies the patches of a customization to install-config.yaml. Hive stops at an operation \
              that it does not know, and does not create the cluster.",
        scope: Scope::Object,
        source: "RFC 6902, section 4",
        check: Check::Customization(op_unknown),
        cel: Cel::None(NoCel::SchemaFirst),
        ..Rule::USUAL
    },
    Rule {
        id: "patch-path-invalid",
        summary: "the path of a patch must be a JSON pointer",
        why: "Hive does not reject a path without a leading slash: it patches another field and reports success, \
              so the cluster is installed with wrong settings.",
        scope: Scope::Object,
        source: "RFC 6901, section 3",
        check: Check::Customization(path_invalid),
        cel: Cel::Faults(include_str!("cel/patch-path-invalid.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "patch-from-missing",
        summary: "`move` and `copy` patches must set `from`",
        why: "`move` and `copy` read a value from another field. Without `from`, Hive cannot apply the \
              patch, and does not create the cluster.",
        scope: Scope::Object,
        source: "RFC 6902, sections 4.4 and 4.5",
        check: Check::Customization(from_missing),
        cel: Cel::Faults(include_str!("cel/patch-from-missing.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "patch-from-invalid",
        summary: "`from` must be a JSON pointer; `move` must not target a child of `from`",
        why: "Hive does not reject a pointer without a leading slash: it reads another field and reports \
              success. `move` cannot put a field into one of its own children.",
        scope: Scope::Object,
        source: "RFC 6901, section 3; RFC 6902, section 4.4",
        check: Check::Customization(from_invalid),
        cel: Cel::Faults(include_str!("cel/patch-from-invalid.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "patch-value-json-invalid",
        summary: "valueJSON must be exactly one valid JSON value",
        why: "Hive inserts valueJSON into a JSON document unchanged. Invalid JSON breaks the whole patch, \
              and Hive does not create the cluster.",
        scope: Scope::Object,
        source: "Hive inserts valueJSON into the patch unchanged",
        check: Check::Customization(value_json_invalid),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "patch-value-ignored",
        summary: "a patch must not set both value and valueJSON",
        why: "If both fields are set, Hive uses valueJSON and silently ignores value.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "Hive, PatchEntity: valueJSON takes precedence if set",
        check: Check::Customization(value_ignored),
        cel: Cel::Faults(include_str!("cel/patch-value-ignored.cel")),
        ..Rule::USUAL
    },
];

const OPERATIONS: &[&str] = &["add", "remove", "replace", "move", "copy", "test"];

fn op_unknown(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    for (path, patch) in patches(change.new) {
        if !OPERATIONS.contains(&patch.op.as_str()) {
            faults.push_redacted(
                &patch.op,
                Fault {
                    field: format!("{path}.op").into(),
                    reason: CauseReason::NotSupported,
                    value: Some(HIDDEN.to_owned()),
                    detail: "RFC 6902 does not define this operation".into(),
                    remedy: "use add, remove, replace, move, copy or test".into(),
                },
            );
        }
    }
}

fn path_invalid(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    for (path, patch) in patches(change.new) {
        if let Err(fault) = check_pointer(&patch.path) {
            faults.push_redacted(&patch.path, pointer_fault(format!("{path}.path"), &fault));
        }
    }
}

fn from_missing(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    for (path, patch) in patches(change.new) {
        if reads_from(patch) && patch.from.is_none() {
            faults.push(Fault {
                field: format!("{path}.from").into(),
                reason: CauseReason::Required,
                value: None,
                detail: format!("{} reads its value from another field", quote(&patch.op)).into(),
                remedy: "set `from` to the JSON pointer of that field".into(),
            });
        }
    }
}

fn from_invalid(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    for (path, patch) in patches(change.new).filter(|(_, patch)| reads_from(patch)) {
        let Some(from) = &patch.from else { continue };
        let field = format!("{path}.from");
        if let Err(fault) = check_pointer(from) {
            faults.push_redacted(from, pointer_fault(field, &fault));
        } else if patch.op == "move"
            && patch
                .path
                .strip_prefix(from.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        {
            faults.push_redacted(
                (from, &patch.path),
                Fault {
                    field: field.into(),
                    reason: CauseReason::Invalid,
                    value: Some(HIDDEN.to_owned()),
                    detail: "a field cannot be moved into itself".into(),
                    remedy: "move the value to another field, or copy it".into(),
                },
            );
        }
    }
}

fn value_json_invalid(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    for (path, patch) in patches(change.new) {
        let Some(text) = value_json(patch) else { continue };
        if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
            faults.push_redacted(
                text,
                Fault {
                    field: format!("{path}.valueJSON").into(),
                    reason: CauseReason::Invalid,
                    // The value may be a secret of the install-config.
                    value: None,
                    detail: format!("valueJSON must be exactly one JSON value: {error}").into(),
                    remedy:
                        "write one JSON value, with strings in double quotes, or use the field value for a \
                         plain string"
                            .into(),
                },
            );
        }
    }
}

fn value_ignored(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    let both = |patch: &PatchEntity| {
        value_json(patch).is_some() && patch.value.as_ref().is_some_and(|value| !value.is_empty())
    };
    for (path, patch) in patches(change.new).filter(|(_, patch)| both(patch)) {
        faults.push_redacted(
            (&patch.value, &patch.value_json),
            Fault {
                field: format!("{path}.value").into(),
                reason: CauseReason::Forbidden,
                value: None,
                detail: "valueJSON is also set, so Hive ignores value".into(),
                remedy: "remove value or valueJSON".into(),
            },
        );
    }
}

/// The `valueJSON` of a patch; `None` if it is empty, which Hive treats as unset.
fn value_json(patch: &PatchEntity) -> Option<&str> {
    patch.value_json.as_deref().filter(|text| !text.is_empty())
}

/// All patches of a customization, each with its field path.
fn patches<'c>(
    customization: &'c ClusterDeploymentCustomization<'_>,
) -> impl Iterator<Item = (String, &'c PatchEntity)> {
    let spec = &customization.spec;
    let install = spec
        .install_config_patches
        .iter()
        .flatten()
        .enumerate()
        .map(|(index, patch)| (format!("spec.installConfigPatches[{index}]"), patch));
    let manifests = spec
        .installer_manifest_patches
        .iter()
        .flatten()
        .enumerate()
        .flat_map(|(outer, manifest)| {
            manifest.patches.iter().enumerate().map(move |(index, patch)| {
                (
                    format!("spec.installerManifestPatches[{outer}].patches[{index}]"),
                    patch,
                )
            })
        });
    install.chain(manifests)
}

/// A JSON pointer in a patch.
pub(crate) struct PointerMut<'c> {
    /// The path of the field that contains the pointer.
    pub(crate) field: String,
    /// The id of the rule that checks the pointer.
    pub(crate) rule: &'static str,
    pub(crate) text: &'c mut String,
}

/// All JSON pointers that Hive reads in the patches of a customization.
pub(crate) fn pointers<'c>(
    customization: &'c ClusterDeploymentCustomization<'_>,
) -> impl Iterator<Item = &'c str> {
    patches(customization).flat_map(|(_, patch)| {
        let from = patch.from.as_deref().filter(|_| reads_from(patch));
        [Some(patch.path.as_str()), from].into_iter().flatten()
    })
}

/// Like [`pointers`], but mutable, and with the field and the rule of each pointer.
pub(crate) fn pointers_mut<'c>(
    customization: &'c mut ClusterDeploymentCustomization<'_>,
) -> impl Iterator<Item = PointerMut<'c>> {
    let fields: Vec<_> = patches(customization).map(|(path, _)| path).collect();
    let spec = &mut customization.spec;
    let install = spec.install_config_patches.iter_mut().flatten();
    let manifests = spec.installer_manifest_patches.iter_mut().flatten();
    let patches = install.chain(manifests.flat_map(|manifest| &mut manifest.patches));
    fields.into_iter().zip(patches).flat_map(|(patch_path, patch)| {
        let reads_from = reads_from(patch);
        let pointer = |member, rule, text| PointerMut {
            field: format!("{patch_path}.{member}"),
            rule,
            text,
        };
        let path = pointer("path", "patch-path-invalid", &mut patch.path);
        let from = patch.from.as_mut().filter(|_| reads_from);
        let from = from.map(|text| pointer("from", "patch-from-invalid", text));
        [Some(path), from].into_iter().flatten()
    })
}

/// Whether the text is a valid JSON pointer.
pub(crate) fn is_pointer(text: &str) -> bool {
    check_pointer(text).is_ok()
}

fn reads_from(patch: &PatchEntity) -> bool {
    matches!(patch.op.as_str(), "move" | "copy")
}

enum PointerFault {
    Relative,
    Escape,
}

fn check_pointer(pointer: &str) -> Result<(), PointerFault> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(PointerFault::Relative);
    }
    let mut escapes = pointer.split('~').skip(1);
    if escapes.any(|after| !after.starts_with(['0', '1'])) {
        return Err(PointerFault::Escape);
    }
    Ok(())
}

fn pointer_fault(field: String, fault: &PointerFault) -> Fault {
    let (detail, remedy) = match fault {
        PointerFault::Relative => (
            "a JSON pointer starts with a slash; without it, Hive patches the wrong field and reports success",
            "write a slash before each field name, as in /metadata/name",
        ),
        PointerFault::Escape => (
            "in a JSON pointer, ~ is allowed only in ~0 (a tilde) and ~1 (a slash)",
            "write ~0 for a tilde",
        ),
    };
    Fault {
        field: field.into(),
        reason: CauseReason::Invalid,
        value: Some(HIDDEN.to_owned()),
        detail: detail.into(),
        remedy: remedy.into(),
    }
}
