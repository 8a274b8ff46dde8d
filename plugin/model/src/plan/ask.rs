//! The change that the arguments request, reviewed by the admission rules.

use jiff::Timestamp;
use kcp_api::KubeadmControlPlane;
use kcp_rules::api::{DecodeError, decode};
use serde_json::{Map, Value, json};

use crate::{
    merge_patch,
    plan::{effect::changes, outlook::Asked},
    review::{Review, ReviewContext, review_update},
    verbs::rollout::start::restart,
};

/// The requested change. If it is empty, the plan is for the pending changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub replicas: Option<i64>,
    /// With or without the leading `v`, as in Cluster API's own webhook.
    pub version: Option<String>,
    pub restart: bool,
}

/// A Kubernetes version with its leading `v`, given or not, as Cluster API's own webhook has it.
pub fn with_leading_v(version: &str) -> String {
    format!("v{}", version.strip_prefix('v').unwrap_or(version))
}

impl Change {
    /// As a merge patch of a control plane in `api_version`.
    pub fn patch(&self, api_version: &str, now: Timestamp) -> Value {
        let mut spec = Value::Object(Map::new());
        if let Some(replicas) = self.replicas {
            merge_patch::apply(&mut spec, &json!({"replicas": replicas}));
        }
        if let Some(version) = &self.version {
            merge_patch::apply(&mut spec, &json!({"version": with_leading_v(version)}));
        }
        if self.restart {
            merge_patch::apply(&mut spec, &restart(api_version, now));
        }
        json!({ "spec": spec })
    }
}

/// What a merge patch asks of a control plane as the server wrote it, and what the rules say of it without refusing it.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn ask(
    text: &str,
    patch: &Value,
    context: ReviewContext<'_>,
) -> Result<(Asked, Vec<String>), DecodeError> {
    // What stands has been judged when it was written.
    let Review { denials, warnings } = if merge_patch::is_applied(&decode(text)?, patch) {
        Review::default()
    } else {
        review_update(text, &patched(text, patch)?, context)?
    };
    Ok((asked(text, patch, &denials)?, warnings))
}

/// What a merge patch asks of a control plane as the server wrote it, given why the rules refuse it.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn asked(text: &str, patch: &Value, denials: &[String]) -> Result<Asked, DecodeError> {
    let new_text = patched(text, patch)?;
    let (old, new): (Value, Value) = (decode(text)?, decode(&new_text)?);
    let (before, after): (KubeadmControlPlane, KubeadmControlPlane) = (decode(text)?, decode(&new_text)?);
    let same_template = before.spec.infrastructure_ref == after.spec.infrastructure_ref;
    Ok(Asked {
        changes: changes(&old, &new, same_template),
        spec: after.spec,
        denials: denials.to_vec(),
    })
}

/// An object after a merge patch.
///
/// # Errors
/// When it is none.
pub fn patched(text: &str, patch: &Value) -> Result<String, DecodeError> {
    let mut object: Value = decode(text)?;
    merge_patch::apply(&mut object, patch);
    Ok(object.to_string())
}

#[cfg(test)]
mod tests {
    use kcp_rules::{
        case::{Base, V1BETA1, V1BETA2},
        view::View,
    };
    use serde_json::json;

    use super::{Asked, Change, ask};
    use crate::{review::ReviewContext, testing::objects::now};

    fn asked(version: &'static str, change: &Change) -> Asked {
        let base = if version == "v1beta1" { V1BETA1 } else { V1BETA2 };
        let view = View::default();
        let context = ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &view,
            configuration: None,
        };
        let api_version = format!("controlplane.cluster.x-k8s.io/{version}");
        let text = Base::ControlPlane(base).object().to_string();
        let patch = change.patch(&api_version, now());
        ask(&text, &patch, context).expect("decodes").0
    }

    #[test]
    fn both_versions_are_asked_for_the_same() {
        let change = Change {
            replicas: Some(5),
            version: None,
            restart: true,
        };
        for (version, field) in [
            ("v1beta1", "spec.rolloutAfter"),
            ("v1beta2", "spec.rollout.after"),
        ] {
            let asked = asked(version, &change);
            assert_eq!(asked.spec.replicas, Some(5));
            assert_eq!(asked.spec.rollout_after, Some(now()));
            let fields: Vec<_> = asked.changes.iter().map(|change| change.field.as_str()).collect();
            assert_eq!(fields, ["spec.replicas", field], "{version}");
        }
    }

    #[test]
    fn a_version_gets_its_leading_v() {
        for version in ["1.99.0", "v1.99.0"] {
            let change = Change {
                version: Some(version.to_owned()),
                ..Change::default()
            };
            assert_eq!(asked("v1beta2", &change).spec.version(), "v1.99.0");
        }
    }

    #[test]
    fn the_rules_judge_a_change_and_not_what_stands() {
        let even = Change {
            replicas: Some(4),
            ..Change::default()
        };
        let denials = asked("v1beta2", &even).denials;
        assert!(
            matches!(denials.as_slice(), [only] if only.ends_with("(replicas-even)")),
            "{denials:?}"
        );

        let mut object = Base::ControlPlane(V1BETA2).object();
        object["spec"]["replicas"] = json!(4);
        let view = View::default();
        let context = ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &view,
            configuration: None,
        };
        let patch = Change::default().patch("g/v1beta2", now());
        let (asked, warnings) = ask(&object.to_string(), &patch, context).expect("decodes");
        assert_eq!((asked.changes, asked.denials, warnings), (vec![], vec![], vec![]));
        assert_eq!(asked.spec.replicas, Some(4));
    }
}
