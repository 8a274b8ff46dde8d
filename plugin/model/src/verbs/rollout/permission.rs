//! Whether a change that asks the controller for nothing is sent: by the admission rules, and by who owns what it writes.

use kcp_rules::api::DecodeError;
use serde_json::Value;

use crate::{
    change::{
        decision::{Refusal, RefusedBy},
        ownership::{Ownership, ownership},
        situation::Situation,
    },
    judgement::{Judgement, Surroundings, judge_update},
    plan::ask::patched,
};

/// Whether a change is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It is, and what is said of it, a line each.
    Granted(Vec<String>),
    /// It is not.
    Denied(Refusal),
}

/// Judges a merge patch of a control plane.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn permission(
    situation: &Situation,
    patch: &Value,
    surroundings: Surroundings<'_>,
) -> Result<Permission, DecodeError> {
    let Situation { object, .. } = situation;
    let Judgement {
        denials,
        mut warnings,
    } = judge_update(object, &patched(object, patch)?, surroundings)?;
    if !denials.is_empty() {
        return Ok(Permission::Denied(Refusal::new(RefusedBy::Rules, denials)));
    }
    // Decodes what the server wrote: whether it can be decoded has just been seen.
    let ownership = ownership(object, patch, surroundings.field_manager).unwrap_or(Ownership::Free);
    Ok(
        match ownership.warnings(situation.control_plane().cluster.as_deref()) {
            Ok(applied) => {
                warnings.extend(applied);
                Permission::Granted(warnings)
            }
            Err(why) => Permission::Denied(Refusal::new(RefusedBy::Command, vec![why])),
        },
    )
}

#[cfg(test)]
mod tests {
    use kcp_rules::view::View;
    use serde_json::{Value, json};

    use super::{Permission, permission};
    use crate::{
        change::{
            decision::{Refusal, RefusedBy},
            example::situation,
            situation::Situation,
        },
        control_plane::example::now,
        judgement::Surroundings,
    };

    /// The example, whose field `spec.replicas` somebody applies.
    fn applied_by(manager: &str) -> Situation {
        let mut situation = situation();
        let mut object: Value = serde_json::from_str(&situation.object).expect("JSON");
        object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Apply",
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
        situation.object = object.to_string();
        situation
    }

    fn permitted(situation: &Situation, replicas: i64) -> Permission {
        let surroundings = Surroundings {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &View::default(),
            configuration: None,
        };
        permission(situation, &json!({"spec": {"replicas": replicas}}), surroundings).expect("decodes")
    }

    #[test]
    fn the_rules_and_the_owner_are_asked() {
        assert_eq!(permitted(&situation(), 5), Permission::Granted(Vec::new()));
        let Permission::Granted(warnings) = permitted(&applied_by("argocd-controller"), 5) else {
            panic!("denied");
        };
        assert!(
            matches!(&warnings[..], [only] if only.starts_with("spec.replicas is applied by argocd-controller (Argo CD)")),
            "{warnings:?}"
        );
        for (situation, replicas, expected, end) in [
            (situation(), 4, RefusedBy::Rules, "(replicas-even)"),
            (
                applied_by("capi-topology"),
                5,
                RefusedBy::Command,
                "set spec.topology.controlPlane.replicas of Cluster c1 instead",
            ),
            (
                applied_by("capi-topology"),
                4,
                RefusedBy::Rules,
                "(replicas-even)",
            ),
        ] {
            let Permission::Denied(Refusal { why, by, .. }) = permitted(&situation, replicas) else {
                panic!("granted");
            };
            assert_eq!(by, expected);
            assert!(matches!(&why[..], [only] if only.ends_with(end)), "{why:?}");
        }
    }
}
