//! Whether a control plane may be scaled, and what is written for it.

use kcp_rules::api::DecodeError;
use serde_json::json;

use crate::{
    control_plane::ControlPlane,
    edit::{Decision, Refusal},
    judgement::{Surroundings, judge_scale},
};

/// Decides on a control plane as the server wrote it.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn decide(
    text: &str,
    control_plane: &ControlPlane,
    replicas: i64,
    surroundings: Surroundings<'_>,
) -> Result<Decision, DecodeError> {
    if control_plane.desired_replicas == Some(replicas) {
        return Ok(Decision::Unchanged);
    }
    let mut judgement = judge_scale(text, replicas, surroundings)?;
    let by_rules = !judgement.denials.is_empty();
    if control_plane.deleting_since.is_some() {
        judgement
            .denials
            .push("the control plane is being deleted".to_owned());
    }
    if !judgement.denials.is_empty() {
        return Ok(Decision::Refused(Refusal {
            why: judgement.denials,
            by_rules,
        }));
    }
    if control_plane.paused || control_plane.is("Paused") {
        let warning = "the control plane is paused: nothing happens until that is lifted";
        judgement.warnings.push(warning.to_owned());
    }
    // Without spec.replicas the API server has no scale to read and answers 500: then the object itself is patched.
    let subresource = control_plane.desired_replicas.map(|_| "scale");
    Ok(Decision::Write {
        spec: json!({ "replicas": replicas }),
        subresource,
        warnings: judgement.warnings,
    })
}

#[cfg(test)]
mod tests {
    use kcp_rules::{
        case::{Base, V1BETA2},
        view::View,
    };
    use serde_json::json;

    use super::{Decision, Refusal, Surroundings, decide};
    use crate::control_plane::example::{healthy, minutes_ago, now};

    #[test]
    fn decides_by_the_rules() {
        let object = Base::ControlPlane(V1BETA2).object().to_string();
        let three = healthy(3).control_plane;
        let view = View::default();
        let surroundings = Surroundings {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &view,
            configuration: None,
        };
        let decide = |control_plane, replicas| {
            decide(&object, control_plane, replicas, surroundings).expect("decodes")
        };

        assert_eq!(decide(&three, 3), Decision::Unchanged);
        for refused in [-1, 0, 2, 4] {
            let decision = decide(&three, refused);
            assert!(
                matches!(&decision, Decision::Refused(Refusal { why, by_rules: true }) if !why.is_empty()),
                "{refused}: {decision:?}"
            );
        }
        let spec = json!({"replicas": 5});
        assert_eq!(
            decide(&three, 5),
            Decision::Write {
                spec: spec.clone(),
                subresource: Some("scale"),
                warnings: vec![]
            }
        );

        let mut unset = three.clone();
        unset.desired_replicas = None;
        assert_eq!(
            decide(&unset, 5),
            Decision::Write {
                spec,
                subresource: None,
                warnings: vec![]
            }
        );

        let mut paused = three.clone();
        paused.paused = true;
        let decision = decide(&paused, 5);
        assert!(
            matches!(&decision, Decision::Write { warnings, .. } if warnings.len() == 1),
            "{decision:?}"
        );

        let mut leaving = three.clone();
        leaving.deleting_since = Some(minutes_ago(1));
        assert_eq!(
            decide(&leaving, 5),
            Decision::Refused(Refusal {
                why: vec!["the control plane is being deleted".to_owned()],
                by_rules: false
            })
        );
    }
}
