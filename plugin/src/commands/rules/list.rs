//! Lists all admission rules.

use kcp_rules::{Action, OnUnread, Rule, Scope, cel::NoCel, topics::rules};
use serde::Serialize;

use crate::{
    document::{Document, Versioned},
    output::Report,
    terminal::{
        style,
        table::{Cell, Layout, Table},
    },
};

pub(super) struct Rules;

impl Report for Rules {
    fn table(&self, layout: Layout) -> String {
        table(layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(RuleList::new())
    }

    /// Returns only the ids, without a kind, because a rule is not a Kubernetes resource.
    fn names(&self) -> Vec<String> {
        rules().map(|rule| rule.id.to_owned()).collect()
    }
}

fn table(layout: Layout) -> String {
    let mut table = Table::new(&["ID", "KINDS", "ON", "ACTION", "SCOPE", "CEL", "SUMMARY"]);
    for rule in rules() {
        table.add_row([
            rule.id.into(),
            rule.kinds().join(",").into(),
            operations(rule).join(",").to_lowercase().into(),
            action(rule.action),
            scope(rule.scope).into(),
            cel(rule).into(),
            Cell::from(rule.summary).extend_to_line_end(),
        ]);
    }
    table.render(layout)
}

/// The admission rules of the webhook.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RuleList {
    items: Vec<RuleItem>,
}

impl Document for RuleList {
    const KIND: &'static str = "AdmissionRuleList";
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct RuleItem {
    id: &'static str,
    kinds: Vec<&'static str>,
    operations: Vec<&'static str>,
    action: Action,
    /// What the rule reads: the new object, the old one too (transition), or also other objects of the cluster.
    #[cfg_attr(test, schemars(extend("enum" = ["object", "transition", "cluster"])))]
    scope: &'static str,
    /// Whether an annotation can override the rule for one object.
    overridable: bool,
    /// What happens to a write if the rule cannot read the objects that it needs; absent if it needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_unread: Option<OnUnread>,
    /// Whether an API server can enforce the rule without the webhook, by a policy in CEL.
    cel: bool,
    /// Why an API server cannot enforce the rule without the webhook; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_cel: Option<&'static str>,
    summary: &'static str,
    /// What goes wrong without the rule.
    why: &'static str,
    source: &'static str,
}

impl RuleList {
    fn new() -> Self {
        Self {
            items: rules().map(RuleItem::new).collect(),
        }
    }
}

impl RuleItem {
    pub(in crate::commands) fn new(rule: &'static Rule) -> Self {
        Self {
            id: rule.id,
            kinds: rule.kinds(),
            operations: operations(rule),
            action: rule.action,
            scope: scope(rule.scope),
            overridable: rule.overridable,
            on_unread: rule.on_unread(),
            cel: rule.cel.no_cel().is_none(),
            without_cel: rule.cel.no_cel().map(NoCel::as_str),
            summary: rule.summary,
            why: rule.why,
            source: rule.source,
        }
    }
}

pub(in crate::commands) fn operations(rule: &Rule) -> Vec<&'static str> {
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

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Object => "object",
        Scope::Transition => "transition",
        Scope::Cluster(_) => "cluster",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Layout, Report as _, RuleList, Rules};
    use crate::{
        terminal::plain,
        testing::{assert_every_format, schema},
    };

    #[test]
    fn the_document_matches_its_schema() {
        schema::conforms(&RuleList::new());
        assert_every_format(&Rules);
        schema::checked_in::<RuleList>("admissionrulelist.json");
    }

    #[test]
    fn every_rule_has_a_line_and_an_item() {
        let rules = kcp_rules::topics::rules().count();
        assert_eq!(plain(&Rules.table(Layout::default())).lines().count(), rules + 1);
        let document: Value = serde_json::to_value(Rules.document()).unwrap();
        assert_eq!(document["kind"], "AdmissionRuleList");
        let items = document["items"].as_array().unwrap();
        assert_eq!(items.len(), rules);
        assert_eq!(items[0]["id"], "replicas-not-positive");
        assert_eq!(items[0]["action"], "deny");
        assert_eq!(items[0]["cel"], true);
        let no_cel: Vec<_> = items.iter().filter(|item| item["cel"] == false).collect();
        assert!(!no_cel.is_empty());
        assert!(no_cel.iter().all(|item| item["withoutCel"].is_string()));
    }
}
