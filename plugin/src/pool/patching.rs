//! A customization's patches on an install-config: RFC 6902, with values as Hive reads them. Pure.
//!
//! Hive hands the patches to a Go library that is laxer than the RFC. Where only that library would apply a patch, and
//! do something else than what it says, the patch is told from one that nobody can apply.

use std::fmt;

use json_patch::{Patch, PatchErrorKind, PatchOperation};
use kcp_rules::{
    Change, Configuration,
    api::{
        ClusterDeploymentCustomization, Metadata,
        hive::{ClusterDeploymentCustomizationSpec, PatchEntity},
    },
    judge,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::install_config::InstallConfig;

/// What a customization makes of an install-config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patched {
    pub(super) install_config: InstallConfig,
    /// For the manifests that the installer writes from it; as they stand.
    pub(super) manifest_patches: Vec<Value>,
    /// What the patches leave open, a sentence each.
    pub(super) warnings: Vec<String>,
}

/// A patch that is not applied. Without values: they may be secrets of the install-config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Nobody can apply it.
    Broken(String),
    /// Hive's library would apply it, and do something else than it says.
    StrictlyBroken(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Broken(why) | Self::StrictlyBroken(why)) = self;
        f.write_str(why)
    }
}

/// Applies a customization's patches, given its spec.
///
/// # Errors
/// The first patch that is not applied.
pub(super) fn patched(install_config: &InstallConfig, spec: &Value) -> Result<Patched, Unfit> {
    let read = match spec {
        Value::Null => ClusterDeploymentCustomizationSpec::default(),
        spec => ClusterDeploymentCustomizationSpec::deserialize(spec)
            .map_err(|error| Unfit::Broken(format!("its spec cannot be read: {error}")))?,
    };
    manifest_patches_can_be_read(&read)?;
    let mut document = install_config.value().clone();
    let mut warnings = Vec::new();
    for (index, patch) in read.install_config_patches.iter().flatten().enumerate() {
        let place = Place { index, patch };
        let operation = place.operation(&mut warnings)?;
        let patch = Patch(vec![operation]);
        if let Err(error) = json_patch::patch(&mut document, &patch) {
            return Err(place.unfit(&error.kind, &document));
        }
    }
    let manifest_patches = spec.get("installerManifestPatches").and_then(Value::as_array);
    Ok(Patched {
        install_config: InstallConfig::of(document),
        manifest_patches: manifest_patches.cloned().unwrap_or_default(),
        warnings,
    })
}

/// What the admission rules say of the patches for manifests, which nobody has here: the installer writes them.
fn manifest_patches_can_be_read(spec: &ClusterDeploymentCustomizationSpec) -> Result<(), Unfit> {
    let customization = ClusterDeploymentCustomization {
        metadata: Metadata::default(),
        spec: ClusterDeploymentCustomizationSpec {
            install_config_patches: None,
            ..spec.clone()
        },
        status: None,
    };
    let judgement = judge(&Change::create(&customization), &Configuration::default());
    // Rules about names and neighbours have no say: nothing is written.
    let of_patches = |field: &str| field.starts_with("spec.installerManifestPatches");
    let found = judgement
        .denials()
        .find(|finding| of_patches(&finding.fault.field));
    match found {
        None => Ok(()),
        Some(finding) => Err(Unfit::Broken(format!(
            "{}: {}",
            finding.fault.field,
            finding.message()
        ))),
    }
}

/// One patch and where it stands.
#[derive(Clone, Copy)]
struct Place<'p> {
    index: usize,
    patch: &'p PatchEntity,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, patch } = self;
        write!(
            f,
            "spec.installConfigPatches[{index}] ({} {:?})",
            patch.op, patch.path
        )
    }
}

impl Place<'_> {
    /// The operation as the RFC has it.
    fn operation(&self, warnings: &mut Vec<String>) -> Result<PatchOperation, Unfit> {
        let patch = self.patch;
        let pointer = self.pointer("path", &patch.path, warnings);
        let mut operation = json!({"op": patch.op, "path": pointer});
        if let Value::Object(fields) = &mut operation {
            match patch.op.as_str() {
                "move" | "copy" => {
                    let from = patch
                        .from
                        .as_deref()
                        .ok_or_else(|| self.broken("it has no from"))?;
                    fields.insert("from".to_owned(), self.pointer("from", from, warnings).into());
                }
                "remove" => {}
                _ => {
                    fields.insert("value".to_owned(), self.value()?);
                }
            }
        }
        PatchOperation::deserialize(operation).map_err(|_| self.broken("it is no operation of RFC 6902"))
    }

    /// The design document writes `metadata/name` for `/metadata/name`, and this is what such a path is read as.
    fn pointer(&self, field: &str, text: &str, warnings: &mut Vec<String>) -> String {
        if text.is_empty() || text.starts_with('/') {
            return text.to_owned();
        }
        warnings.push(format!(
            "{self}: the {field} {text:?} begins with no / and is read as \"/{text}\"; Hive would drop its first part"
        ));
        format!("/{text}")
    }

    /// `valueJSON` where it is set, else `value` between quotes; no value is the empty string.
    fn value(&self) -> Result<Value, Unfit> {
        if let Some(text) = self.patch.value_json.as_deref().filter(|text| !text.is_empty()) {
            return serde_json::from_str(text)
                .map_err(|_| self.broken("its valueJSON is not one JSON value"));
        }
        let text = self.patch.value.as_deref().unwrap_or_default();
        if text.chars().any(is_not_json_between_gos_quotes) {
            return Err(self
                .broken("its value has a control character that Hive cannot write in JSON; use valueJSON"));
        }
        Ok(text.into())
    }

    fn unfit(&self, kind: &PatchErrorKind, document: &Value) -> Unfit {
        if matches!(kind, PatchErrorKind::InvalidPointer) && self.replaces_absent_field(document) {
            return Unfit::StrictlyBroken(format!(
                "{self}: there is no such field, and Hive would add it; write op add if that is meant"
            ));
        }
        self.broken(match kind {
            PatchErrorKind::TestFailed => "another value is there",
            PatchErrorKind::InvalidFromPointer => "its from leads nowhere",
            PatchErrorKind::InvalidPointer => "its path leads nowhere",
            PatchErrorKind::CannotMoveInsideItself => "nothing moves into itself",
            _ => "it cannot be applied",
        })
    }

    /// Go's library (json-patch v4) does not look whether an object has the field that it replaces.
    fn replaces_absent_field(&self, document: &Value) -> bool {
        let path = self.patch.path.trim_start_matches('/');
        let parent = match path.rsplit_once('/') {
            Some((parent, _)) => document.pointer(&format!("/{parent}")),
            None => Some(document),
        };
        self.patch.op == "replace" && parent.is_some_and(Value::is_object)
    }

    fn broken(&self, why: &str) -> Unfit {
        Unfit::Broken(format!("{self}: {why}"))
    }
}

/// Hive writes a value with Go's `%q`, and reads that as JSON, which does not know all of its escapes: `\a`, `\v`,
/// `\x00` and `\U000e0001`.
fn is_not_json_between_gos_quotes(c: char) -> bool {
    match c {
        '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => false,
        // The last two are tags and private use: what Go does not print, beyond what four digits can say.
        '\0'..='\u{1f}' | '\u{7f}' | '\u{e0000}'..='\u{e00ff}' | '\u{f0000}'.. => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
