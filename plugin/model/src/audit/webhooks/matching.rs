//! Whether the API server calls a webhook for a request: by its rules, and by its selectors for namespaces and objects
//! (`k8s.io/apiserver/pkg/admission/plugin/webhook/predicates`).

use k8s_openapi::{
    api::admissionregistration::v1::RuleWithOperations, apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::core::{Selector, SelectorExt as _};

use crate::audit::{
    facts::Labels,
    webhooks::critical::{CriticalResource, Scope},
};

/// Whether one of the rules matches the resource with one of the operations.
pub fn matches_rules(rules: &[RuleWithOperations], of: &CriticalResource) -> bool {
    rules.iter().any(|rule| matches_rule(rule, of))
}

fn matches_rule(rule: &RuleWithOperations, of: &CriticalResource) -> bool {
    let contains = |list: Option<&Vec<String>>, value: &str| {
        list.is_some_and(|list| list.iter().any(|item| item == "*" || item == value))
    };
    let scope = rule.scope.as_deref().unwrap_or("*");
    let matches_scope = match of.scope {
        Scope::Cluster => scope != "Namespaced",
        Scope::Namespaces(_) => scope != "Cluster",
    };
    let resources = rule.resources.iter().flatten();
    matches_scope
        && contains(rule.api_groups.as_ref(), of.group)
        && contains(rule.api_versions.as_ref(), of.version)
        && of
            .operations
            .iter()
            .any(|operation| contains(rule.operations.as_ref(), operation))
        && resources
            .into_iter()
            .any(|pattern| matches_resource(pattern, of.resource))
}

/// Whether a pattern such as `pods`, `pods/*`, `*/status`, `*` or `*/*` matches a resource. `*` matches no subresource.
fn matches_resource(pattern: &str, resource: &str) -> bool {
    let split = |text: &str| {
        let (name, sub) = text.split_once('/').unwrap_or((text, ""));
        (name.to_owned(), sub.to_owned())
    };
    if pattern == "*/*" {
        return true;
    }
    let ((name, sub), (wanted, wanted_sub)) = (split(pattern), split(resource));
    let matches_sub = sub == wanted_sub || (sub == "*" && !wanted_sub.is_empty());
    (name == "*" || name == wanted) && matches_sub
}

/// Whether a selector selects these labels. An empty selector selects everything; the API server rejects invalid ones.
pub fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let parsed: Option<Selector> = selector.clone().try_into().ok();
    parsed.is_none_or(|selector| selector.matches(labels))
}

/// Whether one of the rules names all resources of all groups.
pub fn names_everything(rules: &[RuleWithOperations]) -> bool {
    let has_star = |list: Option<&Vec<String>>| list.is_some_and(|list| list.iter().any(|item| item == "*"));
    rules.iter().any(|rule| {
        let resources = rule.resources.iter().flatten();
        has_star(rule.api_groups.as_ref())
            && resources
                .into_iter()
                .any(|resource| resource == "*" || resource == "*/*")
    })
}

#[cfg(test)]
mod tests {
    use super::matches_resource;

    /// The rules of `k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules`, `Matcher.resource`.
    #[test]
    fn patterns_match_as_in_the_api_server() {
        for (pattern, resource, expected) in [
            ("pods", "pods", true),
            ("pods", "pods/status", false),
            ("pods/status", "pods/status", true),
            ("pods/*", "pods/binding", true),
            ("pods/*", "pods", false),
            ("*", "pods", true),
            ("*", "nodes/status", false),
            ("*/status", "nodes/status", true),
            ("*/status", "pods/binding", false),
            ("*/*", "pods", true),
            ("*/*", "serviceaccounts/token", true),
            ("nodes", "pods", false),
        ] {
            assert_eq!(
                matches_resource(pattern, resource),
                expected,
                "{pattern} {resource}"
            );
        }
    }
}
