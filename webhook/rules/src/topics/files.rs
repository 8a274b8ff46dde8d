//! Files that cloud-init writes on a Machine before kubeadm runs. No message shows their content.

use std::collections::BTreeSet;

use crate::{
    action::Action,
    api::{
        ControlPlaneSpec, Text,
        machine_setup::{File, SecretSource},
    },
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, HIDDEN},
    rule::{Check, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "files",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "file-content-conflict",
        summary: "the content of a file must be either inline or from a Secret",
        why: "A file has one content. If content and contentFrom are both set, the manifest does not say which one counts.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateFiles",
        check: Check::ControlPlaneSpec(content_conflict),
        cel: Cel::Faults(include_str!("cel/file-content-conflict.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "file-content-missing",
        summary: "a file should have content",
        why: "An empty file is rarely intended, and the program that reads the file may fail only when the next \
              Machine starts.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "KubeadmConfig, spec.files: content and contentFrom are both optional",
        check: Check::ControlPlaneSpec(content_missing),
        cel: Cel::Faults(include_str!("cel/file-content-missing.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "file-secret-incomplete",
        summary: "a file from a Secret needs the name of the Secret and the key",
        why: "Cluster API cannot create bootstrap data without the content of the file, so the next Machine never \
              starts.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateFiles",
        check: Check::ControlPlaneSpec(secret_incomplete),
        cel: Cel::None(NoCel::SchemaFirst),
        ..Rule::USUAL
    },
    Rule {
        id: "file-path-duplicate",
        summary: "two files must not have the same path",
        why: "cloud-init writes the files in order, so the last file silently replaces the earlier one.",
        scope: Scope::Object,
        source: "Cluster API, bootstrap/kubeadm/webhooks/admission/kubeadmconfig.go: validateFiles",
        check: Check::ControlPlaneSpec(path_duplicate),
        cel: Cel::Faults(include_str!("cel/file-path-duplicate.cel")),
        ..Rule::USUAL
    },
];

/// All files, each with its index.
pub fn files<'c>(spec: &ControlPlaneSpec<'c>) -> impl Iterator<Item = (usize, &'c File<'c>)> {
    let files = spec.kubeadm_config().and_then(|config| config.files.as_deref());
    files.unwrap_or_default().iter().enumerate()
}

fn has_content(file: &File<'_>) -> bool {
    file.content.is_some_and(|content| !content.is_empty())
}

fn content_conflict(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (index, file) in files(change.new) {
        if has_content(file) && file.content_from.is_some() {
            faults.push_redacted(
                (&file.path, file.content, &file.content_from),
                Fault {
                    field: change
                        .new
                        .kubeadm_path(format_args!("files[{index}].contentFrom")),
                    reason: CauseReason::Forbidden,
                    value: None,
                    detail: "the file also has content, and only one of the two can be used".into(),
                    remedy: "remove content to use the Secret, or remove contentFrom to use the inline \
                             content"
                        .into(),
                },
            );
        }
    }
}

fn content_missing(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (index, file) in files(change.new) {
        if !has_content(file) && file.content_from.is_none() {
            faults.push_redacted(
                &file.path,
                Fault {
                    field: change.new.kubeadm_path(format_args!("files[{index}].content")),
                    reason: CauseReason::Required,
                    value: None,
                    detail: "the file would be empty".into(),
                    remedy: "set content, unless the file should be empty".into(),
                },
            );
        }
    }
}

fn secret_incomplete(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (index, file) in files(change.new) {
        let Some(source) = &file.content_from else {
            continue;
        };
        for missing in missing_secret_fields(source) {
            faults.push_redacted(
                &file.path,
                Fault {
                    field: change.new.kubeadm_path(format_args!(
                        "files[{index}].contentFrom.secret.{}",
                        missing.field
                    )),
                    reason: CauseReason::Required,
                    value: None,
                    detail: format!(
                        "the content of the file comes from a Secret, but the reference to the Secret has no \
                         {}",
                        missing.field
                    )
                    .into(),
                    remedy: missing.remedy.into(),
                },
            );
        }
    }
}

/// An unset or empty field of a reference to a Secret.
#[derive(Clone, Copy, Debug)]
pub struct MissingSecretField {
    /// The field that is unset: `name` or `key`.
    pub field: &'static str,
    /// What to do, as text for the message.
    pub remedy: &'static str,
}

/// The fields that a reference to a Secret lacks.
pub fn missing_secret_fields(source: &SecretSource<'_>) -> impl Iterator<Item = MissingSecretField> {
    let secret = source.secret.as_ref();
    let is_empty = |text: Option<&Text<'_>>| text.is_none_or(|text| text.is_empty());
    let name = MissingSecretField {
        field: "name",
        remedy: "set the name of a Secret in this namespace",
    };
    let key = MissingSecretField {
        field: "key",
        remedy: "set the key of the value in the Secret",
    };
    [
        (is_empty(secret.and_then(|secret| secret.name.as_ref())), name),
        (is_empty(secret.and_then(|secret| secret.key.as_ref())), key),
    ]
    .into_iter()
    .filter_map(|(is_missing, missing)| is_missing.then_some(missing))
}

fn path_duplicate(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    // Faster than a HashSet for the few dozen files of a control plane.
    let mut seen = BTreeSet::new();
    for (index, file) in files(change.new) {
        let Some(path) = file.path.as_deref().filter(|path| !path.is_empty()) else {
            continue;
        };
        if !seen.insert(path) {
            faults.push_redacted(
                path,
                Fault {
                    field: change.new.kubeadm_path(format_args!("files[{index}].path")),
                    reason: CauseReason::Duplicate,
                    value: Some(HIDDEN.to_owned()),
                    detail: "an earlier file has the same path".into(),
                    remedy: "remove one of the two files, or merge their contents".into(),
                },
            );
        }
    }
}
