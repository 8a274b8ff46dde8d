//! Exemptions by user, group and namespace: findings do not deny an exempt write.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    action::{Action, DowngradeReason},
    api::Text,
    finding::Finding,
};

/// An entry of a configuration file. It applies to a write that meets all of its conditions: the user or one of the user's
/// groups is listed, and the labels of the namespace match. Denials and warnings of such a write are only recorded in the
/// audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exemption {
    /// The ids of the exempted rules. If absent, every rule is exempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<BTreeSet<String>>,
    /// Names of users, such as `system:serviceaccount:backup:velero`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub users: BTreeSet<String>,
    /// Names of groups.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<String>,
    /// Selects namespaces by their labels. If absent, every namespace matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// When the exemption ends.
    pub until: Timestamp,
}

/// A label selector, as in Kubernetes. All of its parts must match. An empty selector matches every namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// The labels that a namespace must have, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on labels that a namespace must meet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The key of the label.
    pub key: String,
    /// How the requirement compares the value of the label.
    pub operator: Operator,
    /// The values that `In` and `NotIn` compare.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub values: BTreeSet<String>,
}

/// How a requirement compares the value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// The writer and the namespace of a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requester<'r> {
    /// The name of the user that the API server authenticated.
    pub user: &'r str,
    /// The names of the user's groups.
    pub groups: &'r [Text<'r>],
    /// The labels of the namespace; `None` if they cannot be read.
    pub namespace_labels: Option<&'r BTreeMap<String, String>>,
}

impl Requirement {
    /// Returns the opposite requirement: each namespace meets exactly one of the two.
    pub(crate) fn negated(&self) -> Self {
        let operator = match self.operator {
            Operator::In => Operator::NotIn,
            Operator::NotIn => Operator::In,
            Operator::Exists => Operator::DoesNotExist,
            Operator::DoesNotExist => Operator::Exists,
        };
        Self {
            operator,
            ..self.clone()
        }
    }
}

impl Selector {
    /// All requirements on labels.
    pub(crate) fn requirements(&self) -> impl Iterator<Item = Requirement> {
        let labels = self.match_labels.iter().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: Operator::In,
            values: [value.clone()].into(),
        });
        labels.chain(self.match_expressions.iter().cloned())
    }

    /// Whether labels match. Unknown labels do not match.
    fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let Some(labels) = labels else { return false };
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                let is_listed = value.is_some_and(|value| requirement.values.contains(value));
                match requirement.operator {
                    Operator::In => is_listed,
                    Operator::NotIn => !is_listed,
                    Operator::Exists => value.is_some(),
                    Operator::DoesNotExist => value.is_none(),
                }
            })
    }
}

impl Exemption {
    /// Whether the exemption is limited to some writers or namespaces. Otherwise it would exempt every write.
    pub fn is_limited(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty() || self.namespace_selector.is_some()
    }

    fn applies(&self, requester: &Requester<'_>, now: Timestamp) -> bool {
        let by_anyone = self.users.is_empty() && self.groups.is_empty();
        let by_writer = self.users.contains(requester.user)
            || requester
                .groups
                .iter()
                .any(|group| self.groups.contains(&**group));
        let selector = self.namespace_selector.as_ref();
        self.is_limited()
            && now < self.until
            && (by_anyone || by_writer)
            && selector.is_none_or(|selector| selector.matches(requester.namespace_labels))
    }

    pub(crate) fn covers(&self, rule: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.contains(rule))
    }
}

/// Applies exemptions: the findings of an exempt write are only recorded. In namespaces that `warn_only`
/// selects, denials become warnings.
pub fn apply(
    findings: &mut [Finding],
    exemptions: &[Exemption],
    warn_only: Option<&Selector>,
    requester: &Requester<'_>,
    now: Timestamp,
) {
    let applying: Vec<&Exemption> = exemptions
        .iter()
        .filter(|exemption| exemption.applies(requester, now))
        .collect();
    let selected = warn_only.is_some_and(|selector| selector.matches(requester.namespace_labels));
    for finding in findings {
        if applying.iter().any(|exemption| exemption.covers(finding.rule.id)) {
            finding.action = finding.action.min(Action::Audit);
        } else if selected && finding.action == Action::Deny {
            finding.action = Action::Warn;
            finding.downgrade_reason = Some(DowngradeReason::WarnOnly);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CauseReason, fault::Fault, topics};

    fn labels(text: &str) -> BTreeMap<String, String> {
        text.split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn selects_namespaces_as_kubernetes_does() {
        let selector = |value: serde_json::Value| serde_json::from_value::<Selector>(value).unwrap();
        let expression = |operator: &str, values: &[&str]| {
            selector(serde_json::json!({
                "matchExpressions": [{"key": "env", "operator": operator, "values": values}]
            }))
        };
        let by_label = selector(serde_json::json!({"matchLabels": {"env": "dev"}}));
        for (name, selector, dev, prod, none) in [
            ("empty", Selector::default(), true, true, true),
            ("matchLabels", by_label, true, false, false),
            ("In", expression("In", &["dev", "test"]), true, false, false),
            ("NotIn", expression("NotIn", &["dev"]), false, true, true),
            ("Exists", expression("Exists", &[]), true, true, false),
            (
                "DoesNotExist",
                expression("DoesNotExist", &[]),
                false,
                false,
                true,
            ),
        ] {
            let matches = |text: &str| selector.matches(Some(&labels(text)));
            assert_eq!(
                [matches("env=dev"), matches("env=prod"), matches("a=b")],
                [dev, prod, none],
                "{name}"
            );
            assert!(!selector.matches(None), "{name}");
        }
    }

    const NOW: &str = "2026-12-01T00:00:00Z";

    /// The actions on `replicas-even` and `version-not-semantic`, which both deny.
    fn actions(text: &str, warn_only: Option<&Selector>) -> [Action; 2] {
        let exemptions: Vec<Exemption> = match text {
            "" => Vec::new(),
            text => vec![serde_json::from_str(text).unwrap()],
        };
        let denied = |id: &str| Finding {
            rule: topics::rules().find(|rule| rule.id == id).unwrap(),
            action: Action::Deny,
            downgrade_reason: None,
            fault: Fault {
                field: "spec".into(),
                reason: CauseReason::Invalid,
                value: None,
                detail: "is wrong".into(),
                remedy: "correct it".into(),
            },
            exact_field: None,
        };
        let mut findings = ["replicas-even", "version-not-semantic"].map(denied);
        let labels = labels("env=dev");
        let requester = Requester {
            user: "jane",
            groups: &["ops".into(), "system:authenticated".into()],
            namespace_labels: Some(&labels),
        };
        apply(
            &mut findings,
            &exemptions,
            warn_only,
            &requester,
            NOW.parse().unwrap(),
        );
        findings.map(|finding| finding.action)
    }

    #[test]
    fn exempts_only_what_meets_every_condition_until_its_end() {
        use Action::{Audit, Deny};
        const LATER: &str = r#""until": "2026-12-01T00:00:01Z""#;
        for (conditions, expected) in [
            (r#""users": ["jane"]"#, [Audit, Audit]),
            (r#""users": ["joe"]"#, [Deny, Deny]),
            (r#""users": ["joe"], "groups": ["ops"]"#, [Audit, Audit]),
            (r#""groups": ["dev"]"#, [Deny, Deny]),
            (r#""users": ["jane"], "rules": ["replicas-even"]"#, [Audit, Deny]),
            (r#""users": ["jane"], "rules": []"#, [Deny, Deny]),
            (
                r#""namespaceSelector": {"matchLabels": {"env": "dev"}}"#,
                [Audit, Audit],
            ),
            (
                r#""users": ["joe"], "namespaceSelector": {"matchLabels": {"env": "dev"}}"#,
                [Deny, Deny],
            ),
            (
                r#""users": ["jane"], "namespaceSelector": {"matchLabels": {"env": "prod"}}"#,
                [Deny, Deny],
            ),
            (r#""rules": ["replicas-even"]"#, [Deny, Deny]),
        ] {
            assert_eq!(
                actions(&format!("{{{conditions}, {LATER}}}"), None),
                expected,
                "{conditions}"
            );
        }
        let ended = format!(r#"{{"users": ["jane"], "until": "{NOW}"}}"#);
        assert_eq!(actions(&ended, None), [Deny, Deny]);
    }

    #[test]
    fn denials_become_warnings_in_a_namespace_that_only_warns() {
        use Action::{Deny, Warn};
        let selector = |value: &str| Selector {
            match_labels: labels(&format!("env={value}")),
            ..Selector::default()
        };
        assert_eq!(actions("", Some(&selector("dev"))), [Warn, Warn]);
        assert_eq!(actions("", Some(&selector("prod"))), [Deny, Deny]);
    }
}
