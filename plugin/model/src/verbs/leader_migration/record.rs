//! How the last step of a migration is reversed: the fields of the control plane that the step changed, with
//! their earlier values.

use kcp_api::{KubeadmControlPlane, Object as _, names::annotation};
use kcp_rules::leader_migration::Step;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The value of the annotation `leader-migration`, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The step that reverses the last one.
    pub undo: Step,
    /// The record of the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<Record>>,
}

impl Record {
    /// The record of a control plane. None if it has no valid record.
    pub fn from_control_plane(control_plane: &KubeadmControlPlane) -> Option<Self> {
        serde_json::from_str(control_plane.annotation(annotation::LEADER_MIGRATION)?).ok()
    }

    /// The patch of a step that also writes the record. Without a record, the patch removes the annotation.
    pub fn add_to_patch(record: Option<&Self>, mut patch: Value) -> Value {
        let text = record.and_then(|record| serde_json::to_string(record).ok());
        add_fields(
            &mut patch,
            &json!({"metadata": {"annotations": {annotation::LEADER_MIGRATION: text}}}),
        );
        patch
    }
}

/// Adds fields to a merge patch. Unlike a merge, this keeps nulls, because a null in a merge patch removes a
/// field.
fn add_fields(patch: &mut Value, more: &Value) {
    match (patch, more) {
        (Value::Object(patch), Value::Object(more)) => {
            for (name, value) in more {
                add_fields(patch.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (patch, more) => *patch = more.clone(),
    }
}
