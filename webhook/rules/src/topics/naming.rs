//! The template for the names of Machines.

use crate::{
    action::Action,
    api::ControlPlaneSpec,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    go_template::{TemplateError, TemplatePart, parse},
    rule::{Check, Rule, Scope},
    syntax::is_dns1123_subdomain,
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "naming",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "naming-template-invalid",
        summary: "the naming template must produce valid Machine names",
        why: "The API server rejects a Machine whose name is invalid, so Cluster API cannot create a Machine.",
        scope: Scope::Object,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: validateNaming",
        check: Check::ControlPlaneSpec(names_invalid),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "naming-template-not-random",
        summary: "each Machine must get a unique name",
        why: "During a rollout, the old and the new Machine exist at the same time. Without a random part, the new \
              Machine gets a name that already exists.",
        scope: Scope::Object,
        source: "Cluster API, webhooks/admission/kubeadmcontrolplane.go: {{ .random }} is missing",
        check: Check::ControlPlaneSpec(not_random),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
    Rule {
        id: "naming-template-unverified",
        summary: "a naming template is checked only if it consists of text and fields",
        why: "kcp-webhook evaluates only text and fields such as {{ .random }}. If a template with \
              anything else produces an invalid name, the error appears only when Cluster API creates the next Machine.",
        action: Action::Warn,
        scope: Scope::Object,
        source: "Cluster API, internal/topology/names: names are Go templates",
        check: Check::ControlPlaneSpec(names_unverified),
        cel: Cel::None(NoCel::Grammar),
        ..Rule::USUAL
    },
];

/// The sample values that Cluster API uses to validate a template.
const SAMPLES: &[(&str, &str)] = &[
    (".cluster.name", "cluster"),
    (".kubeadmControlPlane.name", "kubeadmcontrolplane"),
    (RANDOM, SAMPLE_RANDOM),
];
const RANDOM: &str = ".random";
const SAMPLE_RANDOM: &str = "x7k2p";
/// Cluster API searches the template for exactly this text.
const RANDOM_ACTION: &str = "{{ .random }}";
const FIELDS: &str = "use only {{ .cluster.name }}, {{ .kubeadmControlPlane.name }} and {{ .random }}";

/// The maximum length of a Machine's name. Cluster API truncates longer names and appends new random characters.
const MAX_NAME_CHARS: usize = 63;

fn template<'c>(change: &Change<'_, ControlPlaneSpec<'c>>) -> Option<&'c str> {
    change
        .new
        .naming_template()
        .map(|template| &**template)
        .filter(|template| !template.is_empty())
}

/// The name that Cluster API produces from the sample values, or what is wrong with the template.
fn render_sample(pieces: &[TemplatePart<'_>]) -> Result<Vec<u8>, String> {
    let mut name = Vec::new();
    for piece in pieces {
        let text = match piece {
            TemplatePart::Text(text) => text,
            TemplatePart::Field { path, action } => match SAMPLES.iter().find(|(field, _)| field == path) {
                Some((_, sample)) => sample,
                None => return Err(format!("{} is not defined", quote(action))),
            },
        };
        name.extend_from_slice(text.as_bytes());
    }
    if name.len() > MAX_NAME_CHARS {
        name.truncate(MAX_NAME_CHARS - SAMPLE_RANDOM.len());
        name.extend_from_slice(SAMPLE_RANDOM.as_bytes());
    }
    Ok(name)
}

fn fault(
    change: &Change<'_, ControlPlaneSpec<'_>>,
    template: &str,
    detail: String,
    remedy: &'static str,
) -> Fault {
    Fault {
        field: change.new.naming_template_path(),
        reason: CauseReason::Invalid,
        value: Some(quote(template)),
        detail: detail.into(),
        remedy: remedy.into(),
    }
}

fn names_invalid(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(template) = template(change) else { return };
    let (detail, remedy) = match parse(template) {
        Err(TemplateError::Unsupported(_)) => return,
        Err(TemplateError::Malformed(fault)) => (fault.to_owned(), FIELDS),
        Ok(pieces) => match render_sample(&pieces) {
            Err(fault) => (fault, FIELDS),
            Ok(name) if is_dns1123_subdomain(&name) => return,
            Ok(name) => (
                format!(
                    "the template produces {}, which is not a valid name",
                    quote(&String::from_utf8_lossy(&name))
                ),
                "use lowercase letters, digits, - and ., and begin and end with a letter or digit",
            ),
        },
    };
    faults.push(fault(change, template, detail, remedy));
}

fn not_random(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(template) = template(change).filter(|template| !template.contains(RANDOM_ACTION)) else {
        return;
    };
    let other_notation = match parse(template) {
        Ok(pieces) => pieces.into_iter().find_map(|piece| match piece {
            TemplatePart::Field { path: RANDOM, action } => Some(action),
            _ => None,
        }),
        Err(TemplateError::Unsupported(action)) => Some(action).filter(|action| action.contains(RANDOM)),
        Err(TemplateError::Malformed(_)) => None,
    };
    match other_notation {
        None => faults.push(fault(
            change,
            template,
            "every Machine would get the same name".to_owned(),
            "add {{ .random }} to the template",
        )),
        // Another version of Cluster API may accept this action.
        Some(action) => faults.push_at_most(
            Action::Warn,
            fault(
                change,
                template,
                format!(
                    "Cluster API looks for the exact text {RANDOM_ACTION} and may reject {}",
                    quote(action)
                ),
                "write {{ .random }} with one space on each side",
            ),
        ),
    }
}

fn names_unverified(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(template) = template(change) else { return };
    if let Err(TemplateError::Unsupported(_)) = parse(template) {
        let detail = "the template has more than text and fields, so kcp-webhook does not check the names";
        let remedy = "check the names yourself, or use only text and fields";
        faults.push(fault(change, template, detail.to_owned(), remedy));
    }
}
