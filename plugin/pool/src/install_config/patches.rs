//! Applies a customization's patches to an install-config according to RFC 6902, with values as Hive reads them. No I/O.
//!
//! Hive applies the patches with a Go library that also accepts patches that the RFC rejects. Such a patch is reported
//! separately from a patch that Hive also rejects.
//!
//! - [`hive_jsonpatch`]: the result of that library for a patch

mod hive_jsonpatch;

use std::{borrow::Cow, fmt};

use json_patch::{Patch, PatchErrorKind, PatchOperation};
use kcp_rules::{
    Change, Configuration,
    api::{
        ClusterDeploymentCustomization, Metadata,
        hive::{ClusterDeploymentCustomizationSpec, ClusterDeploymentCustomizationStatus, PatchEntity},
    },
    judge,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::install_config::{
    InstallConfig,
    patches::hive_jsonpatch::{Refused, apply_as_hive},
};

/// The maximum length of a patch's path in a message, in characters.
const MAX_PATH_CHARS: usize = 120;

/// The result of a customization's patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchedInstallConfig {
    pub install_config: InstallConfig,
    /// The customization's patches for the manifests that the installer writes. They are not applied here.
    pub manifest_patches: Vec<Value>,
    /// One sentence for each patch with a pointer that Hive and this program read differently.
    pub warnings: Vec<String>,
}

/// Why a customization's patches cannot be applied. The messages contain no values of patches, which may be secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchProblem {
    /// Neither RFC 6902 nor Hive's library can apply the patch.
    Broken(String),
    /// Hive's library applies the patch, but RFC 6902 does not allow it, and the result differs from what the patch says.
    ForbiddenByRfc(String),
}

impl fmt::Display for PatchProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(why) | Self::ForbiddenByRfc(why) => f.write_str(why),
        }
    }
}

/// Applies the patches of a customization's spec to the install-config. Fails if a patch cannot be applied. If Hive's library
/// cannot apply one of the patches either, the error is about that patch, even if an earlier patch only violates RFC 6902.
pub fn patch_install_config(
    install_config: &InstallConfig,
    spec: &Value,
) -> Result<PatchedInstallConfig, PatchProblem> {
    let read = match spec {
        Value::Null => ClusterDeploymentCustomizationSpec::default(),
        spec => ClusterDeploymentCustomizationSpec::deserialize(spec).map_err(|error| {
            PatchProblem::Broken(format!("the spec of the customization cannot be read: {error}"))
        })?,
    };
    manifest_patches_can_be_read(&read)?;
    let mut warnings = Vec::new();
    let patches = read.install_config_patches.as_deref().unwrap_or_default();
    let document = patched_document(install_config.value().clone(), patches, &mut warnings)?;
    let manifest_patches = spec.get("installerManifestPatches").and_then(Value::as_array);
    Ok(PatchedInstallConfig {
        install_config: InstallConfig::new(document),
        manifest_patches: manifest_patches.cloned().unwrap_or_default(),
        warnings,
    })
}

fn patched_document(
    mut document: Value,
    patches: &[PatchEntity],
    warnings: &mut Vec<String>,
) -> Result<Value, PatchProblem> {
    let mut strictly_broken = None;
    for (index, patch) in patches.iter().enumerate() {
        let place = PatchPosition { index, patch };
        place.check_not_whole_document()?;
        let value = place.value()?;
        let strictly = match &strictly_broken {
            None => place.apply_as_rfc(&document, &value, warnings),
            // Later patches would then apply to a document that only Hive's library can produce.
            Some(_) => Err("the patch cannot be applied"),
        };
        document = match strictly {
            Ok(document) => document,
            Err(why) => {
                let (document, deviation) =
                    apply_as_hive(document, patch, value).map_err(|Refused| place.broken(why))?;
                let why = deviation.map_or_else(|| why.to_owned(), |deviation| deviation.to_string());
                strictly_broken
                    .get_or_insert_with(|| PatchProblem::ForbiddenByRfc(format!("{place}: {why}")));
                document
            }
        };
        // Hive checks the document after every patch, too.
        if !document.is_object() && !document.is_array() {
            return Err(place.broken("the result is not a YAML mapping, but an install-config must be one"));
        }
    }
    if !document.is_object() {
        let why =
            "spec.installConfigPatches: the result is not a YAML mapping, but an install-config must be one";
        return Err(PatchProblem::Broken(why.to_owned()));
    }
    strictly_broken.map_or(Ok(document), Err)
}

/// Checks the patches of manifests with the admission rules. These patches cannot be applied here, because the
/// installer writes the manifests later.
fn manifest_patches_can_be_read(spec: &ClusterDeploymentCustomizationSpec) -> Result<(), PatchProblem> {
    let customization = ClusterDeploymentCustomization {
        metadata: Metadata::default(),
        spec: ClusterDeploymentCustomizationSpec {
            install_config_patches: None,
            ..spec.clone()
        },
        status: ClusterDeploymentCustomizationStatus::default(),
    };
    let judgement = judge(&Change::create(&customization), &Configuration::default());
    // Ignore rules about names and about other objects, which concern only writes of the customization.
    let of_patches = |field: &str| field.starts_with("spec.installerManifestPatches");
    let found = judgement
        .denials()
        .find(|finding| of_patches(&finding.fault.field));
    match found {
        None => Ok(()),
        Some(finding) => Err(PatchProblem::Broken(format!(
            "{}: {}",
            finding.fault.field,
            finding.message()
        ))),
    }
}

/// A patch, and its index in the customization's spec.
#[derive(Clone, Copy)]
struct PatchPosition<'p> {
    index: usize,
    patch: &'p PatchEntity,
}

impl fmt::Display for PatchPosition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, patch } = self;
        let path = shorten(&patch.path, MAX_PATH_CHARS);
        write!(f, "spec.installConfigPatches[{index}] ({} {path:?})", patch.op)
    }
}

impl PatchPosition<'_> {
    /// Applies the patch to the document as RFC 6902 says, and returns the new document or why the patch fails.
    fn apply_as_rfc(
        &self,
        document: &Value,
        value: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<Value, &'static str> {
        let operation = self.operation(value, warnings)?;
        // Work on a copy, because the library does not undo a failed operation.
        let mut document = document.clone();
        match json_patch::patch(&mut document, &Patch(vec![operation])) {
            Ok(()) => Ok(document),
            Err(error) => Err(match error.kind {
                PatchErrorKind::TestFailed => "the value in the document differs from the value in the patch",
                PatchErrorKind::InvalidFromPointer => "the field that `from` names does not exist",
                PatchErrorKind::InvalidPointer => "the field that `path` names does not exist",
                PatchErrorKind::CannotMoveInsideItself => "a field cannot be moved into itself",
                _ => "the patch cannot be applied",
            }),
        }
    }

    /// Turns the patch into an operation of RFC 6902.
    fn operation(&self, value: &Value, warnings: &mut Vec<String>) -> Result<PatchOperation, &'static str> {
        let patch = self.patch;
        let pointer = self.pointer("path", &patch.path, warnings);
        let mut operation = json!({"op": patch.op, "path": pointer});
        if let Value::Object(fields) = &mut operation {
            match patch.op.as_str() {
                "move" | "copy" => {
                    let source = patch.from.as_deref().ok_or("`from` is not set")?;
                    fields.insert("from".to_owned(), self.pointer("from", source, warnings).into());
                }
                "remove" => {}
                _ => {
                    fields.insert("value".to_owned(), value.clone());
                }
            }
        }
        PatchOperation::deserialize(operation).map_err(|_| "the op is not an operation of RFC 6902")
    }

    /// Refuses a patch of the whole document. RFC 6902 allows it for every operation, but Hive's library only for `replace`
    /// and `test`.
    fn check_not_whole_document(&self) -> Result<(), PatchProblem> {
        let patch = self.patch;
        let names_it = match patch.op.as_str() {
            "add" | "remove" => patch.path.is_empty(),
            "move" | "copy" => patch.path.is_empty() || patch.from.as_deref() == Some(""),
            _ => false,
        };
        if names_it {
            return Err(self.broken("Hive allows a patch of the whole document only with op replace or test"));
        }
        Ok(())
    }

    /// The JSON pointer of the patch's `path` or `from`. Adds the `/` that is missing in paths such as `metadata/name`,
    /// which the design document of inventories uses.
    fn pointer(&self, field: &str, text: &str, warnings: &mut Vec<String>) -> String {
        if text.is_empty() || text.starts_with('/') {
            return text.to_owned();
        }
        warnings.push(format!(
            "{self}: the {field} {:?} does not begin with /, so kubectl-kcp reads it as {:?}; add the /, \
             because Hive would drop the first part",
            shorten(text, MAX_PATH_CHARS),
            shorten(&format!("/{text}"), MAX_PATH_CHARS)
        ));
        format!("/{text}")
    }

    /// The value of the patch: `valueJSON` if it is set, otherwise `value` as a string. If neither is set, the string is
    /// empty.
    fn value(&self) -> Result<Value, PatchProblem> {
        if !matches!(self.patch.op.as_str(), "add" | "replace" | "test") {
            return Ok(Value::Null);
        }
        if let Some(text) = self.patch.value_json.as_deref().filter(|text| !text.is_empty()) {
            return serde_json::from_str(text)
                .map_err(|_| self.broken("valueJSON must be exactly one valid JSON value"));
        }
        let text = self.patch.value.as_deref().unwrap_or_default();
        if text.chars().any(is_not_json_between_gos_quotes) {
            return Err(
                self.broken("value has a control character that Hive cannot write in JSON; use valueJSON")
            );
        }
        Ok(text.into())
    }

    fn broken(&self, why: &str) -> PatchProblem {
        PatchProblem::Broken(format!("{self}: {why}"))
    }
}

/// The first characters of `text`, with dots at the end if it is longer.
pub fn shorten(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => text.into(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()).into(),
    }
}

/// Whether Hive would turn this character into invalid JSON. Hive writes a value with Go's `%q` and reads the result as
/// JSON, which lacks some of Go's escapes: `\a`, `\v`, `\x00` and `\U000e0001`.
fn is_not_json_between_gos_quotes(c: char) -> bool {
    match c {
        '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => false,
        // The last two ranges are tags and private use characters, which Go escapes with more than four digits.
        '\0'..='\u{1f}' | '\u{7f}' | '\u{e0000}'..='\u{e00ff}' | '\u{f0000}'.. => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
