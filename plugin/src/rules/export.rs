//! The rules that an API server can apply itself, ready for `kubectl apply -f -`.

use std::fmt::Write as _;

use kcp_rules::{Action, Configuration, admission_policy, cel::Without, topics::rules};

/// `ValidatingAdmissionPolicy`s and their bindings as YAML. Before them stand the rules that are not in them.
pub(super) fn admission_policies(configuration: &Configuration) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = left_out(configuration);
    for object in admission_policy::objects(configuration) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object)?);
    }
    Ok(text)
}

/// A comment.
fn left_out(configuration: &Configuration) -> String {
    let mut text = "# Rules that the webhook alone applies:\n".to_owned();
    for (rule, why) in rules().filter_map(|rule| Some((rule, rule.cel.without()?))) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# - {}: {}", rule.id, Without::as_str(why));
    }
    let off =
        rules().filter(|rule| rule.cel.without().is_none() && configuration.action(rule) == Action::Off);
    for rule in off {
        let _ = writeln!(text, "# - {}: it is off", rule.id);
    }
    text
}

#[cfg(test)]
mod tests {
    use kcp_rules::{Action, Configuration};

    use super::admission_policies;

    #[test]
    fn the_policies_of_the_default_configuration() {
        insta::assert_snapshot!(admission_policies(&Configuration::default()).unwrap());
    }

    #[test]
    fn a_rule_is_in_the_policy_of_its_configured_action() {
        let configured = |action| Configuration {
            rules: [("replicas-even".to_owned(), action)].into(),
            ..Configuration::default()
        };
        for (action, policies) in [
            (
                Action::Deny,
                &[
                    "deny.v1beta2.kubeadmcontrolplanes.kubectl-kcp.dev",
                    "deny.v1beta1.kubeadmcontrolplanes.kubectl-kcp.dev",
                ][..],
            ),
            (
                Action::Warn,
                &[
                    "warn.v1beta2.kubeadmcontrolplanes.kubectl-kcp.dev",
                    "warn.v1beta1.kubeadmcontrolplanes.kubectl-kcp.dev",
                ],
            ),
            (
                Action::Audit,
                &[
                    "audit.v1beta2.kubeadmcontrolplanes.kubectl-kcp.dev",
                    "audit.v1beta1.kubeadmcontrolplanes.kubectl-kcp.dev",
                ],
            ),
            (Action::Off, &[]),
        ] {
            let text = admission_policies(&configured(action)).unwrap();
            let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
            let found: Vec<_> = documents
                .iter()
                .filter(|document| {
                    document["spec"]["validations"]
                        .to_string()
                        .contains("(replicas-even)")
                })
                .map(|document| document["metadata"]["name"].as_str().unwrap())
                .collect();
            assert_eq!(found, policies, "{action:?}");
            assert_eq!(
                text.contains("# - replicas-even: it is off"),
                action == Action::Off
            );
        }
    }
}
