//! The desired change, from command-line flags or a patch, and its review by the admission rules.

use jiff::Timestamp;
use kcp_api::KubeadmControlPlane;
use kcp_rules::api::{DecodeError, control_plane::Shape, decode};
use serde_json::{Map, Value, json};

use crate::{
    merge_patch,
    plan::{Desired, effect::changes},
    review::{Review, ReviewContext, review_patch},
};

/// The change that a command's flags request. Without a change, the plan shows the pending steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    pub replicas: Option<i64>,
    /// The desired Kubernetes version, with or without the leading `v`.
    pub version: Option<String>,
    pub restart: bool,
}

/// Adds the leading `v` to a Kubernetes version if it is missing, like Cluster API's webhook.
pub fn with_leading_v(version: &str) -> String {
    format!("v{}", version.strip_prefix('v').unwrap_or(version))
}

impl PlanOptions {
    /// Returns the merge patch of a control plane whose JSON has the API version `api_version`.
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

/// The spec fields that make the controller replace all existing Machines now. The time has no fractions of a second, because the
/// API stores whole seconds.
fn restart(api_version: &str, now: Timestamp) -> Value {
    rollout_after(
        api_version,
        Timestamp::from_second(now.as_second()).unwrap_or(now),
    )
}

/// The spec fields that make the controller replace every Machine that was created before `after`, once that time has passed.
pub fn rollout_after(api_version: &str, after: Timestamp) -> Value {
    match Shape::from_api_version(api_version) {
        Shape::V1Beta1 => json!({"rolloutAfter": after.to_string()}),
        Shape::V1Beta2 => json!({"rollout": {"after": after.to_string()}}),
    }
}

/// The spec fields with the name of the infrastructure template.
pub fn infrastructure_template(api_version: &str, name: &str) -> Value {
    let reference = json!({"infrastructureRef": {"name": name}});
    match Shape::from_api_version(api_version) {
        Shape::V1Beta1 => json!({"machineTemplate": reference}),
        Shape::V1Beta2 => json!({"machineTemplate": {"spec": reference}}),
    }
}

/// Returns the change that a merge patch makes, and the warnings of the admission rules.
pub fn review_desired(
    text: &str,
    patch: &Value,
    context: ReviewContext<'_>,
) -> Result<(Desired, Vec<String>), DecodeError> {
    // If the patch changes nothing, the webhook has already reviewed the current object.
    let Review { denials, warnings } = if merge_patch::is_applied(&decode(text)?, patch) {
        Review::default()
    } else {
        review_patch(text, patch, context)?
    };
    Ok((desired(text, patch, &denials)?, warnings))
}

pub fn desired(text: &str, patch: &Value, denials: &[String]) -> Result<Desired, DecodeError> {
    let new_text = merge_patch::apply_to_json(text, patch)?;
    let (old, new): (Value, Value) = (decode(text)?, decode(&new_text)?);
    let (before, after): (KubeadmControlPlane, KubeadmControlPlane) = (decode(text)?, decode(&new_text)?);
    let same_template = before.spec.infrastructure_ref == after.spec.infrastructure_ref;
    Ok(Desired {
        changes: changes(&old, &new, same_template),
        spec: after.spec,
        denials: denials.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use kcp_rules::{
        testing::case::{Base, V1BETA1, V1BETA2},
        view::View,
    };
    use serde_json::json;

    use super::{Desired, PlanOptions, review_desired};
    use crate::{review::ReviewContext, testing::objects::now};

    fn desired(version: &'static str, change: &PlanOptions) -> Desired {
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
        review_desired(&text, &patch, context).expect("decodes").0
    }

    #[test]
    fn both_versions_desire_the_same() {
        let change = PlanOptions {
            replicas: Some(5),
            version: None,
            restart: true,
        };
        for (version, field) in [
            ("v1beta1", "spec.rolloutAfter"),
            ("v1beta2", "spec.rollout.after"),
        ] {
            let desired = desired(version, &change);
            assert_eq!(desired.spec.replicas, Some(5));
            assert_eq!(desired.spec.rollout_after, Some(now()));
            let fields: Vec<_> = desired
                .changes
                .iter()
                .map(|change| change.field.as_str())
                .collect();
            assert_eq!(fields, ["spec.replicas", field], "{version}");
        }
    }

    #[test]
    fn a_version_gets_its_leading_v() {
        for version in ["1.99.0", "v1.99.0"] {
            let change = PlanOptions {
                version: Some(version.to_owned()),
                ..PlanOptions::default()
            };
            assert_eq!(desired("v1beta2", &change).spec.version(), "v1.99.0");
        }
    }

    #[test]
    fn the_rules_judge_a_change_and_not_what_stands() {
        let even = PlanOptions {
            replicas: Some(4),
            ..PlanOptions::default()
        };
        let denials = desired("v1beta2", &even).denials;
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
        let patch = PlanOptions::default().patch("g/v1beta2", now());
        let (desired, warnings) = review_desired(&object.to_string(), &patch, context).expect("decodes");
        assert_eq!(
            (desired.changes, desired.denials, warnings),
            (vec![], vec![], vec![])
        );
        assert_eq!(desired.spec.replicas, Some(4));
    }
}
