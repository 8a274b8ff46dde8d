//! Writes the rules that have CEL as `ValidatingAdmissionPolicy` objects and their bindings, and the [`defaults`] as
//! `MutatingAdmissionPolicy` objects. The API server evaluates these policies itself, even if the webhook is unreachable.
//!
//! Each policy covers one resource, one shape of its fields and one action. It exempts the same requests as the webhook
//! configuration, with the same expressions. Existing problems cause neither denials nor warnings, and copied objects cause no
//! denials. [`left_out`] says what the policies lack: they have no clock, and read no other objects.

pub mod defaults;
mod target;

use std::collections::BTreeMap;

use kcp_api::names::annotation;
use serde_json::{Value, json};

use crate::{
    action::Action,
    api::control_plane::Shape,
    cel::Cel,
    change::Operation,
    configuration::Configuration,
    exemption::{Exemption, Operator, Requirement, Selector},
    rule::{Check, Rule, Scope},
    topics,
    trusted_users::TrustedUsers,
};
use target::{PolicyTarget, TARGETS};

/// The suffix of the names of all policies of kcp-webhook.
pub const DOMAIN: &str = "kubectl-kcp.dev";

/// The API version of policies and their bindings.
pub const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// The namespaces to which no rule applies.
pub const EXEMPT_NAMESPACES: &[&str] = &["kube-system"];

/// All policies, each followed by its binding. Rules that are off are omitted.
pub fn objects(configuration: &Configuration) -> Vec<Value> {
    let mut objects = Vec::new();
    for target in TARGETS {
        let mut by_action: BTreeMap<Action, Vec<&'static Rule>> = BTreeMap::new();
        for rule in topics::rules().filter(|rule| target.has_rule(rule)) {
            by_action
                .entry(configuration.action(rule))
                .or_default()
                .push(rule);
        }
        for (action, rules) in by_action.into_iter().rev() {
            if let Some(validation_action) = validation_action(action) {
                let name = target.name(&validation_action.to_lowercase());
                objects.push(target.policy(&name, &rules, configuration));
                objects.extend(bindings(
                    &name,
                    validation_action,
                    configuration.warn_only.as_ref(),
                ));
            }
        }
    }
    objects
}

const fn validation_action(action: Action) -> Option<&'static str> {
    match action {
        Action::Deny => Some("Deny"),
        Action::Warn => Some("Warn"),
        Action::Audit => Some("Audit"),
        Action::Off => None,
    }
}

/// What the policies of a configuration leave out, one sentence for each.
pub fn left_out(configuration: &Configuration) -> Vec<String> {
    let mut left_out = vec![
        "an override stays active after its end, because a policy has no clock".to_owned(),
        "a new object whose owner is a Cluster counts as a copy, because a policy does not read the Cluster"
            .to_owned(),
    ];
    if configuration.authorize_overrides {
        left_out.push(
            "the user who makes a write needs the verb override, not the user who set the annotation, because a policy cannot tell \
             who set it"
                .to_owned(),
        );
    }
    let exemptions = configuration.exemptions.iter().enumerate();
    left_out.extend(exemptions.map(|(index, exemption)| {
        format!(
            "exemptions[{index}] ends at {}: export the policies again then",
            exemption.until
        )
    }));
    if configuration.denial_events {
        left_out.push("a denial is not recorded as an Event".to_owned());
    }
    left_out
}

/// The bindings of a policy that denies or warns. In the namespaces that `warnOnly` selects, a binding warns instead of denying.
/// A namespace that `warnOnly` does not select misses at least one of its requirements. So for each requirement, one binding
/// denies in the namespaces that miss this requirement.
fn bindings(name: &str, validation_action: &str, warn_only: Option<&Selector>) -> Vec<Value> {
    let Some(selector) = warn_only.filter(|_| validation_action == "Deny") else {
        return vec![binding(name, name, validation_action, Vec::new())];
    };
    let selected: Vec<_> = selector.requirements().collect();
    let misses = selected.iter().enumerate().map(|(index, requirement)| {
        let binding_name = if index == 0 {
            name.to_owned()
        } else {
            format!("{index}.{name}")
        };
        binding(
            &binding_name,
            name,
            validation_action,
            vec![requirement.negated()],
        )
    });
    let mut bindings: Vec<_> = misses.collect();
    bindings.push(binding(&format!("warn-only.{name}"), name, "Warn", selected));
    bindings
}

fn binding(name: &str, policy: &str, validation_action: &str, also: Vec<Requirement>) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": policy,
            "validationActions": [validation_action],
            "matchResources": matched_namespaces(also),
        },
    })
}

/// Selects the namespaces that are not exempt and meet the requirements.
fn matched_namespaces(also: Vec<Requirement>) -> Value {
    let mut requirements = vec![Requirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        operator: Operator::NotIn,
        values: EXEMPT_NAMESPACES.iter().map(|&name| name.to_owned()).collect(),
    }];
    requirements.extend(also);
    json!({"namespaceSelector": {"matchExpressions": requirements}})
}

impl PolicyTarget {
    fn is_scale(&self) -> bool {
        self.resource.ends_with("/scale")
    }

    fn has_rule(&self, rule: &Rule) -> bool {
        rule.check.kinds().contains(&self.kind)
            && rule.operations.iter().any(|it| self.operations.contains(it))
            && rule.cel.expression(self.shape).is_some()
            && (!self.is_scale() || matches!(rule.cel, Cel::FaultsAlsoForScale(_)))
            && (!matches!(rule.cel, Cel::FaultsOfControlPlanes(_)) || self.kind == "KubeadmControlPlane")
    }

    /// `effect` is what the policy does, such as `deny`.
    fn name(&self, effect: &str) -> String {
        let resource: Vec<_> = self.resource.rsplit('/').collect();
        format!("{effect}.{}.{}.{DOMAIN}", self.version, resource.join("."))
    }

    fn match_constraints(&self) -> Value {
        let operations: Vec<_> = self.operations.iter().map(|it| it.as_str()).collect();
        json!({
            "matchPolicy": if self.matches_equivalent { "Equivalent" } else { "Exact" },
            "resourceRules": [{
                "apiGroups": [self.group],
                "apiVersions": [self.version],
                "operations": operations,
                "resources": [self.resource],
                "scope": "Namespaced",
            }],
        })
    }

    fn match_conditions(&self) -> Value {
        let conditions = self.conditions.iter();
        conditions
            .map(|(name, expression)| json!({"name": name, "expression": expression}))
            .collect()
    }

    fn policy(&self, name: &str, rules: &[&'static Rule], configuration: &Configuration) -> Value {
        let mut variables = self.common_variables(configuration);
        variables.extend(rules.iter().filter_map(|rule| {
            let faults = rule.cel.expression(self.shape)?;
            let faults = new_faults(rule, &faults);
            Some(json!({"name": cel_identifier(rule), "expression": faults}))
        }));
        let validations: Vec<_> = rules.iter().map(|rule| validation(rule, configuration)).collect();
        json!({
            "apiVersion": API_VERSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": self.failure_policy,
                "matchConstraints": self.match_constraints(),
                "matchConditions": self.match_conditions(),
                "variables": variables,
                "validations": validations,
            },
        })
    }

    /// A CEL condition that is true if the user has the verb `override` on the object.
    fn override_allowed(&self) -> String {
        let resource = self.resource.split('/').next().unwrap_or_default();
        format!(
            "authorizer.group('{}').resource('{resource}').namespace(request.namespace).name(request.name)\
             .check('override').allowed()",
            self.group
        )
    }

    fn common_variables(&self, configuration: &Configuration) -> Vec<Value> {
        let gates = configuration.feature_gates;
        let gates = format!(
            "{{'ignition': {}, 'machineTaints': {}}}",
            gates.ignition, gates.machine_taints
        );
        let shape = match self.shape {
            Shape::V1Beta1 => "'v1beta1'",
            Shape::V1Beta2 => "'v1beta2'",
        };
        let mut overridden = format!(
            "object.metadata.?annotations[?'{}'].orValue('').split(',').map(entry, entry.split('=')[0].trim())",
            annotation::OVERRIDE_RULES
        );
        let mut copied = copy_expression(&configuration.trusted_users);
        if configuration.authorize_overrides {
            let allowed = self.override_allowed();
            overridden = format!("{allowed} ? {overridden} : []");
            copied = format!(
                "({copied}) && (request.userInfo.username in {} || {allowed})",
                cel_list(&configuration.trusted_users.hive)
            );
        }
        let mut variables = vec![
            json!({"name": "objects", "expression": self.object_inputs}),
            json!({"name": "shape", "expression": shape}),
            json!({"name": "featureGates", "expression": gates}),
            json!({"name": "overridden", "expression": overridden}),
            json!({"name": "copied", "expression": copied}),
        ];
        variables.extend(configuration.exemptions.iter().enumerate().map(|(index, exemption)| {
            json!({"name": exemption_variable(index), "expression": exemption_expression(exemption)})
        }));
        if let Some((path, specs)) = self.spec_inputs {
            variables.push(json!({"name": "path", "expression": format!("'{path}'")}));
            variables.push(json!({"name": "specs", "expression": specs}));
        }
        variables
    }
}

/// A CEL expression for the problems that a write introduces. For an object rule, each problem of the old object
/// cancels one problem of the new object with the same message and the same `hidden` value. As in [`crate::judge`],
/// their paths are not compared.
fn new_faults(rule: &Rule, faults: &str) -> String {
    let faults = indent(faults);
    if rule.scope != Scope::Object {
        return if rule.operations.contains(&Operation::Create) {
            faults
        } else {
            format!("request.operation != 'UPDATE' ? [] :\n{faults}")
        };
    }
    let (inputs, input) = match rule.check {
        Check::ControlPlaneSpec(_) => ("specs", "spec"),
        _ => ("objects", "self"),
    };
    let on_create_alone = !rule.operations.contains(&Operation::Update);
    let unless = if on_create_alone {
        "request.operation != 'CREATE' ? [] :\n"
    } else {
        ""
    };
    format!(
        "{unless}[variables.{inputs}.map({input},\n{faults}\n)]\n\
         .map(found, size(found) == 1 ? found[0] : found[0].transformList(index, it,\n  \
         found[0].transformList(other, same, other <= index && {SAME_PROBLEM}, same).size()\n  \
         > found[1].filter(same, {SAME_PROBLEM}).size(), it))[0]"
    )
}

/// A CEL condition that is true if two problems are the same.
const SAME_PROBLEM: &str = "same.fault == it.fault && same.?hidden == it.?hidden";

fn indent(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

/// The rule id as a CEL identifier.
fn cel_identifier(rule: &Rule) -> String {
    rule.id.replace('-', "_")
}

/// A CEL condition that is true if the object is a copy of an existing object, as in [`crate::judge`].
fn copy_expression(users: &TrustedUsers) -> String {
    format!(
        "request.operation == 'CREATE' && (request.userInfo.username in {} \
         || object.metadata.?ownerReferences.orValue([]).exists(owner, owner.kind == 'Cluster' \
         && owner.apiVersion.startsWith('cluster.x-k8s.io/')) \
         && !(request.userInfo.username in {}))",
        cel_list(&users.hive),
        cel_list(&users.cluster_api),
    )
}

/// A list of strings as CEL. JSON text is valid, because CEL understands the escapes of JSON strings.
fn cel_list(texts: &[String]) -> Value {
    texts.iter().map(|text| json!(text)).collect()
}

fn exemption_variable(index: usize) -> String {
    format!("exemption{index}")
}

/// A CEL condition that is true for the writes that an exemption exempts. The condition does not check the end of the exemption.
fn exemption_expression(exemption: &Exemption) -> String {
    let mut conditions = Vec::new();
    if !exemption.users.is_empty() || !exemption.groups.is_empty() {
        conditions.push(format!(
            "(request.userInfo.username in {} || request.userInfo.groups.exists(group, group in {}))",
            json!(exemption.users),
            json!(exemption.groups)
        ));
    }
    let selector = exemption.namespace_selector.as_ref();
    let requirements = selector.into_iter().flat_map(Selector::requirements);
    conditions.extend(requirements.map(|requirement| requirement_expression(&requirement)));
    if conditions.is_empty() {
        "true".to_owned()
    } else {
        conditions.join(" && ")
    }
}

/// A CEL condition that is true if the labels of the namespace meet a requirement.
fn requirement_expression(requirement: &Requirement) -> String {
    let label = format!("namespaceObject.metadata.?labels[?{}]", json!(requirement.key));
    let is_listed = format!(
        "({label}.hasValue() && {label}.value() in {})",
        json!(requirement.values)
    );
    match requirement.operator {
        Operator::In => is_listed,
        Operator::NotIn => format!("!{is_listed}"),
        Operator::Exists => format!("{label}.hasValue()"),
        Operator::DoesNotExist => format!("!{label}.hasValue()"),
    }
}

fn validation(rule: &Rule, configuration: &Configuration) -> Value {
    let action = configuration.action(rule);
    let (id, variable) = (rule.id, cel_identifier(rule));
    let mut passes = vec![format!("variables.{variable}.size() == 0")];
    if rule.scope == Scope::Object && action == Action::Deny {
        passes.push("variables.copied".to_owned());
    }
    if rule.overridable {
        passes.push(format!("'{id}' in variables.overridden"));
    }
    if action > Action::Audit {
        let exemptions = configuration.exemptions.iter().enumerate();
        let exempting = exemptions.filter(|(_, exemption)| exemption.covers(rule.id));
        passes.extend(exempting.map(|(index, _)| format!("variables.{}", exemption_variable(index))));
    }
    json!({
        "expression": passes.join(" || "),
        "messageExpression":
            format!("variables.{variable}.map(it, it.field + ': ' + it.fault + ' ({id})').join('; ')"),
        // The API server uses this message if the result of `messageExpression` is too long.
        "message": format!("{} ({id})", rule.summary),
        "reason": "Invalid",
    })
}
