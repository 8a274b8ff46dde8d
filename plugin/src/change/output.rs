//! What scripts are given of a change: the object as it was written, or why it was not. `plugin/schema` says the latter
//! as a JSON schema.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use crate::{
    document::{self, API_VERSION, ObjectName},
    edit::{Edited, Outcome},
};
use kcp_client::{KUBEADM_CONTROL_PLANE, Kind};
use kcp_control_plane::merge_patch;

/// Output formats of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ChangeOutput {
    /// The object as it was written, or why it was not, as JSON
    Json,
    /// The same as YAML
    Yaml,
    /// The object's name; nothing where it was not written
    Name,
}

/// A document that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// As JSON.
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    /// As YAML.
    #[error("cannot write YAML")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// Why a change was not made.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeRefused<'c> {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "ChangeRefused")))]
    kind: &'static str,
    /// The object that is as it was.
    metadata: ObjectName,
    refused_by: &'c str,
    /// A sentence each.
    reasons: &'c [String],
    /// What to do about it; absent where nothing is known, or waiting is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl<'c> ChangeRefused<'c> {
    /// The document of an object that nothing was written to, with what to do about it, if anything.
    pub(crate) fn new(
        metadata: ObjectName,
        refused_by: &'c str,
        reasons: &'c [String],
        hints: &[&str],
    ) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "ChangeRefused",
            metadata,
            refused_by,
            reasons,
            hint: Some(hints.join("; ")).filter(|hint| !hint.is_empty()),
        }
    }
}

impl ChangeOutput {
    /// An object of a kind, as the server wrote it; with a patch, as that would leave it.
    ///
    /// # Errors
    /// When it is no JSON, or the document cannot be written.
    pub(crate) fn object(
        self,
        kind: &Kind,
        name: &str,
        object: &str,
        patch: Option<&Value>,
    ) -> Result<String, OutputError> {
        if self == Self::Name {
            return Ok(format!("{}.{}/{name}\n", kind.kind.to_lowercase(), kind.group));
        }
        let mut object: Value = serde_json::from_str(object)?;
        if let Some(patch) = patch {
            merge_patch::apply(&mut object, patch);
        }
        self.document(&object)
    }

    /// Why nothing was written.
    ///
    /// # Errors
    /// When the document cannot be written.
    pub(crate) fn refused(self, refused: &ChangeRefused<'_>) -> Result<String, OutputError> {
        self.document(refused)
    }

    fn document(self, document: &impl Serialize) -> Result<String, OutputError> {
        Ok(match self {
            Self::Json => document::text(document)?,
            Self::Yaml => serde_saphyr::to_string(document)?,
            Self::Name => String::new(),
        })
    }
}

impl Edited {
    /// What is printed of it in a format. `now` is the control plane after the write, where it was read; else it is as
    /// the write would leave it.
    ///
    /// # Errors
    /// When a document cannot be written: never, as far as is known.
    pub fn output(
        &self,
        format: ChangeOutput,
        now: Option<&str>,
        is_configured: bool,
    ) -> Result<String, OutputError> {
        let refused = |by, reasons, hints: &[&str]| {
            format.refused(&ChangeRefused::new((&self.before).into(), by, reasons, hints))
        };
        match &self.outcome {
            Outcome::Refused(refusal) => refused(
                refusal.by(is_configured),
                &refusal.why,
                &refusal.hints(is_configured),
            ),
            Outcome::Rejected(why) => refused("the server", why, &[]),
            Outcome::Overtaken(what) => refused("others, who were faster", what, &[]),
            Outcome::Unchanged | Outcome::Made => {
                let (object, patch) = match now {
                    Some(now) => (now, None),
                    None => (self.object.as_str(), self.patch.as_ref()),
                };
                format.object(&KUBEADM_CONTROL_PLANE, &self.before.name, object, patch)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ChangeOutput, ChangeOutput::Json, ChangeOutput::Name, ChangeOutput::Yaml, ChangeRefused};
    use crate::{
        commands::status::schema,
        edit::{Edited, Outcome},
    };
    use kcp_control_plane::{
        change::decision::{Refusal, RefusedBy},
        control_plane::example::healthy,
    };

    fn edited(outcome: Outcome) -> Edited {
        Edited {
            object: json!({"metadata": {"name": "c1-cp", "x": 1}, "spec": {"replicas": 3}}).to_string(),
            before: healthy(3).control_plane,
            patch: Some(json!({"spec": {"replicas": 5}})),
            warnings: Vec::new(),
            consequences: Vec::new(),
            outcome,
        }
    }

    fn output(outcome: Outcome, format: ChangeOutput, now: Option<&str>) -> String {
        edited(outcome).output(format, now, false).expect("written")
    }

    fn parsed(text: &str) -> Value {
        serde_saphyr::from_str(text).expect("YAML, of which JSON is a part")
    }

    #[test]
    fn the_object_is_as_it_was_written() {
        let written = json!({"metadata": {"name": "c1-cp", "x": 1}, "spec": {"replicas": 5}});
        for format in [Json, Yaml] {
            assert_eq!(parsed(&output(Outcome::Made, format, None)), written, "a dry run");
            let now = output(Outcome::Made, format, Some(r#"{"metadata": {"name": "now"}}"#));
            assert_eq!(parsed(&now), json!({"metadata": {"name": "now"}}));
        }
        assert_eq!(
            output(Outcome::Made, Name, None),
            "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/c1-cp\n"
        );
    }

    #[test]
    fn the_reason_is_told_where_it_was_not_written() {
        let why = vec!["Machine m2 has no node yet".to_owned()];
        let refused = |by: &str, reasons: &[String], hint: Option<&str>| {
            let mut document = json!({
                "apiVersion": "kubectl-kcp.dev/v1alpha1",
                "kind": "ChangeRefused",
                "metadata": {"name": "c1-cp", "namespace": "d"},
                "refusedBy": by,
                "reasons": reasons,
            });
            if let Some(hint) = hint {
                document["hint"] = json!(hint);
            }
            document
        };
        let refusal = Refusal::new(RefusedBy::Preflight, why.clone());
        let with_remedy = Refusal {
            remedies: vec!["resume it".to_owned()],
            ..refusal.clone()
        };
        let force = refusal.hint(false).expect("a hint");
        let schema = serde_json::to_value(schema::of::<ChangeRefused<'_>>()).expect("serializes");
        for (outcome, expected) in [
            (
                Outcome::Refused(refusal.clone()),
                refused("the preflight", &why, Some(force)),
            ),
            (
                Outcome::Refused(with_remedy),
                refused("the preflight", &why, Some(&format!("resume it; {force}"))),
            ),
            (
                Outcome::Refused(Refusal::new(RefusedBy::Command, why.clone())),
                refused("kubectl kcp", &why, None),
            ),
            (Outcome::Rejected(why.clone()), refused("the server", &why, None)),
            (
                Outcome::Overtaken(why.clone()),
                refused("others, who were faster", &why, None),
            ),
        ] {
            for format in [Json, Yaml] {
                let document = parsed(&output(outcome.clone(), format, None));
                assert_eq!(document, expected);
                assert_eq!(schema::faults(&schema, &document), Vec::<String>::new());
            }
            assert_eq!(output(outcome, Name, None), "");
        }
    }
    #[test]
    fn the_schema_is_checked_in() {
        schema::checked_in::<ChangeRefused<'_>>("changerefused.json");
    }
}
