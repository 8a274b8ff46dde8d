//! How the last step of a migration is reversed: the fields of the control plane that the step changed, with
//! their earlier values.

use kcp_api::names::annotation;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::leader_migration::step::MigrationStep;

/// The value of the annotation `leader-migration`, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The step that reverses the last one.
    pub undo: MigrationStep,
    /// The record of the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<Record>>,
}

impl Record {
    /// The record of a control plane; `None` if it has no valid record.
    pub fn of(control_plane: &Value) -> Option<Self> {
        let annotations = control_plane.pointer("/metadata/annotations")?;
        serde_json::from_str(annotations.get(annotation::LEADER_MIGRATION)?.as_str()?).ok()
    }

    /// The control plane with this record, or without a record.
    pub fn set(record: Option<&Self>, mut control_plane: Value) -> Value {
        let text = record.and_then(|record| serde_json::to_string(record).ok());
        let metadata = control_plane.get_mut("metadata").and_then(Value::as_object_mut);
        let annotations = metadata.map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            match text {
                Some(text) => annotations.insert(annotation::LEADER_MIGRATION.to_owned(), json!(text)),
                None => annotations.remove(annotation::LEADER_MIGRATION),
            };
        }
        if let Some(metadata) = control_plane.get_mut("metadata").and_then(Value::as_object_mut)
            && metadata
                .get("annotations")
                .and_then(Value::as_object)
                .is_some_and(Map::is_empty)
        {
            metadata.remove("annotations");
        }
        control_plane
    }
}
