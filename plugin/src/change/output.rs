//! What scripts are given of a change: the control plane as it was written, or why it was not.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use crate::{
    document::{self, API_VERSION, ObjectName},
    edit::{Edited, Outcome},
    merge_patch,
};

/// Output formats of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ChangeOutput {
    /// The control plane, or why it was not changed, as JSON
    Json,
    /// The same as YAML
    Yaml,
    /// The control plane's name; nothing where it was not changed
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
#[serde(rename_all = "camelCase")]
struct ChangeRefused<'e> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ObjectName,
    refused_by: &'e str,
    reasons: &'e [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
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
        let refused = |refused_by, reasons, hint| ChangeRefused {
            api_version: API_VERSION,
            kind: "ChangeRefused",
            metadata: (&self.before).into(),
            refused_by,
            reasons,
            hint,
        };
        let document = match &self.outcome {
            Outcome::Refused(refusal) => refused(
                refusal.by(is_configured),
                &refusal.why,
                Some(refusal.hints(is_configured).join("; ")).filter(|hints| !hints.is_empty()),
            ),
            Outcome::Rejected(why) => refused("the server", why, None),
            Outcome::Overtaken(what) => refused("others, who were faster", what, None),
            Outcome::Unchanged | Outcome::Made => {
                let mut object: Value = serde_json::from_str(now.unwrap_or(&self.object))?;
                if let (None, Some(patch)) = (now, &self.patch) {
                    merge_patch::apply(&mut object, patch);
                }
                return self.text(format, &object);
            }
        };
        match format {
            ChangeOutput::Name => Ok(String::new()),
            ChangeOutput::Json | ChangeOutput::Yaml => self.text(format, &document),
        }
    }

    fn text(&self, format: ChangeOutput, document: &impl Serialize) -> Result<String, OutputError> {
        Ok(match format {
            ChangeOutput::Json => document::text(document)?,
            ChangeOutput::Yaml => serde_saphyr::to_string(document)?,
            ChangeOutput::Name => format!(
                "kubeadmcontrolplane.controlplane.cluster.x-k8s.io/{}\n",
                self.before.name
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ChangeOutput::{self, Json, Name, Yaml};
    use crate::{
        control_plane::example::healthy,
        edit::{Edited, Outcome, Refusal, RefusedBy},
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
                assert_eq!(parsed(&output(outcome.clone(), format, None)), expected);
            }
            assert_eq!(output(outcome, Name, None), "");
        }
    }
}
