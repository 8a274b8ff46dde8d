//! All rules, a line each.

use kcp_rules::{Action, Rule, Scope, cel::NoCel, topics::rules};
use serde::Serialize;

use crate::terminal::{
    style,
    table::{Cell, Table},
};

/// The list as a table.
pub(super) fn text() -> String {
    let mut table = Table::new(&["ID", "KINDS", "ON", "ACTION", "SCOPE", "CEL", "SUMMARY"]);
    for rule in rules() {
        table.row([
            rule.id.into(),
            rule.check.kinds().join(",").into(),
            operations(rule).join(",").to_lowercase().into(),
            action(rule.action),
            scope(rule.scope).into(),
            cel(rule).into(),
            rule.summary.into(),
        ]);
    }
    table.render()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleList {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<RuleItem>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleItem {
    id: &'static str,
    kinds: &'static [&'static str],
    operations: Vec<&'static str>,
    action: Action,
    scope: Scope,
    overridable: bool,
    /// Whether an API server can apply it itself.
    cel: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    without_cel: Option<&'static str>,
    summary: &'static str,
    source: &'static str,
}

/// The list as a document.
pub(super) fn json() -> serde_json::Result<String> {
    let item = |rule: &'static Rule| RuleItem {
        id: rule.id,
        kinds: rule.check.kinds(),
        operations: operations(rule),
        action: rule.action,
        scope: rule.scope,
        overridable: rule.overridable,
        cel: rule.cel.no_cel().is_none(),
        without_cel: rule.cel.no_cel().map(NoCel::as_str),
        summary: rule.summary,
        source: rule.source,
    };
    let list = RuleList {
        api_version: "kubectl-kcp.dev/v1alpha1",
        kind: "AdmissionRuleList",
        items: rules().map(item).collect(),
    };
    serde_json::to_string_pretty(&list).map(|text| text + "\n")
}

pub(super) fn operations(rule: &Rule) -> Vec<&'static str> {
    rule.operations
        .iter()
        .map(|operation| operation.as_str())
        .collect()
}

fn action(action: Action) -> Cell {
    match action {
        Action::Deny => Cell::styled("deny", style::BAD),
        Action::Warn => Cell::styled("warn", style::WARN),
        Action::Audit => Cell::styled("audit", style::FAINT),
        Action::Off => Cell::styled("off", style::FAINT),
    }
}

fn cel(rule: &Rule) -> &'static str {
    if rule.cel.no_cel().is_none() { "yes" } else { "no" }
}

pub(super) fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Object => "object",
        Scope::Transition => "transition",
        Scope::Cluster => "cluster",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{json, text};
    use crate::terminal::plain;

    #[test]
    fn every_rule_has_a_line_and_an_item() {
        let rules = kcp_rules::topics::rules().count();
        assert_eq!(plain(&text()).lines().count(), rules + 1);
        let document: Value = serde_json::from_str(&json().unwrap()).unwrap();
        assert_eq!(document["kind"], "AdmissionRuleList");
        let items = document["items"].as_array().unwrap();
        assert_eq!(items.len(), rules);
        assert_eq!(items[0]["id"], "replicas-not-positive");
        assert_eq!(items[0]["action"], "deny");
        assert_eq!(items[0]["cel"], true);
        let without: Vec<_> = items.iter().filter(|item| item["cel"] == false).collect();
        assert!(!without.is_empty());
        assert!(without.iter().all(|item| item["withoutCel"].is_string()));
    }
}
