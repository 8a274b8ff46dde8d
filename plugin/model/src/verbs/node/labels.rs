//! Decides how the labels of a Node change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    change::decision::{Refusal, RefusedBy},
    verbs::node::{
        label_owner::{is_protected, label_owner},
        labelled_node::LabelledNode,
    },
};

/// The labels that the user names: the value of each key. `None` removes the label.
pub type LabelEdit = BTreeMap<String, Option<String>>;

/// The labels that change, by key: the value before and after. `None` means that the Node does not have the label.
pub type LabelChanges = BTreeMap<String, LabelChange>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelChange {
    pub before: Option<String>,
    pub after: Option<String>,
}

/// How the labels of a Node change. Empty if the Node has the requested labels already.
///
/// The result equals that of Promenade's `PUT /node-labels`: it removes each label that the user does
/// not name, except in the domains of Kubernetes. Labels that Cluster API copied from the Machine also stay.
pub fn label_changes(node: &LabelledNode, edit: &LabelEdit) -> LabelChanges {
    let named = edit.iter().map(|(key, after)| (key, after.as_ref()));
    let is_removed =
        |key: &&String| !edit.contains_key(*key) && !is_protected(key) && label_owner(node, key).is_none();
    let unnamed = node.labels.keys().filter(is_removed).map(|key| (key, None));
    let changes = named.chain(unnamed).filter_map(|(key, after)| {
        let before = node.labels.get(key);
        let change = LabelChange {
            before: before.cloned(),
            after: after.cloned(),
        };
        (before != after).then(|| (key.clone(), change))
    });
    changes.collect()
}

/// What to do with the labels of one Node.
#[derive(Clone, Debug, PartialEq)]
pub enum LabelDecision {
    /// The Node has the requested labels.
    Unchanged,
    /// At least one label belongs to Cluster API or the kubelet.
    Refused(Refusal),
    Change(LabelChanges),
}

/// Decides about one Node. Nothing of the edit is written if one label is refused.
pub fn decide(node: &LabelledNode, edit: &LabelEdit) -> LabelDecision {
    let changes = label_changes(node, edit);
    if changes.is_empty() {
        return LabelDecision::Unchanged;
    }
    let refused = changes.keys().filter_map(|key| {
        let owner = label_owner(node, key)?;
        Some(format!("label {key} belongs to {}: {}", owner.name, owner.place))
    });
    let refused: Vec<String> = refused.collect();
    if refused.is_empty() {
        LabelDecision::Change(changes)
    } else {
        LabelDecision::Refused(Refusal::new(RefusedBy::Command, refused))
    }
}

/// The keys of the labels that the changes remove.
pub fn removals(changes: &LabelChanges) -> impl Iterator<Item = &str> {
    let removed = changes.iter().filter(|(_, change)| change.after.is_none());
    removed.map(|(key, _)| key.as_str())
}

/// Refuses changes that remove a label which the user did not confirm, because it was added after the confirmation.
pub fn refuse_unconfirmed(decision: LabelDecision, confirmed: &BTreeSet<String>) -> LabelDecision {
    let LabelDecision::Change(changes) = &decision else {
        return decision;
    };
    let unconfirmed: Vec<_> = removals(changes)
        .filter(|key| !confirmed.contains(*key))
        .collect();
    if unconfirmed.is_empty() {
        return decision;
    }
    LabelDecision::Refused(Refusal::new(
        RefusedBy::Command,
        vec![format!(
            "another client added labels after you confirmed ({}): run the command again",
            unconfirmed.join(", ")
        )],
    ))
}

/// The merge patch that writes the changes.
pub fn label_patch(changes: &LabelChanges) -> Value {
    let labels: BTreeMap<_, _> = changes.iter().map(|(key, change)| (key, &change.after)).collect();
    json!({"metadata": {"labels": labels}})
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::{Value, json};

    use super::{
        LabelDecision, LabelEdit, LabelledNode, decide, label_changes, label_patch, refuse_unconfirmed,
    };

    fn node(labels: &Value) -> LabelledNode {
        LabelledNode::new(json!({"metadata": {"name": "a", "labels": labels}}).to_string()).unwrap()
    }

    fn edit(labels: &Value) -> LabelEdit {
        serde_json::from_value(labels.clone()).unwrap()
    }

    /// The cases of `tests/unit/api/test_kubeclient.py` in airship-promenade: the labels of a Node, the labels of the
    /// request, and the labels of the patch.
    #[test]
    fn set_changes_what_promenade_changes() {
        for (name, existing, requested, expected) in [
            (
                "Multi-facet update",
                json!({"label-a": "value1", "label-b": "value2", "label-c": "value3"}),
                json!({"label-a": "value1", "label-c": "value4", "label-d": "value99"}),
                json!({"label-b": null, "label-c": "value4", "label-d": "value99"}),
            ),
            (
                "Add labels when none exist",
                json!(null),
                json!({"label-a": "value1", "label-b": "value2", "label-c": "value3"}),
                json!({"label-a": "value1", "label-b": "value2", "label-c": "value3"}),
            ),
            (
                "No updates",
                json!({"label-a": "value1", "label-b": "value2", "label-c": "value3"}),
                json!({"label-a": "value1", "label-b": "value2", "label-c": "value3"}),
                json!({}),
            ),
            (
                "Delete labels",
                json!({"label-a": "value1", "label-b": "value2", "label-c": "value3"}),
                json!({}),
                json!({"label-a": null, "label-b": null, "label-c": null}),
            ),
            ("Delete labels when none", json!(null), json!({}), json!({})),
            (
                "Avoid kubernetes.io labels Deletion",
                json!({"label-a": "value1", "label-b": "value2", "kubernetes.io/hostname": "ubutubox"}),
                json!({"label-a": "value99"}),
                json!({"label-a": "value99", "label-b": null}),
            ),
            (
                "null filtered when none exist",
                json!(null),
                json!({"label-a": null, "label-b": "value2"}),
                json!({"label-b": "value2"}),
            ),
            (
                "null deletes, even a protected key",
                json!({"label-a": "value1", "node-role.kubernetes.io/worker": ""}),
                json!({"label-a": "value1", "node-role.kubernetes.io/worker": null}),
                json!({"node-role.kubernetes.io/worker": null}),
            ),
        ] {
            let changes = label_changes(&node(&existing), &edit(&requested));
            let patch = label_patch(&changes);
            assert_eq!(patch, json!({"metadata": {"labels": expected}}), "{name}");
        }
    }

    #[test]
    fn labels_of_cluster_api_stay_and_are_refused() {
        let object = json!({"metadata": {
            "name": "a",
            "labels": {"rack": "r1", "team": "x"},
            "annotations": {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/labels-from-machine": "rack"},
        }});
        let node = LabelledNode::new(object.to_string()).unwrap();
        let LabelDecision::Change(changes) = decide(&node, &edit(&json!({}))) else {
            panic!("not changed");
        };
        assert_eq!(
            label_patch(&changes),
            json!({"metadata": {"labels": {"team": null}}})
        );
        // A value that the label already has changes nothing, so it is not refused.
        let same = edit(&json!({"rack": "r1", "team": "x"}));
        assert_eq!(decide(&node, &same), LabelDecision::Unchanged);
        let LabelDecision::Refused(refusal) = decide(&node, &edit(&json!({"rack": "r2", "new": "1"}))) else {
            panic!("not refused");
        };
        assert_eq!(
            refusal.why,
            [
                "label rack belongs to Cluster API: Cluster API copies this label from the Machine: set it in \
                 metadata.labels of Machine m, or in the template of its MachineDeployment or control plane"
            ]
        );
    }

    #[test]
    fn a_label_that_appears_after_the_confirmation_is_not_removed() {
        let decided = |labels: &Value| decide(&node(labels), &edit(&json!({})));
        let confirmed = BTreeSet::from(["a".to_owned()]);
        let same = decided(&json!({"a": "1"}));
        assert_eq!(refuse_unconfirmed(same.clone(), &confirmed), same);
        let LabelDecision::Refused(refusal) =
            refuse_unconfirmed(decided(&json!({"a": "1", "b": "2"})), &confirmed)
        else {
            panic!("not refused");
        };
        assert_eq!(
            refusal.why,
            ["another client added labels after you confirmed (b): run the command again"]
        );
    }

    mod properties {
        use proptest::{collection::btree_map, option, prelude::*};

        use super::*;

        fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
            btree_map("(kubernetes.io/|example.com/)?[a-c]", "[a-c]{0,2}", 0..6)
        }

        proptest! {
            /// After the patch, a second run changes nothing. Protected keys that the user does not name stay.
            #[test]
            fn set_is_idempotent(
                before in labels(),
                named in btree_map("(kubernetes.io/|example.com/)?[a-c]", option::of("[a-c]{0,2}"), 0..6),
            ) {
                let changes = label_changes(&node(&json!(before)), &named);
                let mut object = json!({"metadata": {"labels": before}});
                crate::merge_patch::apply(&mut object, &label_patch(&changes));
                let after: BTreeMap<String, String> =
                    serde_json::from_value(object["metadata"]["labels"].clone()).unwrap();
                prop_assert!(label_changes(&node(&json!(after)), &named).is_empty());
                for (key, value) in before.iter().filter(|(key, _)| key.starts_with("kubernetes.io/")) {
                    prop_assert!(named.contains_key(key) || after.get(key) == Some(value));
                }
                for (key, value) in &named {
                    prop_assert_eq!(after.get(key), value.as_ref());
                }
            }
        }
    }
}
