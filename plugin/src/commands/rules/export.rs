//! Exports the admission rules that an API server can enforce without the webhook, and the defaults that it can set, as input for
//! `kubectl apply -f -`.

use std::fmt::{Display, Write as _};

use kcp_rules::{
    Action, Configuration, Rule,
    admission_policy::{self, defaults},
    cel::NoCel,
    topics::rules,
};
use serde_json::Value;

/// The exported rules as `ValidatingAdmissionPolicies` and bindings in YAML. A comment at the top lists the rules that are
/// not exported, and what the policies leave out.
pub(super) fn admission_policies(configuration: &Configuration) -> Result<String, serde_saphyr::ser::Error> {
    let policies = text(
        admission_policy::left_out(configuration),
        admission_policy::objects(configuration),
    )?;
    Ok(omitted_rules(configuration) + &policies)
}

/// The defaults as `MutatingAdmissionPolicies` and bindings in YAML. A comment at the top says what the policies leave out.
pub(super) fn default_policies() -> Result<String, serde_saphyr::ser::Error> {
    text(defaults::LEFT_OUT, defaults::objects())
}

fn text(
    left_out: impl IntoIterator<Item: Display>,
    objects: Vec<Value>,
) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = "# What the policies leave out:\n".to_owned();
    for sentence in left_out {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# - {sentence}");
    }
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object)?);
    }
    Ok(text)
}

/// The comment that lists the rules that are not exported, each with the reason.
fn omitted_rules(configuration: &Configuration) -> String {
    let mut text = "# Rules that only the webhook enforces:\n".to_owned();
    let (off, on): (Vec<&Rule>, Vec<&Rule>) =
        rules().partition(|rule| configuration.action(rule) == Action::Off);
    for (rule, why) in on.into_iter().filter_map(|rule| Some((rule, rule.cel.no_cel()?))) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# - {}: {}", rule.id, NoCel::as_str(why));
    }
    if !off.is_empty() {
        text.push_str("# Rules that are off, so that nothing enforces them:\n");
    }
    for rule in off {
        let _ = writeln!(text, "# - {}", rule.id);
    }
    text
}

#[cfg(test)]
mod tests {
    use kcp_rules::{
        Action, Configuration,
        admission_policy::{self, defaults},
    };
    use serde_json::Value;

    use super::{admission_policies, default_policies};

    /// A policy and its binding, and the comment at the top of the output.
    #[test]
    fn lists_omitted_rules_and_exports_the_policy_of_scales() {
        let text = admission_policies(&Configuration::default()).unwrap();
        let mut documents = text.split("---\n");
        let head = documents.next().unwrap_or_default();
        let of_scales =
            documents.filter(|document| document.contains("kubeadmcontrolplanes.kubectl-kcp.dev"));
        let of_scales: Vec<_> = of_scales.filter(|document| document.contains("scale.")).collect();
        insta::assert_snapshot!([&[head], of_scales.as_slice()].concat().join("---\n"));
    }

    #[test]
    fn exports_the_defaults_of_control_planes() {
        let text = default_policies().unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(read, defaults::objects());
        insta::assert_snapshot!(text);
    }

    /// Quoting and folding lose nothing of an expression.
    #[test]
    fn exported_policies_parse_unchanged() {
        let configuration = Configuration::default();
        let text = admission_policies(&configuration).unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(read, admission_policy::objects(&configuration));
    }

    #[test]
    fn a_rule_that_is_switched_off_is_listed_once() {
        // Only the webhook can enforce the second rule.
        for id in ["replicas-even", "version-lowered"] {
            let configuration = Configuration {
                rules: [(id.to_owned(), Action::Off)].into(),
                ..Configuration::default()
            };
            let text = admission_policies(&configuration).unwrap();
            let (off, with_reason) = (format!("# - {id}"), format!("# - {id}: "));
            let lines = text.lines();
            let listed: Vec<&str> = lines
                .filter(|line| *line == off || line.starts_with(&with_reason))
                .collect();
            assert_eq!(listed, [off]);
        }
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
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
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
                text.contains("so that nothing enforces them:\n# - replicas-even\n"),
                action == Action::Off
            );
        }
    }
}
