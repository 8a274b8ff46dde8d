//! Writes the Cluster instead of the control plane, if Cluster API's topology controller sets the fields from the Cluster.

use kcp_rules::api::{DecodeError, decode};
use serde_json::Value;

use crate::{
    change::decision::{Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
    merge_patch,
    ownership::{AppliedField, Ownership, ownership},
};

/// Whether a change of the control plane is written to its Cluster.
pub fn is_written_to_cluster(
    decision: &Decision,
    control_plane: &str,
    manager: &str,
) -> Result<bool, DecodeError> {
    Ok(match decision {
        Decision::Write(proposal) => {
            let ownership = ownership(control_plane, proposal.write.fields(), manager)?;
            matches!(ownership, Ownership::FromCluster(_))
        }
        Decision::Unchanged(_) | Decision::Refused(_) => false,
    })
}

/// Turns a change of a control plane into the change of its Cluster that has the same effect. `control_plane` and `cluster` are
/// the JSON of the objects.
pub fn in_cluster(
    decision: Decision,
    control_plane: &str,
    cluster: &str,
    manager: &str,
) -> Result<Decision, DecodeError> {
    let Decision::Write(proposal) = decision else {
        return Ok(decision);
    };
    let Ownership::FromCluster(mut patch) = ownership(control_plane, proposal.write.fields(), manager)?
    else {
        let why = "the topology of the Cluster no longer sets this field";
        return Ok(Decision::Refused(Refusal {
            remedies: vec!["run the command again".to_owned()],
            ..Refusal::new(RefusedBy::Command, vec![why.to_owned()])
        }));
    };
    let object: Value = decode(cluster)?;
    if merge_patch::is_applied(&object, &patch) {
        return Ok(Decision::Unchanged(
            "the Cluster already has this value, and Cluster API's topology controller has not set it in the control plane yet"
                .to_owned(),
        ));
    }
    merge_patch::remove_emptied(&object, &mut patch);
    let Proposal {
        mut warnings,
        mut consequences,
        ..
    } = proposal;
    if let Ownership::Applied(applied) = ownership(cluster, &patch, manager)? {
        warnings.extend(applied.iter().map(AppliedField::message));
    }
    consequences.insert(
        0,
        "Cluster API's topology controller applies the change to the control plane".to_owned(),
    );
    Ok(Decision::Write(Proposal {
        write: ObjectWrite::patch(patch),
        warnings,
        consequences,
        ..proposal
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{in_cluster, is_written_to_cluster};
    use crate::change::decision::{ChangeEvent, Decision, ObjectWrite, Proposal};

    /// A control plane whose number of Machines and time of rollout the topology controller sets.
    fn control_plane() -> String {
        let fields = json!({"f:spec": {"f:replicas": {}, "f:rollout": {"f:after": {}}}});
        json!({"metadata": {"name": "edge-x7f2", "managedFields": [
            {"manager": "capi-topology", "operation": "Apply", "fieldsV1": fields}]}})
        .to_string()
    }

    fn cluster(control_plane: &Value, manager: &str) -> String {
        let fields = json!({"f:spec": {"f:topology": {"f:controlPlane": {"f:replicas": {}}}}});
        json!({"metadata": {"name": "edge", "managedFields": [
            {"manager": manager, "operation": "Apply", "fieldsV1": fields}]},
            "spec": {"topology": {"version": "v1.34.2", "controlPlane": control_plane}}})
        .to_string()
    }

    fn change(spec: &Value) -> Decision {
        Decision::Write(Proposal {
            write: ObjectWrite::Patch {
                patch: json!({ "spec": spec }),
                subresource: Some("scale"),
            },
            outcome: "changed".to_owned(),
            warnings: Vec::new(),
            consequences: vec!["a Machine is created".to_owned()],
            event: ChangeEvent {
                reason: "Changed",
                action: "Change",
                note_verb: "changed",
                detail: String::new(),
            },
        })
    }

    #[test]
    fn a_field_of_the_topology_is_written_to_the_cluster() {
        let written = |spec: &Value, of_cluster: &Value| {
            let cluster = cluster(of_cluster, "kubectl-kcp");
            match in_cluster(change(spec), &control_plane(), &cluster, "kubectl-kcp").expect("decodes") {
                Decision::Write(proposal) => proposal.write,
                other => panic!("not written: {other:?}"),
            }
        };
        let three = json!({"replicas": 3});
        let planned = json!({"replicas": 3, "rollout": {"after": "t"}});
        let only_planned = json!({"rollout": {"after": "t"}});
        for (spec, of_cluster, expected) in [
            (json!({"replicas": 5}), &three, json!({"replicas": 5})),
            (
                json!({"rollout": {"after": "u"}}),
                &planned,
                json!({"rollout": {"after": "u"}}),
            ),
            (json!({"rollout": null}), &planned, json!({"rollout": null})),
            // The schema of the Cluster allows no empty objects.
            (
                json!({"rollout": {"after": null}}),
                &planned,
                json!({"rollout": null}),
            ),
            (json!({"rollout": null}), &only_planned, Value::Null),
        ] {
            let patch = json!({"spec": {"topology": {"controlPlane": expected}}});
            assert_eq!(written(&spec, of_cluster), ObjectWrite::patch(patch), "{spec}");
        }
    }

    #[test]
    fn the_owners_of_the_cluster_count() {
        let decide = |replicas: u32, manager: &str| {
            let cluster = cluster(&json!({"replicas": 3}), manager);
            let change = change(&json!({ "replicas": replicas }));
            in_cluster(change, &control_plane(), &cluster, "kubectl-kcp").expect("decodes")
        };
        let Decision::Write(proposal) = decide(5, "argocd-controller") else {
            panic!("not written");
        };
        assert_eq!(
            proposal.warnings,
            [
                "argocd-controller (Argo CD) also applies spec.topology.controlPlane.replicas and will revert this change: \
                 change the value in the applied manifest too"
            ]
        );
        assert_eq!(
            proposal.consequences,
            [
                "Cluster API's topology controller applies the change to the control plane",
                "a Machine is created",
            ]
        );
        assert_eq!(
            decide(3, "kubectl-kcp"),
            Decision::Unchanged(
                "the Cluster already has this value, and Cluster API's topology controller has not set it in the control plane yet"
                    .to_owned()
            )
        );
    }

    #[test]
    fn other_fields_are_written_to_the_control_plane() {
        let is_written_to_cluster = |spec: &Value| {
            is_written_to_cluster(&change(spec), &control_plane(), "kubectl-kcp").expect("decodes")
        };
        assert!(is_written_to_cluster(&json!({"replicas": 5})));
        assert!(!is_written_to_cluster(&json!({"version": "v1.35.0"})));
        let decision = change(&json!({"version": "v1.35.0"}));
        let decision = in_cluster(decision, &control_plane(), "{}", "kubectl-kcp").expect("decodes");
        let Decision::Refused(refusal) = decision else {
            panic!("not refused: {decision:?}");
        };
        assert_eq!(
            refusal.why,
            ["the topology of the Cluster no longer sets this field"]
        );
    }
}
