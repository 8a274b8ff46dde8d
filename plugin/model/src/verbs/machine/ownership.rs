//! Who else writes what is written to a Machine. It is never a reason to refuse: a Machine is no template of anybody's.

use serde_json::Value;

use crate::change::ownership::{Applied, Ownership, ownership};

/// Who will put back what a merge patch changes, a line each.
pub fn applied(object: &str, patch: &Value, field_manager: &str) -> Vec<String> {
    // Decodes what the server wrote; where it cannot, nobody is known to put anything back.
    match ownership(object, patch, field_manager) {
        Ok(Ownership::Applied(applied)) => applied.iter().map(Applied::message).collect(),
        Ok(Ownership::Free | Ownership::OfTopology { .. }) | Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::applied;

    #[test]
    fn who_applies_a_mark_is_told_and_nobody_is_refused() {
        let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}});
        let of = |manager: &str| {
            let fields = json!({"f:metadata": {"f:annotations": {"f:cluster.x-k8s.io/delete-machine": {}}}});
            let entry = json!({"manager": manager, "operation": "Apply", "fieldsV1": fields});
            let object = json!({"metadata": {"name": "m1", "managedFields": [entry],
                "labels": {"topology.cluster.x-k8s.io/owned": ""}}});
            applied(&object.to_string(), &patch, "kubectl-kcp")
        };
        assert_eq!(
            of("capi-kubeadmcontrolplane"),
            [
                "metadata.annotations[cluster.x-k8s.io/delete-machine] is applied by capi-kubeadmcontrolplane, which will \
                 put it back: change it there too"
            ]
        );
        assert_eq!(of("capi-topology"), Vec::<String>::new());
        assert_eq!(of("kubectl-kcp"), Vec::<String>::new());
    }
}
