//! What scripts are given of a change of a Machine: the Machine as it was written, or why it was not.

use crate::commands::machine::change::{Changed, Outcome};
use crate::{
    change::output::{ChangeOutput, ChangeRefused, OutputError},
    document::ObjectName,
};
use kcp_client::MACHINE;

/// What is printed of a change in a format. `now` is the Machine after the write, where there is one still and it was
/// read; else it is as it was judged, with what was written to it.
///
/// # Errors
/// When a document cannot be written: never, as far as is known.
pub(super) fn output(
    changed: &Changed,
    machine: ObjectName,
    now: Option<&str>,
    hints: &[&str],
    format: ChangeOutput,
) -> Result<String, OutputError> {
    match &changed.outcome {
        Outcome::Unchanged { object, .. } => format.object(&MACHINE, &machine.name, object, None),
        Outcome::Made { object, patch } => {
            let (object, patch) = match now {
                Some(now) => (now, None),
                None => (object.as_str(), patch.as_ref()),
            };
            format.object(&MACHINE, &machine.name, object, patch)
        }
        Outcome::Refused(refusal) => {
            let by = refusal.by(crate::commands::machine::IS_CONFIGURED);
            format.refused(&ChangeRefused::new(machine, by, &refusal.why, hints))
        }
        Outcome::Rejected(why) => format.refused(&ChangeRefused::new(machine, "the server", why, hints)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ChangeOutput, Changed, ObjectName, Outcome, output};
    use kcp_control_plane::change::decision::{Refusal, RefusedBy};

    fn printed(outcome: &Outcome, now: Option<&str>, hints: &[&str], format: ChangeOutput) -> String {
        let changed = Changed {
            control_plane: None,
            warnings: Vec::new(),
            consequences: Vec::new(),
            outcome: outcome.clone(),
        };
        let (name, namespace) = ("m1".to_owned(), "d".to_owned());
        output(&changed, ObjectName { name, namespace }, now, hints, format).expect("written")
    }

    #[test]
    fn the_machine_is_as_it_was_written() {
        let object = json!({"metadata": {"name": "m1"}, "x": 1}).to_string();
        let patch = json!({"metadata": {"annotations": {"a": ""}}});
        let marked = Outcome::Made {
            object: object.clone(),
            patch: Some(patch),
        };
        let deleted = Outcome::Made {
            object: object.clone(),
            patch: None,
        };
        let unchanged = Outcome::Unchanged {
            why: "so it is".to_owned(),
            object,
        };
        let as_it_was = json!({"metadata": {"name": "m1"}, "x": 1});
        let leaving = r#"{"metadata":{"name":"m1","deletionTimestamp":"2026-08-21T12:00:00Z"}}"#;
        for (outcome, now, expected) in [
            (
                &marked,
                None,
                json!({"metadata": {"name": "m1", "annotations": {"a": ""}}, "x": 1}),
            ),
            (&deleted, None, as_it_was.clone()),
            (
                &deleted,
                Some(leaving),
                serde_json::from_str(leaving).expect("JSON"),
            ),
            (&unchanged, None, as_it_was),
        ] {
            for format in [ChangeOutput::Json, ChangeOutput::Yaml] {
                let document = printed(outcome, now, &[], format);
                let document: Value =
                    serde_saphyr::from_str(&document).expect("YAML, of which JSON is a part");
                assert_eq!(document, expected, "{outcome:?}");
            }
            assert_eq!(
                printed(outcome, now, &[], ChangeOutput::Name),
                "machine.cluster.x-k8s.io/m1\n"
            );
        }
    }

    #[test]
    fn the_reason_is_told_where_it_was_not_written() {
        let why = vec!["etcd would have no quorum".to_owned()];
        let refused = Outcome::Refused(Refusal::new(RefusedBy::Command, why.clone()));
        for (outcome, by, hints, hint) in [
            (&refused, "kubectl kcp", &["wait"][..], Some("wait")),
            (&refused, "kubectl kcp", &[], None),
            (&Outcome::Rejected(why.clone()), "the server", &[], None),
        ] {
            let mut expected = json!({
                "apiVersion": "kubectl-kcp.dev/v1alpha1",
                "kind": "ChangeRefused",
                "metadata": {"name": "m1", "namespace": "d"},
                "refusedBy": by,
                "reasons": why,
            });
            if let Some(hint) = hint {
                expected["hint"] = json!(hint);
            }
            let document = printed(outcome, None, hints, ChangeOutput::Json);
            let document: Value = serde_json::from_str(&document).expect("JSON");
            assert_eq!(document, expected);
            assert_eq!(printed(outcome, None, hints, ChangeOutput::Name), "");
        }
    }
}
