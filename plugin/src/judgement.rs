//! The admission rules, put to a change before it is written, and the server's own refusals; both as lines to print.

use kcp_rules::{
    Action, Change, Configuration,
    api::{DecodeError, KubeadmControlPlane, decode},
    judge,
};
use kube::core::Status;

/// What the rules say of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// `field: message` of each finding that refuses it.
    pub denials: Vec<String>,
    /// `field: message` of each finding that does not.
    pub warnings: Vec<String>,
}

impl Judgement {
    fn of(change: &Change<'_, KubeadmControlPlane<'_>>) -> Self {
        let mut judgement = Self::default();
        for finding in judge(change, &Configuration::default()).findings {
            let line = format!("{}: {}", finding.fault.field, finding.message());
            match finding.action {
                Action::Deny => judgement.denials.push(line),
                Action::Warn => judgement.warnings.push(line),
                Action::Audit | Action::Off => {}
            }
        }
        judgement
    }
}

/// Judges a write of a number of replicas to the scale subresource of a control plane, given as JSON.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn judge_scale(old: &str, replicas: i64) -> Result<Judgement, DecodeError> {
    let old: KubeadmControlPlane<'_> = decode(old)?;
    let new = old.scaled_to(replicas);
    Ok(Judgement::of(&Change::scale(&old, &new)))
}

/// Judges a change of a control plane, given as JSON.
///
/// # Errors
/// When one of the two does not have its kind's types.
pub fn judge_update(old: &str, new: &str) -> Result<Judgement, DecodeError> {
    let (old, new): (KubeadmControlPlane<'_>, KubeadmControlPlane<'_>) = (decode(old)?, decode(new)?);
    Ok(Judgement::of(&Change::update(&old, &new)))
}

/// A server's refusal, whole: its message, and those causes that the message does not hold already.
pub fn rejection(status: &Status) -> Vec<String> {
    let mut lines: Vec<String> = status.message.lines().map(str::to_owned).collect();
    let causes = status.details.iter().flat_map(|details| &details.causes);
    lines.extend(
        causes
            .filter(|cause| !cause.message.is_empty() && !status.message.contains(&cause.message))
            .map(|cause| format!("{}: {}", cause.field, cause.message)),
    );
    if lines.is_empty() {
        lines.push(format!("{} {}", status.code, status.reason));
    }
    lines
}

#[cfg(test)]
mod tests {
    use kcp_rules::case::{Base, V1BETA1, V1BETA2};
    use kube::core::Status;
    use serde_json::json;

    use super::{judge_scale, judge_update, rejection};

    #[test]
    fn the_rules_of_the_webhook_judge_a_scale() {
        for version in [V1BETA1, V1BETA2] {
            let object = Base::ControlPlane(version).object().to_string();
            let even = judge_scale(&object, 4).expect("decodes");
            assert!(
                even.denials
                    .iter()
                    .any(|line| line.starts_with("spec.replicas: ")),
                "{even:?}"
            );
            assert!(judge_scale(&object, 5).expect("decodes").denials.is_empty());
            assert!(
                judge_update(&object, &object)
                    .expect("decodes")
                    .denials
                    .is_empty()
            );
        }
    }

    #[test]
    fn a_refusal_is_shown_once_and_whole() {
        let status: Status = serde_json::from_value(json!({
            "code": 422, "message": "admission webhook denied the request: spec.a: wrong\nmore",
            "details": {"causes": [
                {"field": "spec.a", "message": "wrong", "reason": "FieldValueInvalid"},
                {"field": "spec.b", "message": "also wrong", "reason": "FieldValueInvalid"}
            ]}
        }))
        .expect("a status");
        assert_eq!(
            rejection(&status),
            [
                "admission webhook denied the request: spec.a: wrong",
                "more",
                "spec.b: also wrong"
            ]
        );
        assert_eq!(
            rejection(&Status::failure("", "Invalid").with_code(422)),
            ["422 Invalid"]
        );
    }
}
